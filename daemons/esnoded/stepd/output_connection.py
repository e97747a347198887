"""The connection from one step to the command that waits for it; made again when it is cut, without a gap or a repetition.

Invariants: what the command has not acknowledged is kept, and the owner is told to add no more while that is much; frames of
both directions are taken once and in order, through all connections; a command whose host says that it is gone, or that does
not come back in time, is given up. It is read on whether or not tasks take their input, so that its end is always
noticed. A command of an earlier release acknowledges nothing: its connection is the only one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
from collections.abc import Callable
from typing import Protocol

import msgspec

from eslurm.ports.step_runner import (
    NONCE_BYTES,
    InputFrame,
    OutputEndpoint,
    OutputFrame,
    OutputHello,
)
from eslurm.security.step_frames import BadPosition, KeptFrames
from eslurm.security.step_stream import BadStream, StreamOpener, StreamSealer
from eslurm.telemetry.clocks import boot_us
from esnoded.procd.credential import NotAllowed
from esnoded.stepd.connect import Connector
from esnoded.stepd.guard import Guard
from esnoded.stepd.input_window import TooMuch
from esnoded.stepd.processes import Processes
from esnoded.stepd.step import Step
from esnoded.stepd.timers import Timer, Timers
from esnoded.task.connect import CONNECT_S

AWAY_US = 60_000_000
"""Time for which a command whose connection is cut is looked for."""
KEPT_BYTES_MAX = 8 * 1024 * 1024
_READ_BYTES = 64 * 1024
_SEALED_BYTES_MAX = 256 * 1024
_CONNECT_US = round((CONNECT_S + 1) * 1_000_000)
_SILENT_US = 5_000_000
"""A command that has acknowledged nothing of so much for so long is of an earlier release."""
_AGAIN_MIN_US = 100_000
_AGAIN_MAX_US = 4_000_000
_REFUSED = os.strerror(errno.ECONNREFUSED)
"""The answer of a host on which nothing listens any more."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(InputFrame).decode


class Owner(Protocol):
    """The output of the step, whose calls these are; none of them is made from within a call of it."""

    def take(self, frame: InputFrame) -> None:
        """One frame of the command. Raises `TooMuch`."""

    def on_sent(self) -> None:
        """Something was sent, or acknowledged: there may be room."""

    def on_gone(self, why: str) -> None:
        """There is no connection any more, and there will be none."""


class OutputConnection:
    """`hello` is the first message of the first connection."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        timers: Timers,
        guard: Guard,
        processes: Processes,
        step: Step,
        endpoint: OutputEndpoint,
        hello: OutputHello,
        owner: Owner,
    ) -> None:
        self._selector = selector
        self._timers = timers
        self._guard = guard
        self._processes = processes
        self._step = step
        self._owner = owner
        self._hello = hello
        self._cookie = endpoint.cookie
        self._ready = guard.wrap(step, self._on_socket)
        self._kept = KeptFrames()
        self._received = 0
        self._is_resumable: bool | None = None
        """None: the command has not said anything yet."""
        self._silence: Timer | None = None
        self._is_ending = self._is_closed = False
        self._cut = ""
        """The reason for which the command is looked for; empty: it is not."""
        self._until_us = self._again_us = self._mark = 0
        self._attempt = 0
        self._connector: Connector | None = None
        self._socket: socket.socket | None = None
        self._has_spoken = False
        """Something was sent; of a later connection: the command has answered."""
        self._begin(hello)
        self._connect()

    # ---- what its owner does ----

    @property
    def is_full(self) -> bool:
        """Check whether nothing should be added for now."""
        return self._kept.held_bytes > KEPT_BYTES_MAX

    @property
    def is_delivered(self) -> bool:
        """Check whether the command has all that was sent, or cannot say so."""
        return self._is_closed or not self._is_resumable or not self._kept.held_bytes

    @property
    def is_away(self) -> bool:
        """Check whether the connection was cut, and is not there again."""
        return bool(self._cut)

    @property
    def has_room(self) -> bool:
        """Check whether much may be added again."""
        return self._kept.held_bytes < KEPT_BYTES_MAX // 2

    def ask(self) -> None:
        """Ask the command to acknowledge now what it has."""
        self.send(OutputFrame(self._hello.key.node, -1, 0, eof=True))

    def send(self, frame: OutputFrame) -> None:
        """Add a frame; it is dropped when there is no connection any more, or after the `end`."""
        if self._is_closed or self._is_ending:
            return
        self._kept.add(_encode(frame))
        self._want_write()
        if self.is_full and self._is_resumable is None and self._silence is None:
            self._silence = self._at(boot_us() + _SILENT_US, self._on_silence)

    def end(self) -> None:
        """Send what there is, then shut the connection, and wait for the command to close it."""
        if not self._is_ending:
            self.send(OutputFrame(self._hello.key.node, -1, 0, is_last=True))
            self._is_ending = True
            self._shut_when_sent()

    def close(self) -> None:
        """Close all now."""
        self._is_closed, self._cut = True, ""
        self._close_socket()
        self._kept.clear()

    # ---- one connection after the other ----

    def _begin(self, hello: OutputHello) -> None:
        """Prepare the first bytes of a connection, under a key of its own."""
        self._sealer = StreamSealer(self._cookie)
        self._back: StreamOpener = self._sealer.back()
        self._queue = bytearray(self._sealer.opening + self._sealer.seal(_encode(hello)))
        self._has_spoken = self._is_shut = False

    def _connect(self) -> None:
        self._attempt += 1
        attempt = self._attempt
        try:
            self._connector = self._processes.connect(self._step.key)
        except (OSError, NotAllowed) as error:
            why = str(error)
            self._at(0, lambda: self._give_up(why))
        else:
            self._selector.register(
                self._connector, selectors.EVENT_READ, self._guard.wrap(self._step, self._on_connector)
            )
            self._at(boot_us() + _CONNECT_US, lambda: self._on_deadline(attempt))

    def _on_connector(self, _mask: int) -> None:
        if self._connector is None:
            return
        try:
            connection = self._connector.take()
        except OSError as error:
            self._failed(error.strerror or str(error))
            return
        self._drop_connector()
        self._socket = connection
        self._selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, self._ready)

    def _on_deadline(self, attempt: int) -> None:
        is_made = self._socket is not None or self._connector is not None
        if attempt == self._attempt and not self._has_spoken and is_made and not self._is_closed:
            self._failed(f"no connection within {_CONNECT_US / 1e6:g} s")

    def _failed(self, why: str) -> None:
        """No connection was made, or it has not become one."""
        self._close_socket()
        if not self._cut:
            self._give_up(why)
        elif why == _REFUSED:
            self._give_up(self._cut)
        elif boot_us() >= self._until_us:
            self._give_up(f"{self._cut}, and none was made again within {AWAY_US / 1e6:g} s: {why}")
        else:
            self._connect_later()

    def _connect_later(self) -> None:
        """Connect: at once after one that has brought something forward, else after a while."""
        wait_us = self._again_us
        self._again_us = min(max(_AGAIN_MIN_US, 2 * wait_us), _AGAIN_MAX_US)
        self._at(min(boot_us() + wait_us, self._until_us) if wait_us else 0, self._connect_again)

    def _connect_again(self) -> None:
        if not self._is_closed and self._socket is None and self._connector is None:
            self._begin(msgspec.structs.replace(self._hello, received=self._received))
            self._connect()

    def _lose(self, why: str) -> None:
        """The connection is cut."""
        is_done = self._is_ending and self.is_delivered
        if self._cut or not self._is_resumable or is_done:
            self._failed(why)
            return
        self._close_socket()
        self._cut, self._until_us = why, boot_us() + AWAY_US
        self._connect_later()

    def _give_up(self, why: str) -> None:
        if self._is_closed:
            return
        self.close()
        self._owner.on_gone(why)

    def _drop_connector(self) -> None:
        if self._connector is not None:
            self._selector.unregister(self._connector)
            self._connector.close()
            self._connector = None

    def _close_socket(self) -> None:
        self._drop_connector()
        self._queue.clear()
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None

    # ---- bytes ----

    def _at(self, due_us: int, callback: Callable[[], None]) -> Timer:
        return self._timers.at(due_us, self._guard.wrap(self._step, callback))

    def _want_write(self) -> None:
        if self._socket is not None:
            self._selector.modify(self._socket, selectors.EVENT_READ | selectors.EVENT_WRITE, self._ready)

    def _on_socket(self, mask: int) -> None:
        if self._socket is None:
            return
        try:
            if mask & selectors.EVENT_READ:
                data = self._socket.recv(_READ_BYTES)
                if not data:
                    self._lose("the reader closed the connection")
                    return
                self._take(data)
                if self._socket is None:
                    return
            if mask & selectors.EVENT_WRITE:
                self._fill()
                if self._queue:
                    del self._queue[: self._socket.send(self._queue)]
                # Of a later connection the answer says that it is one.
                self._has_spoken |= not self._cut
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error.strerror or str(error))
            return
        if not self._queue and (self._cut or not self._kept.has_unsent):
            self._selector.modify(self._socket, selectors.EVENT_READ, self._ready)
        self._shut_when_sent()
        self._owner.on_sent()

    def _fill(self) -> None:
        """Seal what is sent next. A later connection sends nothing before it knows where the command is."""
        while not self._cut and len(self._queue) < _SEALED_BYTES_MAX:
            body = self._kept.take()
            if body is None:
                return
            self._queue += self._sealer.seal(body)

    def _shut_when_sent(self) -> None:
        # Where a later connection goes on is not known before its answer.
        is_sent = self._is_ending and not self._cut and not self._queue and not self._kept.has_unsent
        if is_sent and not self._is_shut and self._socket is not None:
            # Something may still come: closed with something unread, the connection would be reset, and output lost.
            self._is_shut = True
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def _take(self, data: bytes) -> None:
        before = self._received
        try:
            for body in self._back.feed(data):
                frame = _decode(body)
                if frame.ack is not None:
                    self._acknowledge(frame.ack, frame.nonce)
                elif self._cut:
                    raise BadPosition("a frame before the answer to the hello")
                else:
                    if self._is_resumable is None:
                        self._on_silence()
                    self._received += 1
                    self._owner.take(frame)
                if self._is_closed:
                    return
        except (
            BadStream,
            BadPosition,
            TooMuch,
            msgspec.MsgspecError,
            UnicodeDecodeError,
            RecursionError,
        ) as error:
            if self._cut:
                # At its place listens another one by now, or it is still to come.
                self._failed(f"the reader is not the one of before: {error}")
            else:
                self._give_up(f"the reader has sent what is no input: {error}")
            return
        if self._is_resumable and self._received > before and not self._is_shut:
            self._control(OutputFrame(self._hello.key.node, -1, 0, ack=self._received))

    def _control(self, frame: OutputFrame) -> None:
        self._queue += self._sealer.seal(_encode(frame))
        self._want_write()

    def _acknowledge(self, position: int, nonce: bytes) -> None:
        if self._cut:
            if len(nonce) != NONCE_BYTES:
                raise BadPosition(f"a nonce of {len(nonce)} bytes")
            self._kept.rewind(position)
            self._cut, self._has_spoken = "", True
            if position > self._mark:
                self._mark, self._again_us = position, 0
            self._control(OutputFrame(self._hello.key.node, -1, 0, nonce=nonce))
            self._owner.on_sent()
        elif self._is_resumable is not False:
            self._is_resumable = True
            self._kept.acknowledge(position)
            self._owner.on_sent()

    def _on_silence(self) -> None:
        """The command acknowledges nothing, so what is sent is gone."""
        self._silence = None
        if self._is_resumable is None:
            self._is_resumable = False
            self._kept.keep_none()
            self._owner.on_sent()
