"""The command's end of a step's streams: one connection from each node's supervisor, whose output is shown line by line.

The messages are those of `eslurm.ports.step_runner`, in the frames of `eslurm.security.step_stream`. Invariants: nothing
is shown that is not under the step's cookie; unproven connections are bounded in number and time; a line of one task is
never torn by another task's; the buffer of an unfinished line is bounded.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

import msgspec

from eslurm.ports.step_runner import INPUT_DONE, MPI_STREAM, InputFrame, OutputFrame, OutputHello
from eslurm.security.step_stream import ATTACHED, BadStream, StreamOpener, StreamSealer

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import HasFileno

    from escli.user.pmi.program import Failure
    from escli.user.step_attached import Attachments
    from escli.user.step_ends import TaskEnd
    from escli.user.step_input import Taker
    from escli.user.step_mpi import StepMpi
    from eslurm.core.model.step_input import TerminalSize

_UNPROVEN_MAX = 256
"""Connections that have not shown the cookie yet, besides one of each node: any process that reaches the port may make
some."""
_LINE_BYTES_MAX = 64 * 1024
_READ_BYTES = 256 * 1024
_QUEUE_BYTES_MAX = 4 * 1024 * 1024
_HELLO_TIMEOUT_S = 10.0
_BACKLOG = 4096
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 8),
)
"""A host that has died says nothing: a job may go on without it, and then its step has to end after three minutes."""

_encode = msgspec.msgpack.Encoder().encode
_decode_hello = msgspec.msgpack.Decoder(OutputHello).decode
_decode_frame = msgspec.msgpack.Decoder(OutputFrame).decode


Source: TypeAlias = tuple[int, str]
"""(number of a step, node): each part of a step over several parts of a job has a number, and parts may share a node."""


class LineWriter:
    """Puts the output of many tasks onto two streams by whole lines, each with its task's label when asked for.

    Without labels the bytes of a task are shown as they are. A labelled line always has an end.
    """

    def __init__(
        self, out: BinaryIO, err: BinaryIO, *, label_width: int = 0, is_unbuffered: bool = False
    ) -> None:
        self._sinks = {1: out, 2: err}
        self.label_width = label_width
        self._is_unbuffered = is_unbuffered
        self._partial: dict[tuple[int, int], bytearray] = {}

    def write(self, task: int, stream: int, data: bytes) -> None:
        """Show the lines that `data` completes; hold the rest, unless the line grows too long."""
        held = self._partial.setdefault((task, stream), bytearray())
        held += data
        end = len(held) if self._is_unbuffered else held.rfind(b"\n") + 1
        if not end and len(held) > _LINE_BYTES_MAX:
            end = len(held)
        if end:
            self._show(task, stream, bytes(held[:end]))
            del held[:end]

    def end(self, task: int, stream: int) -> None:
        """The stream is complete: show what is held of it."""
        rest = self._partial.pop((task, stream), None)
        if rest:
            self._show(task, stream, bytes(rest))

    def flush(self) -> None:
        """Write the buffers of all tasks, and flush the streams."""
        for task, stream in sorted(self._partial):
            self.end(task, stream)
        for sink in self._sinks.values():
            sink.flush()

    def _show(self, task: int, stream: int, data: bytes) -> None:
        sink = self._sinks.get(stream)
        if sink is None:
            return
        if self.label_width:
            label = b"%*d: " % (self.label_width, task)
            data = b"".join([label + line + b"\n" for line in data.removesuffix(b"\n").split(b"\n")])
        sink.write(data)
        sink.flush()


class _Connection:
    """One supervisor's connection; `source` is set once it has proven itself. It takes input if its node does."""

    def __init__(
        self,
        connection: socket.socket,
        cookie: bytes,
        selector: selectors.BaseSelector,
        read: Callable[[], None],
    ) -> None:
        self.socket = connection
        self.stream = StreamOpener(cookie)
        self.source: Source | None = None
        self.opened_s = time.monotonic()
        self._selector = selector
        self._read_on = read
        self._sealer: StreamSealer | None = None
        self._reads = False
        self._granted = 0
        self._sent = 0
        self._queue = bytearray()

    @property
    def takes_input(self) -> bool:
        """Check whether a task of its node may still read."""
        return self._reads

    @property
    def room(self) -> int:
        """The number of bytes of input that may be passed on now: none before the network has taken the last ones."""
        return 0 if self._queue else self._granted - self._sent

    def grant(self, count: int) -> None:
        """The node takes so many bytes in all; `INPUT_DONE`: no more."""
        if count == INPUT_DONE:
            self._reads = False
        elif not self._reads and not self._granted:
            self.open_back()
            self._reads = True
            self._granted = count
        else:
            self._granted = max(self._granted, count)

    def open_back(self) -> None:
        """Prove the cookie to the node: it is told something from now on."""
        if self._sealer is None:
            self._sealer = self.stream.back()
            # Of this alone, which is short.
            self._send(InputFrame())

    def give(self, rank: int, data: bytes) -> None:
        """Hold an answer to the MPI library of a rank for the next `flush`."""
        if self._sealer is not None:
            self._queue += self._sealer.seal(_encode(InputFrame(data, mpi_rank=rank)))

    def pass_on(self, data: bytes, *, eof: bool = False) -> None:
        """Send bytes of input, and with `eof` their end."""
        self._sent += len(data)
        self._send(InputFrame(data, eof))

    def resize(self, size: TerminalSize) -> None:
        """Tell the new size of the terminal."""
        self._send(InputFrame(size=size))

    def on_ready(self, mask: int) -> None:
        """Read, or write on."""
        if mask & selectors.EVENT_WRITE:
            self.flush()
        if mask & selectors.EVENT_READ:
            self._read_on()

    def _send(self, frame: InputFrame) -> None:
        if self._sealer is not None:
            self._queue += self._sealer.seal(_encode(frame))
            self.flush()

    def flush(self) -> None:
        """Send what the network takes now."""
        try:
            del self._queue[: self.socket.send(self._queue)]
        except BlockingIOError:
            pass
        except OSError:
            # Reading tells that it is gone.
            self._queue.clear()
        with contextlib.suppress(KeyError, ValueError):
            # A node that does not take answers gets no more of them.
            reads = selectors.EVENT_READ if len(self._queue) <= _QUEUE_BYTES_MAX else 0
            writes = selectors.EVENT_WRITE if self._queue else 0
            self._selector.modify(self.socket, reads | writes, self.on_ready)


class StepOutput:
    """Listens for a step's nodes and collects their tasks' output and ends.

    `statuses` maps each task's rank to its exit code, or to the negated number of the signal that ended it. `finished` and
    `lost` hold the sources whose connection ended with all of their tasks reported, and without.
    """

    def __init__(self, host: str, cookie: bytes, writer: LineWriter, mpi: StepMpi | None = None) -> None:
        """`mpi` serves the tasks' MPI libraries; None: they have none."""
        self._mpi = mpi
        self._cookie = cookie
        self._writer = writer
        self._selector = selectors.EpollSelector()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listener.bind((host, 0))
        self._listener.listen(_BACKLOG)
        self._selector.register(self._listener, selectors.EVENT_READ, lambda _mask: self._accept())
        port = self._listener.getsockname()[1]
        self.endpoint = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._connections: dict[int, _Connection] = {}
        self._attached: Attachments | None = None
        self._unreported: dict[Source, int] = {}
        self.statuses: dict[int, int] = {}
        self.tasks = 0
        self._ends: list[TaskEnd] = []
        self.finished: set[Source] = set()
        self.lost: set[Source] = set()

    def expect(self, tasks: Mapping[Source, int]) -> None:
        """Set the sources of the step's output and the number of tasks of each."""
        self._unreported = dict(tasks)
        self.tasks = sum(tasks.values())

    @property
    def expected(self) -> frozenset[Source]:
        """All sources of the step's output."""
        return frozenset(self._unreported)

    @property
    def connected(self) -> frozenset[Source]:
        """The sources that have proved themselves so far."""
        live = {one.source for one in self._connections.values() if one.source is not None}
        return frozenset(live | self.finished | self.lost)

    def take_ends(self) -> list[TaskEnd]:
        """The tasks that have ended since the last call."""
        ends, self._ends = self._ends, []
        return ends

    @property
    def failure(self) -> Failure | None:
        """The reason why the tasks are to be ended, of an MPI program, once there is one."""
        return self._mpi.failure if self._mpi is not None else None

    @property
    def is_complete(self) -> bool:
        """Check whether each source has connected, or is gone again."""
        return self.connected >= self._unreported.keys()

    @property
    def takers(self) -> list[Taker]:
        """The nodes that take input."""
        return [one for one in self._connections.values() if one.takes_input]

    def watch(self, readable: HasFileno | int) -> None:
        """Let another descriptor interrupt `run_once`; it is not read."""
        self._selector.register(readable, selectors.EVENT_READ, lambda _mask: None)

    def unwatch(self, readable: HasFileno | int) -> None:
        """Undo `watch`."""
        self._selector.unregister(readable)

    def fileno(self) -> int:
        """Readable when `run_once` has something to handle."""
        return self._selector.fileno()

    def run_once(self, timeout_s: float) -> None:
        """Handle what has arrived, waiting at most `timeout_s` for something."""
        for key, mask in self._selector.select(timeout_s):
            key.data(mask)
        self._drop_silent()

    def close(self) -> None:
        """Close everything; supervisors take a closed connection as the order to end their tasks."""
        for connection in list(self._connections.values()):
            self._forget(connection)
        if self._attached is not None:
            self._attached.close()
        self._listener.close()
        self._selector.close()
        self._writer.flush()

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except OSError:
            return  # It went away again, or this process is out of descriptors: the next one may do better.
        accepted.setblocking(False)
        for level, option, value in _KEEPALIVE:
            accepted.setsockopt(level, option, value)
        connection = _Connection(accepted, self._cookie, self._selector, lambda: self._read(connection))
        self._connections[accepted.fileno()] = connection
        self._selector.register(accepted, selectors.EVENT_READ, connection.on_ready)

    def _read(self, connection: _Connection) -> None:
        if connection.socket.fileno() not in self._connections:
            return
        try:
            data = connection.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._ended(connection)
            return
        try:
            for body in connection.stream.feed(data):
                if connection.stream.purpose is ATTACHED:
                    self._attach(connection, body)
                    return
                if connection.source is not None:
                    self._frame(connection, connection.source, _decode_frame(body))
                else:
                    self._hello(connection, _decode_hello(body))
            if self._mpi is not None:
                self._mpi.answer()
        except (BadStream, msgspec.MsgspecError, UnicodeDecodeError, RecursionError, _BadConnectionError):
            self._ended(connection)

    def _attach(self, connection: _Connection, body: bytes) -> None:
        if self._attached is None:
            # Most steps have none.
            from escli.user.step_attached import Attachments

            self._attached = Attachments(self._selector)
        del self._connections[connection.socket.fileno()]
        self._selector.unregister(connection.socket)
        try:
            self._attached.add(connection.socket, connection.stream, body, self.tasks, self.statuses)
        except msgspec.MsgspecError:
            connection.socket.close()

    def _hello(self, connection: _Connection, hello: OutputHello) -> None:
        source = hello.key.step, hello.node_name
        if source not in self._unreported or source in self.connected:
            raise _BadConnectionError
        connection.source = source
        if self._mpi is not None:
            self._mpi.hello(hello.node_name, hello.mpi)
            connection.open_back()
        if hello.input_bytes > 0:
            connection.grant(hello.input_bytes)

    def _frame(self, connection: _Connection, source: Source, frame: OutputFrame) -> None:
        if self._attached is not None and frame.input_bytes is None and frame.stream != MPI_STREAM:
            self._attached.show(frame)
        if frame.input_bytes is not None:
            connection.grant(frame.input_bytes)
        elif frame.exit_status is not None:
            if frame.task not in self.statuses:
                self.statuses[frame.task] = frame.exit_status
                self._ends.append((frame.task, source[1], frame.exit_status))
                self._unreported[source] -= 1
                if self._mpi is not None:
                    self._mpi.ended(frame.task)
        elif frame.stream == MPI_STREAM:
            if self._mpi is None or not self._mpi.take(connection, frame.task, frame.data):
                raise _BadConnectionError
        elif frame.eof:
            self._writer.end(frame.task, frame.stream)
        else:
            self._writer.write(frame.task, frame.stream, frame.data)

    def _ended(self, connection: _Connection) -> None:
        self._forget(connection)
        if connection.source is not None:
            done = self._unreported[connection.source] <= 0
            (self.finished if done else self.lost).add(connection.source)

    def _forget(self, connection: _Connection) -> None:
        self._connections.pop(connection.socket.fileno(), None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.socket)
        connection.socket.close()

    def _drop_silent(self) -> None:
        oldest_s = time.monotonic() - _HELLO_TIMEOUT_S
        unproven = [connection for connection in self._connections.values() if connection.source is None]
        too_many = len(unproven) - _UNPROVEN_MAX - len(self._unreported)
        for at, connection in enumerate(unproven):
            if at < too_many or connection.opened_s < oldest_s:
                self._forget(connection)


class _BadConnectionError(Exception):
    """A connection that is not one of the step's supervisors, or does not speak their language."""
