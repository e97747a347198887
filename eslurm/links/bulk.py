"""The bulk lane of a link: large items, paid for with the receiver's credits.

Invariant: bytes written and not yet paid back never exceed the receiver's window by more than one frame, so the
control lane, which shares the connection, never waits behind more than that. Frames go out in call order.
"""

from __future__ import annotations

import asyncio
from collections import deque

from eslurm.ports.link import LinkClosed
from eslurm.transport.streams import Stream


class BulkLane:
    """Frames that wait for credit, and the account of what the peer may send us."""

    def __init__(self, window_bytes: int) -> None:
        self._window_bytes = window_bytes
        self._waiting: deque[tuple[bytes, asyncio.Future[None]]] = deque()
        self._wake = asyncio.Event()
        self._credit_bytes = 0
        self._owed_bytes = 0
        self._ended = ""
        self.granted = asyncio.Event()
        self.stream: Stream | None = None

    def attach(self, stream: Stream) -> None:
        """The lane is open."""
        self.stream = stream
        self._wake.set()

    def on_credit(self, count_bytes: int) -> None:
        """The peer grants this many more bytes."""
        self._credit_bytes += count_bytes
        self.granted.set()
        self._wake.set()

    def on_consumed(self, count_bytes: int) -> int:
        """A frame was consumed. Returns the credit to grant now: zero until a quarter of the window is owed."""
        self._owed_bytes += count_bytes
        if self._owed_bytes * 4 < self._window_bytes:
            return 0
        grant, self._owed_bytes = self._owed_bytes, 0
        return grant

    async def send(self, frame: bytes) -> None:
        """Return when the frame was handed to the transport. Raises `LinkClosed`."""
        if self._ended:
            raise LinkClosed(self._ended)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((frame, done))
        self._wake.set()
        await done

    def end(self, reason: str) -> None:
        """End the lane; every waiter gets the reason."""
        self._ended = reason
        for _frame, done in self._waiting:
            if not done.done():
                done.set_exception(LinkClosed(reason))
        self._waiting.clear()

    async def write_loop(self) -> None:
        """Write what is waiting as credit allows, for ever. Raises `StreamLost`."""
        while True:
            if self.stream is None or not self._waiting or self._credit_bytes <= 0:
                self._wake.clear()
                await self._wake.wait()
                continue
            frame, done = self._waiting[0]
            if not done.done():
                self._credit_bytes -= len(frame)
                await self.stream.write(frame)
            if self._waiting:
                self._waiting.popleft()
            if not done.done():
                done.set_result(None)
