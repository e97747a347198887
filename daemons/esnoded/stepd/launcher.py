"""Start of an agent's step supervisor.

The supervisor is always exec'd, never forked from the agent: it starts with a small, fresh heap, and it does not matter
whether the agent has threads or gRPC by then. Starting it first thing merely has it ready in time.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

import eslurm
import esnoded
from eslurm.ports.step_runner import StepStarted
from esnoded.procd.options import Options
from esnoded.stepd.place import Place, SupervisorStatus
from esnoded.stepd.wire import (
    PROTOCOL_VERSION,
    Answer,
    FrameBuffer,
    Hello,
    Listing,
    ListSteps,
    WireError,
    encode_frame,
)

_START_TIMEOUT_S = 30.0
_ANSWER_TIMEOUT_S = 10.0
_END_POLL_S = 0.02
_READ_BYTES = 64 * 1024
_LOG_TAIL_BYTES = 2000
MODULE = "esnoded.stepd"

Connect: TypeAlias = Callable[[], socket.socket]
"""Gives a connection to a supervisor. Blocks; raises OSError or `SupervisorUnavailable`."""


class SupervisorUnavailable(Exception):
    """No supervisor serves the directory and none could be started; the text holds its last words."""


def ensure_supervisor(state_dir: Path, options: Options, *, module: str = MODULE) -> SupervisorStatus:
    """Find the supervisor of `state_dir`, or start one and wait until it serves (about 0.1 s; blocks).

    One that is there already follows the options from its next connection on. Raises `SupervisorUnavailable`.
    """
    place = Place(state_dir)
    try:
        place.prepare()
        place.write_options(options)
    except OSError as error:
        raise SupervisorUnavailable(str(error)) from None
    status = place.find_supervisor()
    if status is not None:
        return status
    # -P: whose the working directory is does not matter; `-m` alone would import from it.
    command = [sys.executable, "-P", "-m", module, place.state_dir]
    try:
        done = subprocess.run(  # nosec B603 # fixed words and the own state directory
            command,
            # The environment of the agent's starter never reaches a process that may be root's.
            env={
                "PATH": os.defpath,
                "LC_ALL": "C.UTF-8",
                "PYTHONPATH": _import_path(),
                "PYTHONSAFEPATH": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_START_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SupervisorUnavailable(f"cannot start the step supervisor: {error}") from error
    status = place.find_supervisor()
    if done.returncode != 0 or status is None:
        words = done.stderr.decode(errors="replace") + _log_tail(place.log)
        raise SupervisorUnavailable(
            f"the step supervisor of {place.directory} did not start: {words.strip()}"
        )
    return status


def end_older(state_dir: Path) -> None:
    """End a supervisor of an earlier release that has no steps: the next one is of this release. Blocks for a moment.

    One with steps stays: they end with it. Raises `SupervisorUnavailable` when it does not end.
    """
    place = Place(state_dir)
    status = place.find_supervisor()
    if status is None or status.version >= PROTOCOL_VERSION or not status.server_pid:
        return
    try:
        if _has_steps(place):
            return
        os.kill(status.pid, signal.SIGTERM)
    except (OSError, WireError, msgspec.MsgspecError, UnicodeDecodeError):
        # It is ending by itself, or does not answer: it is found dead, or as it was, by those that need it.
        return
    give_up_s = time.monotonic() + _START_TIMEOUT_S
    while place.find_supervisor() is not None:
        if time.monotonic() > give_up_s:
            raise SupervisorUnavailable(f"the step supervisor of {place.directory} does not end")
        time.sleep(_END_POLL_S)


def _has_steps(place: Place) -> bool:
    """Ask the supervisor for steps that run. Raises OSError, `WireError`, `MsgspecError`."""
    buffer, decoder = FrameBuffer(), msgspec.msgpack.Decoder(Answer)
    with place.connect() as connection:
        connection.settimeout(_ANSWER_TIMEOUT_S)
        connection.sendall(encode_frame(Hello(PROTOCOL_VERSION)) + encode_frame(ListSteps(1)))
        while data := connection.recv(_READ_BYTES):
            for body in buffer.feed(data):
                answer = decoder.decode(body)
                if isinstance(answer, Listing):
                    if any(isinstance(step, StepStarted) for step in answer.steps):
                        return True
                    if answer.last:
                        return False
    raise ConnectionError("the step supervisor has closed the connection")


def connect_supervisor(state_dir: Path, options: Options, *, module: str = MODULE) -> socket.socket:
    """A connection to the supervisor of `state_dir`, which is started if need be. Blocks. Raises OSError,
    `SupervisorUnavailable`.
    """
    ensure_supervisor(state_dir, options, module=module)
    return Place(state_dir).connect()


def find_predecessor(state_dir: Path) -> Connect | None:
    """The connection to a supervisor before version 0.2 that still serves `state_dir`; None when there is none."""
    place = Place(state_dir, is_old=True)
    if place.find_supervisor() is None:
        return None

    def connect() -> socket.socket:
        if place.find_supervisor() is None:
            raise SupervisorUnavailable("the step supervisor of an earlier version has ended")
        return place.connect()

    return connect


def _import_path() -> str:
    """The path of the agent's own code: the supervisor must be of the same build.

    Relative entries of PYTHONPATH, the empty one among them, mean the working directory: they are left out.
    """
    roots = [str(Path(file).parent.parent) for file in (esnoded.__file__, eslurm.__file__) if file]
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys([*roots, *filter(os.path.isabs, inherited)]))


def _log_tail(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read()[-_LOG_TAIL_BYTES:].decode(errors="replace")
    except OSError:
        return ""
