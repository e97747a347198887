"""The output of a step of gateways: the first line of each daemon is its address; the end of the rest explains a failure.

Invariants: a first line is bounded, and one of a daemon is an address of this host and a port, or its step ends; the daemons
never wait for a reader; what is kept is bounded.
"""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable

from eslurm.core.model.gateways import ADDRESS_CHARS_MAX, is_address
from eslurm.core.model.step_key import GATEWAY_STEP, StepKey
from eslurm.ports.step_checks import parse_endpoint
from eslurm.telemetry.kept_output import last_words
from esnoded.stepd.output import fds_max, make_pipe

_READ_BYTES = 64 * 1024
_READS_MAX = 16
_LINE_BYTES_MAX = 4_096
"""The helper's first line is a path."""
_KEPT_BYTES = 1_600


class GatewayOutput:
    """The pipes of one step (an `OutputPipes`). `wrap` protects the loop from what goes wrong here.

    `on_ready` gets the first lines of all tasks, once; `on_bad` what is wrong with one, and then the step is to be ended.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        key: StepKey,
        tasks: int,
        wrap: Callable[[Callable[[int], object]], Callable[[int], None]],
        on_ready: Callable[[tuple[str, ...]], None],
        on_bad: Callable[[str], None],
    ) -> None:
        self._selector = selector
        self._key = key
        self._tasks = tasks
        self._wrap = wrap
        self._on_ready = on_ready
        self._on_bad = on_bad
        self._fds: dict[int, int] = {}
        """Open read ends, and the task of those from which its first line is still to come (others: -1)."""
        self._begun: dict[int, bytes] = {}
        self._lines: dict[int, str] = {}
        self._kept = b""

    def open_pipes(self, local: int) -> tuple[int, int]:
        """See `OutputPipes`."""
        writers: list[int] = []
        on_pipe = self._wrap(self._read)
        try:
            for task in (local, -1):
                read_fd, write_fd = make_pipe(fds_max())
                writers.append(write_fd)
                self._fds[read_fd] = task
                self._selector.register(read_fd, selectors.EVENT_READ, lambda _mask, fd=read_fd: on_pipe(fd))
        except OSError:
            for fd in writers:
                os.close(fd)
            raise
        return writers[0], writers[1]

    def task_ended(self, local: int, exit_status: int) -> None:
        """See `OutputPipes`."""

    def last_words(self) -> str:
        """The end of the output as one line of printable text; takes what the pipes still hold."""
        self._drain()
        return last_words(self._kept)

    def finish(self) -> None:
        """The step is over."""
        self.drop()

    def drop(self) -> None:
        """Close the pipes."""
        for fd in tuple(self._fds):
            self._close(fd)

    def _drain(self) -> None:
        # What a process that cannot be killed still writes is not waited for.
        for fd in tuple(self._fds):
            for _ in range(_READS_MAX):
                if not self._read(fd):
                    break

    def _read(self, fd: int) -> bool:
        """Take what is there; False when that is nothing."""
        if fd not in self._fds:
            return False
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._close(fd)
            return False
        task = self._fds[fd]
        if task >= 0:
            data = self._first_line(fd, task, data)
        self._kept = (self._kept + data)[-_KEPT_BYTES:]
        return True

    def _first_line(self, fd: int, task: int, data: bytes) -> bytes:
        """Take the first line of a task; what comes behind it."""
        begun = self._begun.pop(task, b"") + data
        line, newline, rest = begun.partition(b"\n")
        if not newline and len(begun) <= _LINE_BYTES_MAX:
            self._begun[task] = begun
            return b""
        self._fds[fd] = -1
        text = line[: _LINE_BYTES_MAX + 1].decode(errors="replace").strip()
        if self._key.step == GATEWAY_STEP and (problem := address_problem(text)):
            self._on_bad(
                f"the first line of gateway daemon {task} is no address of this host and port: {problem}"
            )
            return rest
        self._lines[task] = text
        if len(self._lines) == self._tasks:
            self._on_ready(tuple(self._lines[one] for one in range(self._tasks)))
        return rest

    def _close(self, fd: int) -> None:
        del self._fds[fd]
        self._selector.unregister(fd)
        os.close(fd)


def address_problem(text: str) -> str:
    """The reason why this is not `ADDRESS:PORT` of this host; empty when it is."""
    shown = f"{text[:ADDRESS_CHARS_MAX]!r}"
    if not is_address(text):
        return shown
    try:
        host, _ = parse_endpoint(text)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Only an own address can be bound.
            probe.bind((host, 0))
    except (OSError, ValueError):
        return shown
    return ""
