"""Capacity of the shared store: conditional changes a second, the time of each, and the delay until a watch shows one.

Syncs to disk as at a site. A swap that another one forestalled is tried again at once with the values that came back.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from benchmarks.federation.servers import running_etcd
from benchmarks.figures import Figures, percentile
from eslurm.federation.etcd.calls import EtcdSettings
from eslurm.federation.etcd.store import EtcdStore
from eslurm.ports.kv import Expect, Put

FLIGHTS = (1, 8, 64)
KEYS = (1, 64)
SECONDS, QUICK_SECONDS = 10.0, 1.0
VALUE = b"x" * 200
WATCHED, QUICK_WATCHED = 1_000, 100
WATCH_EVERY_S = 0.01


class Count:
    """Swaps of one run."""

    def __init__(self) -> None:
        self.took_s: list[float] = []
        """Of each that was made, its failed tries included."""
        self.failed = 0


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """etcd{1,3}_swaps_FLIGHT_KEYS: a second, with p50 and p99; failed tries a swap; etcd3_watch_ms."""
    for members in (1, 3):
        with running_etcd(parent, members) as store:
            asyncio.run(_measure(figures, store.endpoints, members, quick=quick))


async def _measure(figures: Figures, endpoints: tuple[str, ...], members: int, *, quick: bool) -> None:
    store = EtcdStore(EtcdSettings(endpoints))
    await store.open()
    try:
        for keys in KEYS:
            for flight in FLIGHTS:
                name = f"etcd{members}_swaps_{flight}in_flight_{keys}key{'s' * (keys > 1)}"
                count, seconds = await _swaps(store, name, flight, keys, QUICK_SECONDS if quick else SECONDS)
                made = len(count.took_s)
                figures.add(f"{name}_per_s", made / seconds, "1/s", made)
                figures.add(f"{name}_p50_ms", percentile(count.took_s, 0.5) * 1000, "ms", made)
                figures.add(f"{name}_p99_ms", percentile(count.took_s, 0.99) * 1000, "ms", made)
                if keys == 1 and flight > 1:
                    figures.add(f"{name}_failed_share", count.failed / (count.failed + made), "", made)
        delays = await _watch(store, QUICK_WATCHED if quick else WATCHED)
        figures.add(f"etcd{members}_watch_p50_ms", percentile(delays, 0.5) * 1000, "ms", len(delays))
        figures.add(f"etcd{members}_watch_p99_ms", percentile(delays, 0.99) * 1000, "ms", len(delays))
    finally:
        await store.close()


async def _swaps(store: EtcdStore, name: str, flight: int, keys: int, seconds: float) -> tuple[Count, float]:
    count = Count()
    began = time.perf_counter()

    async def worker(number: int) -> None:
        key, version = f"/bench/{name}/{number % keys}", 0
        while (tried := time.perf_counter()) - began < seconds:
            while True:
                swapped = await store.swap([Expect(key, version)], [Put(key, VALUE)])
                entry = swapped.current[key]
                version = entry.version if entry is not None else 0
                if swapped.done:
                    break
                count.failed += 1
            count.took_s.append(time.perf_counter() - tried)

    await asyncio.gather(*(worker(number) for number in range(flight)))
    return count, time.perf_counter() - began


async def _watch(store: EtcdStore, changes: int) -> list[float]:
    """Seconds from a swap's request to its change at a watch; the request itself is in it.

    Each has its own key: of several changes of one key a message may have the last alone.
    """
    sent: dict[bytes, float] = {}
    delays: list[float] = []
    listed = await store.list("/bench/watched/")

    async def read() -> None:
        async for seen in store.watch("/bench/watched/", listed.revision):
            now = time.perf_counter()
            delays.extend(now - sent[entry.value] for entry in seen.entries)
            if len(delays) >= changes:
                return

    reader = asyncio.create_task(read())
    for number in range(changes):
        key, value = f"/bench/watched/{number}", number.to_bytes(8)
        sent[value] = time.perf_counter()
        swapped = await store.swap([Expect(key, 0)], [Put(key, value)])
        assert swapped.done
        await asyncio.sleep(WATCH_EVERY_S)
    await reader
    return delays
