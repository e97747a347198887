"""Request bodies of remote callers: read only after authentication, and bounded per user while they are kept.

Invariant: without a token no caller makes this process take a request's bytes; each user's are bounded however many calls
are under way.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from eslurm.ports.api import ApiError, Status

READING_MAX = 16
"""Requests of one user that are read at a time: how large each is shows when it has come."""
USER_BYTES_MAX = 32 * 1024 * 1024
SMALL_BYTES = 64 * 1024
"""Up to this size requests are bounded by the number of calls: a user's large ones do not keep them out."""
READ_S = 30.0
_AGAIN_S = 0.5


class Bodies:
    """Make it inside the running loop."""

    def __init__(self) -> None:
        self._reading: dict[int, asyncio.Semaphore] = {}
        self._calls: Counter[int] = Counter()
        self._bytes: Counter[int] = Counter()

    @asynccontextmanager
    async def of(self, uid: int, context: grpc.aio.ServicerContext[bytes, bytes]) -> AsyncIterator[bytes]:
        """The request of a call, while it is answered. Raises `ApiError`."""
        self._calls[uid] += 1
        size_bytes = 0
        try:
            payload = await self._read(uid, context)
            size_bytes = len(payload)
            self._bytes[uid] += size_bytes
            if size_bytes > SMALL_BYTES and self._bytes[uid] > USER_BYTES_MAX:
                raise ApiError(
                    Status.RESOURCE_EXHAUSTED, "too many large calls at once; wait for answers", _AGAIN_S
                )
            yield payload
        finally:
            self._bytes[uid] -= size_bytes
            self._calls[uid] -= 1
            if not self._calls[uid]:
                for kept in (self._calls, self._bytes, self._reading):
                    kept.pop(uid, None)

    async def _read(self, uid: int, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        reading = self._reading.setdefault(uid, asyncio.Semaphore(READING_MAX))
        try:
            async with asyncio.timeout(READ_S), reading:
                payload: Any = await context.read()
        except TimeoutError:
            raise ApiError(
                Status.DEADLINE_EXCEEDED, f"a request that was not whole within {READ_S:g} s"
            ) from None
        if payload is grpc.aio.EOF:
            raise ApiError(Status.INVALID_ARGUMENT, "the call carries no request")
        return bytes(payload)
