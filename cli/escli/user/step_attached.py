"""Commands that are attached to a step, at the end of the step's own command: each gets a copy of the output from then on.

Invariants: nothing is read from one of them but its first message, which is under the step's secret; one that reads slowly
holds up neither this command nor a task, for what waits for it is bounded and then it is cut off; their number is bounded.
"""

from __future__ import annotations

import select
import selectors
from typing import TYPE_CHECKING

import msgspec

from eslurm.core.model.step_attach import (
    ATTACHED_MAX,
    BEHIND_BYTES_MAX,
    AttachFrame,
    AttachHello,
    AttachWelcome,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from eslurm.ports.step_runner import OutputFrame
    from eslurm.security.step_stream import StreamOpener, StreamSealer

_STALLED_S = 0.5
"""At the end of a step one that takes nothing for so long gets no more."""
_MIB = 1024 * 1024
_BEHIND = (
    f"{BEHIND_BYTES_MAX // _MIB} MiB of output were waiting to be read: attach with > FILE, or filter it"
)

_encode = msgspec.msgpack.Encoder().encode
_decode_hello = msgspec.msgpack.Decoder(AttachHello).decode


class _Attached:
    """One of them. It is closed once all is sent, if nothing more is to come."""

    def __init__(self, connection: socket.socket, sealer: StreamSealer, hello: AttachHello) -> None:
        self.socket = connection
        self.hello = hello
        self.queue = bytearray()
        self.is_last = False
        self._sealer = sealer

    def add(self, body: bytes) -> None:
        self.queue += self._sealer.seal(body)

    def end(self, why: str) -> None:
        """Add the last frame."""
        self.is_last = True
        self.add(_encode(AttachFrame(-1, 0, end=why)))


class Attachments:
    """All that are attached to one step. Their sockets are watched by `selector`, whose owner calls what it holds."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._all: dict[int, _Attached] = {}

    def add(
        self,
        connection: socket.socket,
        stream: StreamOpener,
        body: bytes,
        tasks: int,
        statuses: Mapping[int, int],
    ) -> None:
        """Take over the connection of one that has proven itself by this first message. Raises MsgspecError."""
        hello = _decode_hello(body)
        one = _Attached(connection, stream.back(), hello)
        refused = ""
        if len(self._all) >= ATTACHED_MAX:
            refused = f"{ATTACHED_MAX} commands are attached to it, the most there may be: end one of them"
        one.add(_encode(AttachWelcome(tasks, tuple(statuses.items()), refused)))
        if refused:
            # It fits the empty buffer of a new connection.
            self._send(one)
            connection.close()
            return
        self._all[connection.fileno()] = one
        self._selector.register(connection, selectors.EVENT_READ, lambda mask: self._on_ready(one, mask))
        self._flush(one)

    def show(self, frame: OutputFrame) -> None:
        """Pass on a frame of the step's output, or the end of a task."""
        if not self._all:
            return
        body = _encode(AttachFrame(frame.task, frame.stream, frame.data, frame.eof, frame.exit_status))
        for one in list(self._all.values()):
            if one.is_last or (frame.exit_status is None and not one.hello.wants(frame.task, frame.stream)):
                continue
            one.add(body)
            if len(one.queue) > BEHIND_BYTES_MAX:
                one.end(_BEHIND)
            self._flush(one)

    def close(self) -> None:
        """The step is over: send the rest to those that take it, and close all connections."""
        poller = select.poll()
        waiting: dict[int, _Attached] = {}
        for number, one in self._all.items():
            self._selector.unregister(one.socket)
            if not one.is_last:
                one.end("")
            poller.register(one.socket, select.POLLOUT)
            waiting[number] = one
        while waiting and (ready := poller.poll(_STALLED_S * 1000)):
            for number, _ in ready:
                if not self._send(waiting[number]) or not waiting[number].queue:
                    poller.unregister(number)
                    del waiting[number]
        for one in self._all.values():
            one.socket.close()
        self._all.clear()

    def _on_ready(self, one: _Attached, mask: int) -> None:
        if one.socket.fileno() not in self._all:
            return
        if mask & selectors.EVENT_READ:
            # Its end, or what it was not asked for.
            self._forget(one)
        else:
            self._flush(one)

    def _flush(self, one: _Attached) -> None:
        if not self._send(one) or (one.is_last and not one.queue):
            self._forget(one)
            return
        writes = selectors.EVENT_WRITE if one.queue else 0
        self._selector.modify(
            one.socket, selectors.EVENT_READ | writes, lambda mask: self._on_ready(one, mask)
        )

    def _send(self, one: _Attached) -> bool:
        """Send what the network takes now; False when its end is gone."""
        try:
            del one.queue[: one.socket.send(one.queue)]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def _forget(self, one: _Attached) -> None:
        del self._all[one.socket.fileno()]
        self._selector.unregister(one.socket)
        one.socket.close()
