"""The simulator's store behind the port: its virtual time follows the clock of this process."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from eslurm.lab.sim import kv_wire as wire
from eslurm.lab.sim.kv_client import KvClient
from eslurm.lab.sim.kv_hosts import KvHosts
from eslurm.lab.sim.network import Network
from eslurm.lab.sim.scheduler import Scheduler
from eslurm.ports.kv import (
    LIST_MAX,
    Changes,
    Expect,
    Found,
    KvError,
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

STEP_S = 0.001


class SimulatedStore:
    """Three simulated servers and their network, as a `Ground` of processes. `play` lets their time pass."""

    def __init__(self, seed: str = "contract") -> None:
        self.scheduler = Scheduler(time.monotonic_ns() // 1000)
        self.network = Network(self.scheduler, f"{seed}/network", lambda *_: None)
        self._names: dict[str, int] = {}
        self._playing: asyncio.Task[None] | None = None
        self._users = 0
        self.hosts = KvHosts(self, f"{seed}/store")
        self.hosts.start()

    def new_name(self, address: str) -> str:
        """A name for the next process at this address."""
        self._names[address] = self._names.get(address, 0) + 1
        return f"{address}#{self._names[address]}"

    def enter(self) -> None:
        """One more client needs time to pass."""
        self._users += 1
        if self._playing is None:
            self._playing = asyncio.create_task(self._play(), name="simulated time")

    async def leave(self) -> None:
        """One less."""
        self._users -= 1
        if not self._users and self._playing is not None:
            playing, self._playing = self._playing, None
            playing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await playing

    async def _play(self) -> None:
        while True:
            self.scheduler.run(time.monotonic_ns() // 1000)
            await asyncio.sleep(STEP_S)


class SimulatedKv:
    """One client of it, as a `KeyValueStore`."""

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store
        self._client: KvClient | None = None
        self._waiting: set[asyncio.Future[Any]] = set()

    async def open(self) -> None:
        """See `KeyValueStore.open`."""
        self._store.enter()
        self._client = KvClient(self._store, f"client{id(self)}", self._store.hosts.addresses)
        self._store.network.attach(self._client)
        await self._ask(wire.Get("/"))

    async def close(self) -> None:
        """See `KeyValueStore.close`."""
        if self._client is None:
            return
        client, self._client = self._client, None
        client.alive = False
        self._store.network.detach(client)
        for future in self._waiting:
            if not future.done():
                future.set_result(KvUnavailable("the connection to the store is closed"))
        await self._store.leave()

    async def get(self, key: str, *, stale: bool = False) -> Found:
        """See `KvReader.get`."""
        check_key(key)
        found: Found = await self._ask(wire.Get(key, stale))
        return found

    async def list(self, prefix: str, *, after: str = "", revision: int = 0, limit: int = LIST_MAX) -> Page:
        """See `KvReader.list`."""
        check_page(prefix, after, revision, limit)
        page: Page = await self._ask(wire.ListPage(prefix, after, revision, limit))
        return page

    async def watch(self, prefix: str, revision: int) -> AsyncGenerator[Changes, None]:
        """See `KvReader.watch`."""
        check_key(prefix)
        told: asyncio.Queue[Changes | KvError] = asyncio.Queue()
        client = self._opened()
        number = client.watch(prefix, revision, told.put_nowait, told.put_nowait)
        try:
            while True:
                found = await self._until(asyncio.ensure_future(told.get()))
                if isinstance(found, KvError):
                    raise found
                yield found
        finally:
            client.end_watch(number)

    async def swap(self, expect: Sequence[Expect], then: Sequence[Operation]) -> Swapped:
        """See `KvWriter.swap`."""
        check_swap(expect, then)
        swapped: Swapped = await self._ask(wire.Swap(tuple(expect), tuple(then)))
        return swapped

    async def grant(self, ttl_s: float) -> Lease:
        """See `KvLeases.grant`."""
        check_lease(ttl_s)
        lease: Lease = await self._ask(wire.Grant(round(ttl_s * 1e6)))
        return lease

    async def keep(self, lease: int) -> float:
        """See `KvLeases.keep`."""
        ttl_s: float = await self._ask(wire.Keep(lease))
        return ttl_s

    async def revoke(self, lease: int) -> None:
        """See `KvLeases.revoke`."""
        await self._ask(wire.Revoke(lease))

    async def members(self) -> tuple[KvMember, ...]:
        """See `KeyValueStore.members`."""
        leader = self._store.hosts.ensemble.leader
        return tuple(
            KvMember(one.address, is_leader=one is leader, size_bytes=self._store.hosts.image.size_bytes)
            for one in self._store.hosts.servers.values()
        )

    async def compact(self, revision: int) -> None:
        """See `KeyValueStore.compact`."""
        await self._ask(wire.Compact(revision))

    def _opened(self) -> KvClient:
        if self._client is None:
            raise KvUnavailable("the store is closed")
        return self._client

    async def _ask(self, request: wire.Request) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(result: Any) -> None:
            if not answer.done():
                answer.set_result(result)

        self._opened().ask(request, answered)
        result = await self._until(answer)
        if isinstance(result, KvError):
            raise result
        return result

    async def _until(self, future: asyncio.Future[Any]) -> Any:
        """Wait for it, or for `close`."""
        closing: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.add(closing)
        try:
            done, _ = await asyncio.wait({future, closing}, return_when=asyncio.FIRST_COMPLETED)
            return future.result() if future in done else closing.result()
        finally:
            self._waiting.discard(closing)
            future.cancel()
