"""`procd` in the very process of a test: no pair of sockets, no fork of a supervisor."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from eslurm.core.model.job import Principal
from eslurm.ports.step_runner import StepOrder, StepSpec
from esnoded.procd import wire
from esnoded.procd.options import Options
from esnoded.procd.request_checks import Allowed
from esnoded.procd.server import Procd
from esnoded.stepd.processes import Processes
from esnoded.stepd.terms import Terms
from tests.kits.stepd_trusting import TrustingChecks, allow

_encode = msgspec.msgpack.encode
_CONNECT = """
import os, socket, sys
if int(sys.argv[3]) >= 0:
    os.read(int(sys.argv[3]), 1)
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
socket.send_fds(socket.socket(fileno=100), [bytes(1)], [connection.fileno()])
"""
_requests = msgspec.msgpack.Decoder(wire.Request)


def spawn_connector(_user: Principal, make: Callable[[int], StepSpec], fd: int, *, gate_fd: int = -1) -> int:
    """As `procd` does, but by a program: in a process that has used gRPC, what is forked and runs on may die of it.

    It waits for a byte from `gate_fd`, if there is one.
    """
    endpoint = make(0).endpoint
    assert endpoint is not None
    words = [sys.executable, "-I", "-S", "-c", _CONNECT, endpoint.host, str(endpoint.port)]
    checks = -1 if gate_fd < 0 else 101
    actions = [(os.POSIX_SPAWN_DUP2, fd, 100)]
    if gate_fd >= 0:
        actions.append((os.POSIX_SPAWN_DUP2, gate_fd, checks))
    return os.posix_spawn(sys.executable, [*words, str(checks)], os.environ, file_actions=actions)


class _Checks(TrustingChecks):
    def __init__(self) -> None:
        self.spec: StepSpec | None = None
        self._options = Options("", "")

    def admit(self, order: StepOrder) -> Allowed:
        assert self.spec is not None
        return allow(self.spec)


class _NoRecord:
    def began(self, pid: int, start_ticks: int) -> None:
        pass

    def ended(self, pid: int) -> None:
        pass


class _Told:
    """The receiver of its events."""

    def __init__(self, events: deque[wire.Event]) -> None:
        self._events = events

    def fileno(self) -> int:
        return -1

    def send(self, message: Any, _fds: Sequence[int] = ()) -> None:
        self._events.append(message)


class Direct(Processes):
    """Takes any spec; collects children when a test says so (`procd.reap`)."""

    def __init__(self, instance: str) -> None:
        self._events = deque()
        self.options = Options("", "")
        self.checks = _Checks()
        self.procd = Procd(_Told(self._events), self.checks, _NoRecord(), instance)  # type: ignore[arg-type]

    def admit_spec(self, spec: StepSpec) -> Terms:
        """Admit a step that no message could carry, too."""
        self._read_spec = lambda _order: spec
        self.checks.spec = spec
        return self.admit(StepOrder(spec.key, b""))

    def _send(self, request: wire.Request, fds: Sequence[int] = ()) -> None:
        self._ask_any(request, fds)

    def _ask_any(self, request: wire.Request, fds: Sequence[int]) -> tuple[wire.Answer, list[int]]:
        # As over the wire, with its bounds.
        answer, fd = self.procd.handle(_requests.decode(_encode(request)), fds)
        return answer, [fd] if fd >= 0 else []
