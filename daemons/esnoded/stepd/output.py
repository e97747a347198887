"""The streams of one interactive step: its tasks' pipes, merged into one sealed connection to the command that waits.

Invariants: what is held for a slow reader, or for one whose connection is cut, is bounded (the pipes are then left unread,
and the tasks wait as they would for a slow terminal); a connection that is gone never blocks or kills a task through its
pipes, because they are read on and thrown away; the link closes itself, at the latest
`_LINGER_US` after the step's end.
"""

from __future__ import annotations

import errno
import os
import resource
import selectors
import socket
from collections.abc import Callable

import msgspec

from eslurm.core.model.mpi import PMIX
from eslurm.ports.step_runner import MPI_STREAM, InputFrame, OutputEndpoint, OutputFrame, OutputHello
from eslurm.telemetry.clocks import boot_us
from esnoded.stepd.connect import receive_terminal
from esnoded.stepd.guard import Guard
from esnoded.stepd.input import InputPipes
from esnoded.stepd.input_window import WINDOW_BYTES
from esnoded.stepd.output_connection import OutputConnection
from esnoded.stepd.processes import Processes
from esnoded.stepd.rank_sockets import RankSockets, make_sockets
from esnoded.stepd.step import Step
from esnoded.stepd.timers import Timers

_READ_BYTES = 64 * 1024
_DRAINS_MAX = 16
"""Reads of a pipe at the end, which hold all that is in it."""
_LINGER_US = 10_000_000
_FDS_RESERVED = 64


def fds_max() -> int:
    """The first descriptor that no output may take: the rest is for the supervisor, which could end no step without."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _FDS_RESERVED


def make_pipe(fds_max: int) -> tuple[int, int]:
    """A pipe whose read end does not block. Raises OSError when out of descriptors."""
    read_fd, write_fd = os.pipe()
    if max(read_fd, write_fd) >= fds_max:
        os.close(read_fd)
        os.close(write_fd)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    os.set_blocking(read_fd, False)
    return read_fd, write_fd


class _Pipe(msgspec.Struct, eq=False):
    """The read end of one stream of one task."""

    fd: int
    task: int
    stream: int


class OutputLink:
    """One step's pipes and connection. `on_broken` is called once, never from within a method called by the owner;
    `on_delivered` when a `deliver` that had to wait may be tried again.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        timers: Timers,
        guard: Guard,
        processes: Processes,
        step: Step,
        endpoint: OutputEndpoint,
        on_broken: Callable[[str], None],
        on_delivered: Callable[[], None],
    ) -> None:
        self._selector = selector
        self._timers = timers
        self._guard = guard
        self._step = step
        self._on_broken = on_broken
        self._on_delivered = on_delivered
        spec = step.spec
        self._node = spec.key.node
        self._first_task = spec.first_task
        self._pipes: dict[int, _Pipe] = {}
        self._offers: dict[int, socket.socket] = {}
        """Local rank -> the socket over which its terminal comes."""
        self._paused = False
        self._finished = False
        self._delivered_by_us = 0
        """Time after which a command that takes its output slowly is not waited for; 0: the step is not over."""
        self._fds_max = fds_max()
        readers = [local for local in range(spec.tasks) if spec.reads_stream(local)]
        self._input = InputPipes(selector, readers, lambda call: guard.wrap(step, call), self._grant_input)
        self._ranks = RankSockets(selector, lambda call: guard.wrap(step, call), self._pass_on)
        window = WINDOW_BYTES if readers else 0
        hello = OutputHello(spec.key, spec.node_name, spec.tasks, window, spec.mpi, resumes=True)
        self._connection = OutputConnection(selector, timers, guard, processes, step, endpoint, hello, self)

    def open_pipes(self, local: int) -> tuple[int, ...]:
        """The write ends for stdout and stderr of the task with this local rank, and the read end for stdin if it takes
        the command's input, or one socket for its terminal; and a socket for its MPI library. The caller closes them after
        the task was started. Raises OSError when out of descriptors."""
        has_terminal = self._step.spec.has_terminal(local)
        writers: list[int] = []
        try:
            if has_terminal:
                writers.append(self._offer_terminal(local))
            for stream in () if has_terminal else (1, 2):
                read_fd, write_fd = make_pipe(self._fds_max)
                writers.append(write_fd)
                pipe = _Pipe(read_fd, self._first_task + local, stream)
                self._pipes[read_fd] = pipe
                if not self._paused:
                    self._watch(pipe)
            if not has_terminal and self._input.takes(local):
                writers.append(self._input.open(local, lambda: make_pipe(self._fds_max)))
            if mpi := self._step.spec.mpi:
                writers.insert(0 if mpi == PMIX else len(writers), self._ranks.open(local, self._fds_max))
        except OSError:
            for fd in writers:
                os.close(fd)
            raise
        return tuple(writers)

    def _offer_terminal(self, local: int) -> int:
        own, theirs = make_sockets(self._fds_max)
        self._offers[local] = own
        on_terminal = self._guard.wrap(self._step, self._on_terminal)
        self._selector.register(own, selectors.EVENT_READ, lambda _mask: on_terminal(local))
        return theirs.detach()

    def _on_terminal(self, local: int) -> None:
        """The task has opened its terminal, or is gone."""
        if (own := self._offers.pop(local, None)) is None:
            return
        self._selector.unregister(own)
        with own:
            fd = receive_terminal(own)
        task = self._first_task + local
        if fd < 0:
            self._send(OutputFrame(self._node, task, 1, eof=True))
            self._close_when_done()
            return
        pipe = self._pipes[fd] = _Pipe(fd, task, 1)
        if not self._paused:
            self._watch(pipe)
        self._input.use_terminal(local, os.dup(fd))

    def task_ended(self, local: int, exit_status: int) -> None:
        """Tell the reader how a task ended: its exit code, or the negated signal number."""
        self._input.leave(local)
        self._ranks.end(local)
        self._send(OutputFrame(self._node, self._first_task + local, 0, exit_status=exit_status))

    def last_words(self) -> str:
        """None: its reader has them."""
        return ""

    def deliver(self) -> None:
        """The tasks have ended: send what is left. Until the step is over a connection that is cut can be made again."""
        if self._delivered_by_us:
            return
        self._delivered_by_us = boot_us() + _LINGER_US
        for pipe in tuple(self._pipes.values()):
            self._drain(pipe)
        if self._pipes or self._offers:
            # A process that is none of the step's has them.
            self._connection.ask()
        self._close_when_done()
        if not self._connection.is_delivered:
            self._at(self._delivered_by_us, self._on_delivered)

    @property
    def is_delivered(self) -> bool:
        """Check whether the command has all of the output, or is not waited for any longer."""
        is_late = boot_us() >= self._delivered_by_us and not self._connection.is_away
        return is_late or self._connection.is_delivered

    def hurry(self) -> None:
        """Do not wait for a command whose connection is cut."""
        if self._connection.is_away:
            self._connection.close()
            self._on_delivered()

    def _drain(self, pipe: _Pipe) -> None:
        for _ in range(_DRAINS_MAX):
            if self._paused or not self._on_pipe(pipe):
                break

    def finish(self) -> None:
        """The step is over: pass on what its pipes still hold, then close."""
        self._finished = True
        self._at(boot_us() + _LINGER_US, self._close)
        self._close_when_done()

    def drop(self) -> None:
        """Close everything now, and say nothing more: the step ends for another reason."""
        self._finished = True
        self._close()

    def _grant_input(self, count: int) -> None:
        self._send(OutputFrame(self._node, -1, 0, input_bytes=count))

    def _pass_on(self, local: int, data: bytes) -> None:
        self._send(OutputFrame(self._node, self._first_task + local, MPI_STREAM, data))

    def _at(self, due_us: int, callback: Callable[[], None]) -> None:
        self._timers.at(due_us, self._guard.wrap(self._step, callback))

    def _watch(self, pipe: _Pipe) -> None:
        on_pipe = self._guard.wrap(self._step, self._on_pipe)
        self._selector.register(pipe.fd, selectors.EVENT_READ, lambda _mask: on_pipe(pipe))

    def _on_pipe(self, pipe: _Pipe) -> bool:
        """Take what is there; False when that is nothing."""
        if pipe.fd not in self._pipes or self._paused:
            return False
        try:
            data = os.read(pipe.fd, _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            # A terminal that no process has open any more.
            data = b""
        if data:
            self._send(OutputFrame(self._node, pipe.task, pipe.stream, data))
            return True
        self._selector.unregister(pipe.fd)
        os.close(pipe.fd)
        del self._pipes[pipe.fd]
        self._send(OutputFrame(self._node, pipe.task, pipe.stream, eof=True))
        self._close_when_done()
        return False

    def _send(self, frame: OutputFrame) -> None:
        self._connection.send(frame)
        if self._connection.is_full and not self._paused:
            self._paused = True
            self._ranks.pause()
            for fd in self._pipes:
                self._selector.unregister(fd)

    def take(self, frame: InputFrame) -> None:
        """See `output_connection.Owner`."""
        if frame.mpi_rank is not None:
            self._ranks.give(frame.mpi_rank - self._first_task, frame.data)
        else:
            self._input.take(frame)

    def on_sent(self) -> None:
        """See `output_connection.Owner`."""
        if self._paused and self._connection.has_room:
            self._resume()
        if self._delivered_by_us and not self._finished and self._connection.is_delivered:
            self._on_delivered()

    def _resume(self) -> None:
        self._paused = False
        self._ranks.resume()
        for pipe in self._pipes.values():
            self._watch(pipe)

    def on_gone(self, why: str) -> None:
        """See `output_connection.Owner`."""
        self._input.close()
        self._ranks.close()
        if self._paused:
            self._resume()
        if self._delivered_by_us:
            self._on_delivered()
        elif not self._finished:
            self._on_broken(why)

    def _close_when_done(self) -> None:
        if (self._finished or self._delivered_by_us) and not self._pipes and not self._offers:
            self._connection.end()

    def _close(self) -> None:
        self._connection.close()
        self._input.close()
        self._ranks.close()
        for own in self._offers.values():
            self._selector.unregister(own)
            own.close()
        self._offers.clear()
        for fd in self._pipes:
            if not self._paused:
                self._selector.unregister(fd)
            os.close(fd)
        self._pipes.clear()
