"""Calls to the leading controller, wherever it is.

Invariant: a call goes to the API endpoint that answered last; when that is silent, the others are asked for a leader
before the next call, each for `probe_s` at most.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from eslurm.api.methods import Method, ReplyT, RequestT
from eslurm.ports.api import ApiRefused, ApiUnreachable, Status
from eslurm.security.files import UnsafeFile, read_private

if TYPE_CHECKING:
    from eslurm.api.client import ApiClient


class TokenFile:
    """The token in a file that this user alone can read; read again when the file has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._token = ""  # nosec B105 # none yet

    def read(self) -> str:
        """The token. Raises `ApiUnreachable` when there is no usable one."""
        try:
            status = os.stat(self._path)
            seen = status.st_ino, status.st_mtime_ns
            if seen != self._seen:
                self._token = self._read()
                self._seen = seen
        except (UnsafeFile, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ApiUnreachable(
                f"no token to call the controllers with (--token-file {self._path}: {why}): have one made with "
                "esctl token create USER --scope estimator --output FILE"
            ) from None
        return self._token

    def _read(self) -> str:
        text = read_private(self._path).decode(errors="replace").strip()
        if not text or not text.isascii() or len(text.split()) != 1:
            raise UnsafeFile("it holds no token")
        return text


class Away(Exception):
    """No controller answers now. The text has each endpoint's answer."""


class LeaderCalls:
    """Calls to the leading controller, one at a time. Raises `Away`, or `ApiRefused` when a controller answered."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        client.one_round = True
        self._thread = ThreadPoolExecutor(1, "leader calls")

    async def call(self, method: Method[RequestT, ReplyT], request: RequestT, timeout_s: float) -> ReplyT:
        """Make one call at the leader; a lost one is not repeated."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, self._client.call, method, request, timeout_s)
        except ApiUnreachable as error:
            raise Away(error.why) from None
        except ApiRefused as error:
            if error.status is not Status.CANCELLED:
                raise
            raise Away(error.text) from None

    async def close(self) -> None:
        """Close all endpoints."""
        self._client.abort()
        await asyncio.to_thread(self._thread.shutdown)
        self._client.close()
