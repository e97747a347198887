"""The nodes of a step at the end of its command: connections, and the node behind them, which may have one after the other.

Invariants: the frames of both directions are taken once and in order, through all connections of a node (`KeptFrames`); none
of its connections counts before its peer has proven the cookie, a later one not before it has sent back a fresh number.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from eslurm.ports.step_runner import INPUT_DONE, NONCE_BYTES, InputFrame, OutputHello
from eslurm.security.step_frames import KeptFrames
from eslurm.security.step_stream import StreamOpener, StreamSealer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import TypeAlias

    from eslurm.core.model.step_input import TerminalSize

    Source: TypeAlias = tuple[int, str]
    """(number of a step, node): each part of a step over several parts of a job has a number, and parts may share a node."""

AWAY_S = 65.0
"""A node whose connection was cut is lost after this time: a little more than it looks for this command."""
_QUEUE_BYTES_MAX = 4 * 1024 * 1024
_SEALED_BYTES_MAX = 256 * 1024
_SHOWN_BYTES = 1024 * 1024
"""So much that was shown is acknowledged at once."""

_encode = msgspec.msgpack.Encoder().encode


class Claim(NamedTuple):
    """A connection that says that it is a later one of a node: the number that it has to send back, and its position."""

    node: StepNode
    nonce: bytes
    received: int


class Connection:
    """One socket of a supervisor, or of what may be none; `node` is set once it counts. `read` takes what has come."""

    def __init__(
        self,
        connection: socket.socket,
        cookie: bytes,
        selector: selectors.BaseSelector,
        read: Callable[[Connection], None],
    ) -> None:
        self.socket = connection
        self.stream = StreamOpener(cookie)
        self.node: StepNode | None = None
        self.claim: Claim | None = None
        self.position = 0
        """Of the next frame that comes."""
        self.opened_s = time.monotonic()
        self._selector = selector
        self._read = read
        self._sealer: StreamSealer | None = None
        self._queue = bytearray()

    @property
    def is_idle(self) -> bool:
        """Check whether the network has taken all that was sent."""
        return not self._queue

    def send(self, frame: InputFrame) -> None:
        """Send a frame that is not kept."""
        self.queue(_encode(frame))
        self.flush()

    def queue(self, body: bytes) -> None:
        """Add a frame to what is sent next. The peer must have proven itself."""
        if self._sealer is None:
            self._sealer = self.stream.back()
        self._queue += self._sealer.seal(body)

    def on_ready(self, mask: int) -> None:
        """Read, or write on."""
        if mask & selectors.EVENT_WRITE:
            if self.node is not None:
                self.node.flush()
            else:
                self.flush()
        if mask & selectors.EVENT_READ:
            self._read(self)

    def flush(self) -> None:
        """Send what the network takes now."""
        kept = self.node.kept if self.node is not None else None
        while kept is not None and len(self._queue) < _SEALED_BYTES_MAX and (body := kept.take()) is not None:
            self.queue(body)
        try:
            del self._queue[: self.socket.send(self._queue)]
        except BlockingIOError:
            pass
        except OSError:
            # Reading tells that it is gone.
            self._queue.clear()
        rest = len(self._queue) + (kept.unsent_bytes if kept is not None else 0)
        with contextlib.suppress(KeyError, ValueError):
            # A node that does not take answers gets no more of them.
            reads = selectors.EVENT_READ if rest <= _QUEUE_BYTES_MAX else 0
            writes = selectors.EVENT_WRITE if rest else 0
            self._selector.modify(self.socket, reads | writes, self.on_ready)


class StepNode:
    """A node of the step. It takes input if its hello says so, and has a connection unless that was cut."""

    def __init__(self, source: Source, connection: Connection, hello: OutputHello) -> None:
        self.source = source
        self.connection: Connection | None = connection
        self.resumes = hello.resumes
        self.kept = KeptFrames()
        self.received = 0
        """Number of frames that it has sent and that were taken."""
        self.is_last = False
        """No frame follows."""
        self.away_s = 0.0
        self._unshown_bytes = 0
        self._reads = hello.input_bytes > 0
        self._granted = hello.input_bytes
        self._sent = 0
        connection.node = self
        if self.resumes:
            connection.send(InputFrame(ack=0))
        else:
            self.kept.keep_none()

    @property
    def takes_input(self) -> bool:
        """Check whether a task of its node may still read."""
        return self._reads

    @property
    def room(self) -> int:
        """The number of bytes of input that may be passed on now: none before the network has taken the last ones."""
        is_idle = self.connection is not None and self.connection.is_idle and not self.kept.has_unsent
        return self._granted - self._sent if is_idle else 0

    def grant(self, count: int) -> None:
        """The node takes so many bytes in all; `INPUT_DONE`: no more."""
        if count == INPUT_DONE:
            self._reads = False
        else:
            self._granted = max(self._granted, count)

    def open_back(self) -> None:
        """Prove the cookie to a node that has no acknowledgement for that: it is told something from now on."""
        if not self.resumes:
            # Of this alone, which is short.
            self._send(InputFrame())

    def give(self, rank: int, data: bytes) -> None:
        """Hold an answer to the MPI library of a rank for the next `flush`."""
        self.kept.add(_encode(InputFrame(data, mpi_rank=rank)))

    def pass_on(self, data: bytes, *, eof: bool = False) -> None:
        """Send bytes of input, and with `eof` their end."""
        self._sent += len(data)
        self._send(InputFrame(data, eof))

    def resize(self, size: TerminalSize) -> None:
        """Tell the new size of the terminal."""
        self._send(InputFrame(size=size))

    def flush(self) -> None:
        """Send what the network takes now."""
        if self.connection is not None:
            self.connection.flush()

    def _send(self, frame: InputFrame) -> None:
        self.kept.add(_encode(frame))
        self.flush()

    # ---- positions ----

    def is_next(self, connection: Connection) -> bool:
        """Take note of a frame of the connection; False for one that an earlier connection has brought."""
        connection.position += 1
        if connection.position <= self.received:
            return False
        self.received += 1
        return True

    def shown(self, count: int, *, at_once: bool) -> None:
        """Frames of so many bytes were shown: acknowledge them, at once or with later ones."""
        self._unshown_bytes += count
        is_due = at_once or self._unshown_bytes >= _SHOWN_BYTES
        if self.resumes and is_due and self.connection is not None:
            self._unshown_bytes = 0
            self.connection.send(InputFrame(ack=self.received))

    def challenge(self, connection: Connection, received: int) -> None:
        """A connection says that it is a later one of this node, which has that many frames: let it prove that."""
        connection.claim = Claim(self, os.urandom(NONCE_BYTES), received)
        connection.position = self.received
        connection.send(InputFrame(ack=self.received, nonce=connection.claim.nonce))

    def resume(self, connection: Connection, received: int) -> None:
        """Go on with a later connection. Raises `BadPosition`."""
        self.kept.rewind(received)
        self.connection, connection.node, connection.claim = connection, self, None
        self.flush()

    def cut(self) -> None:
        """It has no connection for now."""
        self.connection = None
        self.away_s = time.monotonic()

    @property
    def is_lost(self) -> bool:
        """Check whether it has had none for too long."""
        return self.connection is None and time.monotonic() - self.away_s > AWAY_S
