"""The shared key-value store that forgets with its process: for tests of cells in one process.

Invariant: it behaves as etcd does for a client whose server never fails; several clients may share one image.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence

from eslurm.lab.kv.image import KvImage
from eslurm.ports.kv import (
    LIST_MAX,
    PROGRESS_S,
    Changes,
    Expect,
    Found,
    KvMember,
    KvUnavailable,
    Lease,
    Operation,
    Page,
    Swapped,
    check_key,
    check_lease,
    check_page,
    check_swap,
)


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1000


class MemoryKv:
    """A `KeyValueStore` over a `KvImage`. Leases live by `now_us`, a clock that never goes back."""

    def __init__(self, image: KvImage | None = None, now_us: Callable[[], int] = _monotonic_us) -> None:
        self._image = image or KvImage()
        self._now_us = now_us
        self._is_open = False
        self._closing = asyncio.Event()

    async def open(self) -> None:
        """See `KeyValueStore.open`."""
        self._is_open = True

    async def close(self) -> None:
        """See `KeyValueStore.close`."""
        self._is_open = False
        self._closing.set()

    async def get(self, key: str, *, stale: bool = False) -> Found:
        """See `KvReader.get`; never stale."""
        check_key(key)
        return self._present().get(key)

    async def list(self, prefix: str, *, after: str = "", revision: int = 0, limit: int = LIST_MAX) -> Page:
        """See `KvReader.list`."""
        check_page(prefix, after, revision, limit)
        return self._present().list(prefix, after, revision, limit)

    async def watch(self, prefix: str, revision: int) -> AsyncGenerator[Changes, None]:
        """See `KvReader.watch`."""
        check_key(prefix)
        seen = revision
        changed = asyncio.Event()
        forget = self._image.listen(changed.set)
        try:
            while True:
                changed.clear()
                found = self._present().changes(prefix, seen)
                seen = found.revision
                if found.entries or found.deleted:
                    yield found
                elif not await self._is_changed(changed):
                    yield Changes(seen)
        finally:
            forget()

    async def swap(self, expect: Sequence[Expect], then: Sequence[Operation]) -> Swapped:
        """See `KvWriter.swap`."""
        check_swap(expect, then)
        return self._present().swap(expect, then)

    async def grant(self, ttl_s: float) -> Lease:
        """See `KvLeases.grant`."""
        check_lease(ttl_s)
        return self._present().grant(round(ttl_s * 1e6), self._now_us())

    async def keep(self, lease: int) -> float:
        """See `KvLeases.keep`."""
        return self._present().keep(lease, self._now_us())

    async def revoke(self, lease: int) -> None:
        """See `KvLeases.revoke`."""
        self._present().revoke(lease)

    async def members(self) -> tuple[KvMember, ...]:
        """See `KeyValueStore.members`."""
        return (KvMember("memory", is_leader=True, size_bytes=self._present().size_bytes),)

    async def compact(self, revision: int) -> None:
        """See `KeyValueStore.compact`."""
        self._present().compact(revision)

    def _present(self) -> KvImage:
        """The image without the leases that have ended."""
        if not self._is_open:
            raise KvUnavailable("the store is closed")
        self._image.expire(self._now_us())
        return self._image

    async def _is_changed(self, changed: asyncio.Event) -> bool:
        """Wait for a change, the end of a lease, or `close`; False: none within PROGRESS_S."""
        wait_s = PROGRESS_S
        expiry_us = self._image.next_expiry_us()
        if expiry_us is not None:
            wait_s = min(wait_s, max((expiry_us - self._now_us()) / 1e6, 0.0))
        waits = [asyncio.ensure_future(changed.wait()), asyncio.ensure_future(self._closing.wait())]
        try:
            done, _ = await asyncio.wait(waits, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return bool(done) or wait_s < PROGRESS_S
