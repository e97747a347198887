"""A daemon's door for machines that watch it: GET /metrics and GET /health over HTTP, on the daemon's own event loop.

On the loop, not beside it: a daemon whose loop stands still does not answer, and that is the truth. Invariants: what is
served is in memory (a page is made at most once in `PAGE_KEPT_S`); connections, their requests, their time and what waits
for a slow reader are bounded; connections that say nothing cannot keep others out; nothing can be changed here, and nothing
of jobs or users is told.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from typing import NamedTuple, cast

from eslurm.telemetry.exposition import CONTENT_TYPE, address

log = logging.getLogger("eslurm.status")

PAGE_KEPT_S = 1.0
REQUEST_BYTES_MAX = 8_192
CONNECTIONS_MAX = 64
IDLE_S = 60.0
"""Longer than most scrapers wait between two looks. A request that takes longer to arrive, or an answer to be read, ends
the connection."""
BIND_AGAIN_S = 2.0

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class DoorCounts:
    """What the doors of this process have cost so far, for metrics."""

    def __init__(self) -> None:
        self.cpu_s = 0.0


counts = DoorCounts()


class Health(NamedTuple):
    """Whether a daemon does its duty, in one line for people."""

    is_well: bool
    line: str


class StatusDoor:
    """Serves `page()` and `health()`. Make it inside the running loop; both are called on it and must be quick."""

    def __init__(self, page: Callable[[], bytes], health: Callable[[], Health]) -> None:
        self._make_page = page
        self._health = health
        self._loop = asyncio.get_running_loop()
        self._page = b""
        self._page_until_s = 0.0
        # In the order of their last requests.
        self._connections: dict[_Connection, None] = {}
        # The loop keeps only a weak reference.
        self._server: asyncio.Server | None = None
        self.endpoint = ""
        """Where it listens, once it does."""

    async def start(self, listen: str) -> None:
        """Listen at HOST:PORT. Raises OSError that names the address, ValueError when it is none."""
        host, port = address(listen)
        try:
            self._server = await self._loop.create_server(lambda: _Connection(self), host, port)
        except OSError as error:
            # The loop's own text says the address once more, and not as people write it.
            why = os.strerror(error.errno) if error.errno else error
            raise OSError(f"--metrics-listen: cannot listen at {listen}: {why}") from None
        found = self._server.sockets[0].getsockname()
        self.endpoint = f"[{found[0]}]:{found[1]}" if ":" in found[0] else f"{found[0]}:{found[1]}"
        log.info("metrics at http://%s/metrics", self.endpoint)

    async def keep_trying(self, listen: str) -> None:
        """The same for one whose duty does not wait for it: an address that is taken is tried until it is free."""
        told = ""
        while True:
            try:
                await self.start(listen)
                return
            except OSError as error:
                if str(error) != told:
                    told = str(error)
                    log.warning("no metrics yet: %s", error)
                await asyncio.sleep(BIND_AGAIN_S)

    async def stop(self) -> None:
        """Close the door and what came through it."""
        if self._server is not None:
            self._server.close()
            for connection in list(self._connections):
                connection.abort()
            await self._server.wait_closed()
            self._server = None

    # ---- for connections ----

    def admit(self, connection: _Connection) -> None:
        """Take one more; the one without a request for longest makes room: a scraper connects again."""
        if len(self._connections) >= CONNECTIONS_MAX:
            next(iter(self._connections)).abort()
        self._connections[connection] = None

    def on_request(self, connection: _Connection) -> None:
        """It has asked something."""
        if connection in self._connections:
            del self._connections[connection]
            self._connections[connection] = None

    def leave(self, connection: _Connection) -> None:
        """It has ended."""
        self._connections.pop(connection, None)

    def answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        """Status, content type and body."""
        if method not in ("GET", "HEAD"):
            return 405, "text/plain", b"only GET is answered here\n"
        match path.partition("?")[0]:
            case "/metrics":
                return 200, CONTENT_TYPE, self._current_page()
            case "/health":
                health = self._health()
                return (
                    200 if health.is_well else 503,
                    "text/plain; charset=utf-8",
                    f"{health.line}\n".encode(),
                )
            case _:
                return 404, "text/plain", b"look at /metrics or /health\n"

    def _current_page(self) -> bytes:
        now_s = self._loop.time()
        if now_s >= self._page_until_s:
            self._page = self._make_page()
            self._page_until_s = self._loop.time() + PAGE_KEPT_S
        return self._page


class _Connection(asyncio.Protocol):
    """One HTTP/1 connection: a request at a time, no bodies."""

    def __init__(self, door: StatusDoor) -> None:
        self._door = door
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._is_paused = False
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is none by inheritance.
        self._transport = cast(asyncio.Transport, transport)
        self._door.admit(self)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.leave(self)
        if self._idle is not None:
            self._idle.cancel()

    def data_received(self, data: bytes) -> None:
        began_s = time.thread_time()
        self._take(data)
        counts.cpu_s += time.thread_time() - began_s

    def pause_writing(self) -> None:
        # A peer that asks and asks, and reads nothing: its next request is read when the last answer is.
        self._is_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_paused = False
        self._take(b"")
        if self._transport is not None and not self._is_paused and not self._is_closing:
            self._transport.resume_reading()

    def _take(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received and not self._is_closing and not self._is_paused:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            self._on_request(head)
        if len(self._received) > REQUEST_BYTES_MAX and not self._is_closing and not self._is_paused:
            self._write(400, "text/plain", b"the request is too long\n", "GET", keep=False)

    def abort(self) -> None:
        """End it, whether or not the peer has read everything."""
        self._door.leave(self)
        if self._transport is not None:
            self._transport.abort()

    @property
    def _is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _wait(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self._loop.call_later(IDLE_S, self.abort)

    def _on_request(self, head: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._write(400, "text/plain", b"this is no HTTP request\n", "GET", keep=False)
            return
        method, path, version = words
        fields = [line.lower().replace(" ", "") for line in lines[1:]]
        has_body = any(field.startswith(("content-length:", "transfer-encoding:")) for field in fields)
        keep = version == "HTTP/1.1" and "connection:close" not in fields and not has_body
        self._wait()
        self._door.on_request(self)
        self._write(*self._door.answer(method, path), method, keep=keep)

    def _write(self, status: int, kind: str, body: bytes, method: str, *, keep: bool) -> None:
        if self._transport is None:
            return
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            f"{'' if keep else 'Connection: close' + chr(13) + chr(10)}\r\n"
        )
        self._transport.write(head.encode() + (b"" if method == "HEAD" else body))
        if not keep:
            self._transport.close()
