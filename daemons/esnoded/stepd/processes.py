"""The supervisor's end of `procd`: every process of a step is started, signalled and collected there.

Requests wait for their answer, which `procd` gives at once; what it tells meanwhile is kept for `take_events`. Invariant:
without `procd` there is no supervisor: when it is gone this process ends, and the next one says that the steps are lost.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from eslurm.core.model.protocol import SetTime
from eslurm.core.model.step_key import NodeAttempt, StepKey
from eslurm.ports.step_runner import StepOrder
from eslurm.security.site_keys import Ring
from esnoded.procd import wire
from esnoded.procd.credential import NotAllowed, Seals, UserNotAllowed
from esnoded.procd.log import complain
from esnoded.procd.options import Options
from esnoded.stepd.connect import Connector, parse_report
from esnoded.stepd.terms import SpecReader, Terms, terms_of
from esnoded.task.program import SpawnError

_REPORT_BYTES_MAX = 4096
_UNKNOWN = Options("", "")
"""Until root's word on it was read."""
_A = TypeVar("_A", bound=wire.Answer)


class Processes:
    """Register `fileno` for reading, and `read` when it is ready."""

    def __init__(self, end: socket.socket, read_spec: SpecReader) -> None:
        self._channel: wire.Channel[wire.Told] = wire.Channel(end, msgspec.msgpack.Decoder(wire.Told))
        self._read_spec = read_spec
        self._events: deque[wire.Event] = deque()
        self._seals: Seals | None = None
        self.options = _UNKNOWN

    def fileno(self) -> int:
        """Readable when there is an event, or `procd` is gone."""
        return self._channel.fileno()

    @property
    def has_task_epilog(self) -> bool:
        """Check whether root has a program that follows each task."""
        return bool(self.options.task_epilog)

    @property
    def has_events(self) -> bool:
        """Check whether `take_events` has something to give."""
        return bool(self._events)

    def read(self) -> None:
        """Take what `procd` has told."""
        while True:
            try:
                told, _ = self._receive(wait=False)
            except BlockingIOError:
                return
            assert isinstance(told, wire.Event), told
            self._events.append(told)

    def take_events(self) -> list[wire.Event]:
        """The pending events, in order."""
        events = list(self._events)
        self._events.clear()
        return events

    def admit(self, order: StepOrder) -> Terms:
        """The step that the order's credential allows; `over` follows. Raises `NotAllowed`."""
        self._ask(wire.Admit(order), wire.Done)
        try:
            terms = terms_of(self._read_spec(order))
            if order.key.is_phase:
                return msgspec.structs.replace(terms, time_limit_us=round(self.options.phase_limit_s * 1e6))
            return terms
        except Exception as error:
            self.over([order.key])
            if isinstance(error, ValueError):
                raise NotAllowed(str(error)) from None
            raise

    def spawn(self, key: StepKey, local: int, pipes: tuple[int, ...] | None) -> tuple[int, int]:
        """Start a task: its pid, and the pipe for `read_report` (-1: none). Raises `SpawnError`."""
        return self._spawn(wire.Spawn(key, local), pipes or ())

    def spawn_aside(self, key: StepKey, seconds_left: int) -> tuple[int, int]:
        """Start the script that warns of the step's limit. Raises `SpawnError`."""
        return self._spawn(wire.Spawn(key, 0, seconds_left=seconds_left))

    def spawn_epilog(self, key: StepKey, local: int, pid: int, wait_status: int) -> tuple[int, int]:
        """Start the site's program after a task that has ended so. Raises `SpawnError`."""
        return self._spawn(wire.Spawn(key, local, (pid, wait_status)))

    def _spawn(self, request: wire.Spawn, fds: Sequence[int] = ()) -> tuple[int, int]:
        answer, came = self._ask_any(request, fds)
        if isinstance(answer, wire.Refused):
            raise SpawnError(answer.exit_code, answer.text)
        assert isinstance(answer, wire.Spawned), answer
        return answer.pid, came[0] if came else -1

    def connect(self, key: StepKey) -> Connector:
        """A connection to the step's listener, in the making. Raises OSError, `NotAllowed`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._ask(wire.Connect(key), wire.Done, (theirs.fileno(),))
        except NotAllowed:
            ours.close()
            raise
        finally:
            theirs.close()
        return Connector(ours)

    def deliver(self, deliveries: Sequence[wire.Delivery]) -> None:
        """Send signals to steps. Raises `NotAllowed` when not all could be sent."""
        self._ask(wire.Deliver(tuple(deliveries)), wire.Done)

    def over(self, keys: Sequence[StepKey]) -> None:
        """Forget steps: their adopted processes are killed."""
        self._send(wire.Over(tuple(keys)))

    def limit(self, key: StepKey, credential: bytes) -> tuple[int, int]:
        """(revision, microseconds) of the time limit that a sealed command sets for the attempt. Raises `NotAllowed`.

        It does not end: an agent says it again after each restart, and the one of the highest revision counts.
        """
        if self._seals is None:
            raise NotAllowed("the site's keys are not known yet")
        command = self._seals.command(key, credential)
        body = command.body
        if type(body) is not SetTime or (body.job_id, body.attempt) != (key.job_id, key.attempt):
            raise NotAllowed("the credential does not set this job's time limit")
        return command.revision, body.time_limit_s * 1_000_000

    def trust(self, ring: bytes) -> None:
        """The site has other keys. Raises `NotAllowed`."""
        self._ask(wire.Trust(ring), wire.Done)
        self.refresh()

    def refresh(self) -> wire.Refreshed:
        """Root's present options. Raises `NotAllowed`."""
        refreshed, _ = self._ask(wire.Refresh(), wire.Refreshed)
        if self._seals is None or self._seals.ring.sealed != refreshed.ring:
            self._seals = Seals(Ring.from_sealed(refreshed.ring))
        self.options = refreshed.options
        return refreshed

    def vacate(self, attempts: Sequence[NodeAttempt]) -> None:
        """Let go of what the steps of attempts shared that have left their node. Raises `NotAllowed`."""
        if self.options.private_dirs:
            self._ask(wire.Vacate(tuple(attempts)), wire.Done)

    def settled(self) -> None:
        """Report that outcomes left behind are in the journal."""
        self._ask(wire.Settled(), wire.Done)

    def _ask(self, request: wire.Request, kind: type[_A], fds: Sequence[int] = ()) -> tuple[_A, list[int]]:
        answer, came = self._ask_any(request, fds)
        if isinstance(answer, wire.Refused):
            raise UserNotAllowed(answer.text) if answer.user else NotAllowed(answer.text)
        assert isinstance(answer, kind), answer
        return answer, came

    def _ask_any(self, request: wire.Request, fds: Sequence[int]) -> tuple[wire.Answer, list[int]]:
        self._send(request, fds)
        while True:
            told, came = self._receive(wait=True)
            if not isinstance(told, wire.Event):
                return told, came
            self._events.append(told)

    def _send(self, request: wire.Request, fds: Sequence[int] = ()) -> None:
        try:
            self._channel.send(request, fds)
        except ConnectionError:
            _end()

    def _receive(self, *, wait: bool) -> tuple[wire.Told, list[int]]:
        try:
            return self._channel.receive(wait=wait)
        except EOFError:
            _end()
            raise


def read_report(report_fd: int) -> SpawnError | None:
    """A task's failure; None means that it runs its program. Closes the descriptor.

    Call it when the descriptor is readable or the task has ended: it does not block then.
    """
    with open(report_fd, "rb") as pipe:
        report = pipe.read(_REPORT_BYTES_MAX)
    return parse_report(report) if report else None


def _end() -> None:
    complain("procd is gone: its supervisor ends")
    os._exit(1)
