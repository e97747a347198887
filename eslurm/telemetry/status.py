"""A daemon's HTTP server for monitoring: GET /metrics and GET /health, on the daemon's own event loop.

On the loop, not beside it: a daemon whose loop is blocked does not answer, and that is the truth. Invariants: pages come
from memory (made at most once in `PAGE_KEPT_S`); connections, their requests, their time and the buffers of slow readers
are bounded; silent connections cannot keep others out; nothing can be changed here, and no data of jobs or users is shown.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from typing import NamedTuple

from eslurm.core.model.endpoint import split_endpoint
from eslurm.telemetry.exposition import CONTENT_TYPE
from eslurm.telemetry.http import HttpError, HttpServer, Reply, Request

log = logging.getLogger("eslurm.status")

PAGE_KEPT_S = 1.0
REQUEST_TIMEOUT_S = 10.0
"""A request that takes longer to arrive, or an answer to be read, ends the connection."""
BIND_AGAIN_S = 2.0


class StatusCounts:
    """Costs of this process's HTTP servers so far, for metrics."""

    def __init__(self) -> None:
        self.cpu_s = 0.0


counts = StatusCounts()


class Health(NamedTuple):
    """State of a daemon's health, with one line of text."""

    is_well: bool
    line: str


class StatusServer:
    """Serves `page()` and `health()`. Make it inside the running loop; both are called on it and must be quick."""

    def __init__(self, page: Callable[[], bytes], health: Callable[[], Health]) -> None:
        self._make_page = page
        self._health = health
        self._loop = asyncio.get_running_loop()
        self._page = b""
        self._page_until_s = 0.0
        self._server = HttpServer(self._answer, lambda _error: None, REQUEST_TIMEOUT_S)
        self.endpoint = ""
        """Its endpoint, once it listens."""

    async def start(self, listen: str) -> None:
        """Listen at HOST:PORT. Raises OSError that names the address, ValueError when it is none."""
        host, port = split_endpoint(listen)
        try:
            self.endpoint = await self._server.start(host, port)
        except OSError as error:
            # The loop's own text says the address once more, and not as people write it.
            why = os.strerror(error.errno) if error.errno else error
            raise OSError(f"--metrics-listen: cannot listen at {listen}: {why}") from None
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
        """Close the server and its connections."""
        await self._server.close()

    async def _answer(self, request: Request) -> Reply:
        began_s = time.thread_time()
        try:
            return self._find(*request.head.line[:2])
        finally:
            counts.cpu_s += time.thread_time() - began_s

    def _find(self, method: str, path: str) -> Reply:
        if method not in ("GET", "HEAD"):
            raise HttpError(405, "only GET is answered here", "Allow: GET, HEAD\r\n")
        match path.partition("?")[0]:
            case "/metrics":
                return Reply(200, self._current_page(), CONTENT_TYPE)
            case "/health":
                health = self._health()
                return Reply(200 if health.is_well else 503, f"{health.line}\n".encode())
            case _:
                raise HttpError(404, "look at /metrics or /health")

    def _current_page(self) -> bytes:
        now_s = self._loop.time()
        if now_s >= self._page_until_s:
            self._page = self._make_page()
            self._page_until_s = self._loop.time() + PAGE_KEPT_S
        return self._page
