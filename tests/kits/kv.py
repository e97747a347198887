"""Backends of the contract of the shared key-value store.

A backend is one store: `kv()` gives one more client of it, `root` a prefix of keys that belong to this test alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from eslurm.federation.etcd.calls import EtcdSettings
from eslurm.federation.etcd.store import EtcdStore
from eslurm.lab.kv.image import KvImage
from eslurm.lab.kv.memory import MemoryKv
from eslurm.ports.kv import Changes, Delete, Entry, Expect, KeyValueStore, Page, Put, Swapped
from tests.kits.kv_simulated import SimulatedKv, SimulatedStore
from tests.support import etcd
from tests.support.loops import run


class Backend:
    """One store, and the clients that a test has taken."""

    def __init__(self, make: Callable[[], KeyValueStore], root: str = "/test/") -> None:
        self._make = make
        self._clients: list[KeyValueStore] = []
        self.root = root

    async def kv(self) -> KeyValueStore:
        """One more client, opened."""
        client = self._make()
        self._clients.append(client)
        await client.open()
        return client

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        """Runs a test on an event loop and closes what it opened."""

        async def run_and_close() -> None:
            try:
                await test
            finally:
                for client in self._clients:
                    await client.close()

        run(run_and_close())


def _memory() -> Backend:
    image = KvImage()
    return Backend(lambda: MemoryKv(image))


def _simulated() -> Backend:
    store = SimulatedStore()
    return Backend(lambda: SimulatedKv(store))


def _etcd() -> Backend:
    settings = EtcdSettings(etcd.shared().endpoints)
    return Backend(lambda: EtcdStore(settings), etcd.new_root())


BACKENDS: dict[str, Callable[[], Backend]] = {"memory": _memory, "simulated": _simulated, "etcd": _etcd}


async def put(kv: KeyValueStore, key: str, value: bytes, lease: int = 0) -> Entry:
    """Writes a value, whatever was there; returns the entry."""
    while True:
        found = await kv.get(key)
        swapped = await swap(kv, key, found.entry, value, lease)
        if swapped.done:
            entry = swapped.current[key]
            assert entry is not None
            return entry


async def swap(
    kv: KeyValueStore, key: str, expected: Entry | None, value: bytes | None, lease: int = 0
) -> Swapped:
    """One key: writes `value`, or removes the key where it is None, if it still is `expected`."""
    condition = Expect(key, expected.version if expected else 0)
    return await kv.swap([condition], [Delete(key) if value is None else Put(key, value, lease)])


async def listed(kv: KeyValueStore, prefix: str, limit: int = 1_000) -> tuple[Entry, ...]:
    """All entries below a prefix, page by page."""
    page = await kv.list(prefix, limit=limit)
    entries = page.entries
    while page.more:
        page = await kv.list(prefix, after=entries[-1].key, revision=page.revision, limit=limit)
        entries += page.entries
    return entries


class Watcher:
    """The keys below a prefix, as a reader keeps them that follows a watch."""

    def __init__(self, kv: KeyValueStore, prefix: str) -> None:
        self._kv = kv
        self._prefix = prefix
        self._changes: AsyncGenerator[Changes, None] | None = None
        self.entries: dict[str, Entry] = {}
        self.seen: list[Changes] = []
        self.revision = 0

    async def start(self) -> Page:
        """Lists, and watches from there."""
        page = await self._kv.list(self._prefix)
        assert not page.more
        self.entries = {entry.key: entry for entry in page.entries}
        self.watch_from(page.revision)
        return page

    def watch_from(self, revision: int) -> None:
        """Watches from a revision on."""
        self.revision = revision
        self._changes = self._kv.watch(self._prefix, revision)

    async def next(self) -> Changes:
        """The next changes, empty or not."""
        assert self._changes is not None
        changes = await anext(self._changes)
        assert changes.revision >= self.revision, (changes, self.revision)
        for entry in changes.entries:
            # Each change comes once: nothing that was seen comes again.
            assert self.revision < entry.version <= changes.revision, (entry, self.revision)
            self.entries[entry.key] = entry
        for key in changes.deleted:
            self.entries.pop(key, None)
        self.revision = changes.revision
        self.seen.append(changes)
        return changes

    async def until(self, is_reached: Callable[[dict[str, Entry]], bool]) -> None:
        """Reads changes until the keys satisfy a condition."""
        while not is_reached(self.entries):
            await self.next()

    async def close(self) -> None:
        """Ends the watch."""
        if self._changes is not None:
            await self._changes.aclose()
