"""The command's end of a step's streams: one connection from each node's supervisor, whose output is shown line by line.

The messages are those of `eslurm.ports.step_runner`, in the frames of `eslurm.security.step_stream`. Invariants: nothing
is shown that is not under the step's cookie; unproven connections are bounded in number and time; a line of one task is
never torn by another task's; the buffer of an unfinished line is bounded; what a node sends is shown once, also when its
connection is cut and made again (`step_node`).
"""

from __future__ import annotations

import contextlib
import hmac
import selectors
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from escli.user.step_node import Connection, StepNode
from eslurm.ports.step_runner import MPI_STREAM, OutputFrame, OutputHello
from eslurm.security.step_frames import COST_BYTES, BadPosition
from eslurm.security.step_stream import ATTACHED, BadStream

if TYPE_CHECKING:
    from _typeshed import HasFileno

    from escli.user.pmi.program import Failure
    from escli.user.step_attached import Attachments
    from escli.user.step_ends import TaskEnd
    from escli.user.step_input import Taker
    from escli.user.step_mpi import StepMpi
    from escli.user.step_node import Source

_UNPROVEN_MAX = 256
"""Connections that have not shown the cookie yet, besides one of each node: any process that reaches the port may make
some."""
_LINE_BYTES_MAX = 64 * 1024
_READ_BYTES = 256 * 1024
_HELLO_TIMEOUT_S = 10.0
_BACKLOG = 4096
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 8),
)
"""A host that has died says nothing: a job may go on without it, and then its step has to end after three minutes."""

_decode_hello = msgspec.msgpack.Decoder(OutputHello).decode
_decode_frame = msgspec.msgpack.Decoder(OutputFrame).decode


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
        self._connections: dict[int, Connection] = {}
        self._nodes: dict[Source, StepNode] = {}
        """Those that have proved themselves and are not gone."""
        self._former: dict[Source, StepNode] = {}
        """Those that have finished. One may not have heard that its last frames have come."""
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
        return frozenset(self._nodes.keys() | self.finished | self.lost)

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
        return [one for one in self._nodes.values() if one.takes_input]

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
        for node in [one for one in self._nodes.values() if one.is_lost]:
            self._settle(node)

    def close(self) -> None:
        """Close everything; supervisors take a closed connection as the order to end their tasks, as no other one can be
        made.
        """
        self._listener.close()
        for connection in list(self._connections.values()):
            self._forget(connection)
        if self._attached is not None:
            self._attached.close()
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
        connection = Connection(accepted, self._cookie, self._selector, self._read)
        self._connections[accepted.fileno()] = connection
        self._selector.register(accepted, selectors.EVENT_READ, connection.on_ready)

    def _read(self, connection: Connection) -> None:
        if connection.socket.fileno() not in self._connections:
            return
        try:
            data = connection.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._cut(connection)
            return
        shown, is_due = 0, False
        try:
            for body in connection.stream.feed(data):
                if connection.stream.purpose is ATTACHED:
                    self._attach(connection, body)
                    return
                node = connection.node
                if node is None:
                    self._begin(connection, body)
                    continue
                frame = _decode_frame(body)
                if frame.ack is not None:
                    node.kept.acknowledge(frame.ack)
                elif node.is_next(connection):
                    self._frame(node, frame)
                    shown += len(body) + COST_BYTES
                    # What is of no task is a grant, a question or the last one.
                    is_due |= frame.task < 0
            if shown and connection.node is not None:
                connection.node.shown(shown, at_once=is_due)
            if self._mpi is not None:
                self._mpi.answer()
        except BadStream:
            self._cut(connection)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, BadPosition, _BadConnectionError):
            node = connection.node
            self._forget(connection)
            if node is not None:
                self._settle(node)

    def _begin(self, connection: Connection, body: bytes) -> None:
        """One of the first messages of a connection, until it is that of a node."""
        if connection.claim is None:
            self._hello(connection, _decode_hello(body))
        else:
            self._resume(connection, _decode_frame(body))

    def _attach(self, connection: Connection, body: bytes) -> None:
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

    def _hello(self, connection: Connection, hello: OutputHello) -> None:
        source = hello.key.step, hello.node_name
        known = self._nodes.get(source) or self._former.get(source)
        if known is not None and known.resumes and hello.resumes:
            known.challenge(connection, hello.received)
            return
        if source not in self._unreported or source in self.connected:
            raise _BadConnectionError
        node = self._nodes[source] = StepNode(source, connection, hello)
        if self._mpi is not None:
            self._mpi.hello(hello.node_name, hello.mpi)
        if self._mpi is not None or node.takes_input:
            node.open_back()

    def _resume(self, connection: Connection, frame: OutputFrame) -> None:
        claim = connection.claim
        if claim is None or not hmac.compare_digest(frame.nonce, claim.nonce):
            raise _BadConnectionError
        node = claim.node
        if self._nodes.get(node.source) is not node:
            # It was given up meanwhile, or has finished, and knows that now.
            raise _BadConnectionError
        if node.connection is not None:
            # The end of the former one has not been noticed here.
            self._forget(node.connection)
        node.resume(connection, claim.received)

    def _frame(self, node: StepNode, frame: OutputFrame) -> None:
        source = node.source
        if self._attached is not None and (frame.stream in (1, 2) or frame.exit_status is not None):
            self._attached.show(frame)
        if frame.input_bytes is not None:
            node.grant(frame.input_bytes)
        elif frame.is_last:
            node.is_last = True
        elif frame.exit_status is not None:
            if frame.task not in self.statuses:
                self.statuses[frame.task] = frame.exit_status
                self._ends.append((frame.task, source[1], frame.exit_status))
                self._unreported[source] -= 1
                if self._mpi is not None:
                    self._mpi.ended(frame.task)
        elif frame.stream == MPI_STREAM:
            if self._mpi is None or not self._mpi.take(node, frame.task, frame.data):
                raise _BadConnectionError
        elif frame.eof:
            self._writer.end(frame.task, frame.stream)
        else:
            self._writer.write(frame.task, frame.stream, frame.data)

    def _cut(self, connection: Connection) -> None:
        """The connection has ended. Its node may come back, unless it has said that this is all."""
        self._forget(connection)
        node = connection.node
        if node is None:
            return
        if node.resumes and not node.is_last:
            node.cut()
        else:
            self._settle(node)

    def _settle(self, node: StepNode) -> None:
        """Nothing more comes from the node."""
        if self._nodes.pop(node.source, None) is None:
            return
        if node.connection is not None:
            self._forget(node.connection)
        done = self._unreported[node.source] <= 0
        (self.finished if done else self.lost).add(node.source)
        if done:
            self._former[node.source] = node

    def _forget(self, connection: Connection) -> None:
        if self._connections.pop(connection.socket.fileno(), None) is None:
            return
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.socket)
        connection.socket.close()

    def _drop_silent(self) -> None:
        oldest_s = time.monotonic() - _HELLO_TIMEOUT_S
        unproven = [connection for connection in self._connections.values() if connection.node is None]
        too_many = len(unproven) - _UNPROVEN_MAX - len(self._unreported)
        for at, connection in enumerate(unproven):
            if at < too_many or connection.opened_s < oldest_s:
                self._forget(connection)


class _BadConnectionError(Exception):
    """A connection that is not one of the step's supervisors, or does not speak their language."""
