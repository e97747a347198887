"""Asking this cluster's controller how it does, without patience: no answer is an answer here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.message import Message

_TIMEOUT_S = 5.0


def find_answer(socket: Path, method: str, request: Message, timeout_s: float = _TIMEOUT_S) -> Any:
    """The reply to one call that changes nothing; None when there is none in time."""
    from eslurm.ports.door import DoorRefused, DoorUnreachable
    from eslurm.rpc.methods import BY_NAME
    from eslurm.rpc.unix_client import Client

    with Client(socket, patience_s=0.0) as client:
        try:
            return client.call(BY_NAME[method], request, timeout_s)
        except (DoorRefused, DoorUnreachable):
            return None


def ping(socket: Path, timeout_s: float = _TIMEOUT_S) -> Any:
    """The controller's PingReply; None when it does not answer in time."""
    from eslurm.v1 import controller_pb2 as pb

    return find_answer(socket, "Ping", pb.PingRequest(), timeout_s)
