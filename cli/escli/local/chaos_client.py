"""One question to a daemon's private socket for failures, and its answer."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import msgspec

from escli.errors import ClusterError
from escli.local.layout import Layout
from eslurm.faults.chaos_socket import NAME, ChaosReply, ChaosRequest

_TIMEOUT_S = 10.0
_PART_BYTES = 65_536
_EARLY_S = 5.0
"""The controller shows a node as up a moment before its agent hears that it is registered."""
_AGAIN_S = 0.05


def ask(layout: Layout, daemon: str, request: ChaosRequest) -> ChaosReply:
    """The daemon's answer. Raises `ClusterError` when it refuses, or cannot be asked."""
    return ask_in(layout.state_of(daemon), daemon, request)


def ask_in(state_dir: Path, daemon: str, request: ChaosRequest) -> ChaosReply:
    """`ask` for a daemon with this state directory."""
    deadline_s = time.monotonic() + _EARLY_S
    while True:
        reply = _answer(state_dir, daemon, request)
        if not reply.error:
            return reply
        if not reply.is_early or time.monotonic() >= deadline_s:
            raise ClusterError(f"{daemon}: {reply.error}")
        time.sleep(_AGAIN_S)


def _answer(state_dir: Path, daemon: str, request: ChaosRequest) -> ChaosReply:
    try:
        line = _exchange(str(state_dir / NAME), msgspec.json.encode(request) + b"\n")
    except FileNotFoundError:
        raise ClusterError(
            f"{daemon} takes no such requests, it was started without --allow-chaos: eslurm down; eslurm up"
        ) from None
    except TimeoutError:
        raise ClusterError(
            f"{daemon} did not answer within {_TIMEOUT_S:g} s: is its process stopped?"
        ) from None
    except OSError as error:
        raise ClusterError(f"{daemon} cannot be asked: {error.strerror or error}: `eslurm status`") from None
    try:
        return msgspec.json.decode(line, type=ChaosReply)
    except msgspec.MsgspecError as error:
        raise ClusterError(f"{daemon} answered what cannot be read: {error}") from None


def _exchange(path: str, line: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_TIMEOUT_S)
        connection.connect(path)
        connection.sendall(line)
        parts = []
        while part := connection.recv(_PART_BYTES):
            parts.append(part)
            if part.endswith(b"\n"):
                break
        return b"".join(parts)
