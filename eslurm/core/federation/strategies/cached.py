"""`cached`: the cell with most free nodes of those remembered, else a random one (S-10).

Pools are remembered from every answer, up to `size` of them; a full cache drops one by its eviction rule: least recently
used (`lru`), the oldest (`fifo`), or the oldest that was not used since the hand passed last (`clock`). All are forgotten
every `flush_s`, so that counts of cells that are not asked any more do not stay wrong. A claim compares with the remembered
version; where that is old, the failed claim brings the present pool for the same one message as a read.

Deadlock and progress as `stealing`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Literal

from eslurm.core.federation.strategies.guided import TRIES, Guided, newer
from eslurm.core.federation.strategies.interface import Draw, Look, Need, PoolSeen
from eslurm.core.federation.strategies.one_by_one import Pick, Tries

Eviction = Literal["lru", "fifo", "clock"]
EVICTIONS: Final[tuple[Eviction, ...]] = ("lru", "fifo", "clock")


class Cache:
    """Pools by cell, `size` at most; `flush_us` after the first one entered, all are dropped."""

    def __init__(self, size: int, flush_us: int, eviction: Eviction) -> None:
        self._size = size
        self._flush_us = flush_us
        self._eviction = eviction
        self._pools: OrderedDict[int, PoolSeen] = OrderedDict()
        self._used: set[int] = set()
        self._flushed_us = 0

    def __len__(self) -> int:
        return len(self._pools)

    def put(self, seen: PoolSeen, now_us: int) -> None:
        """Remember a pool, unless a later version is here."""
        if now_us - self._flushed_us >= self._flush_us:
            self._pools.clear()
            self._used.clear()
            self._flushed_us = now_us
        if not newer(seen, self._pools.get(seen.cell)):
            return
        if seen.cell not in self._pools and len(self._pools) >= self._size:
            self._evict()
        self._pools[seen.cell] = seen
        self._touch(seen.cell)

    def get(self, cell: int) -> PoolSeen | None:
        """A pool, which counts as used now."""
        found = self._pools.get(cell)
        if found is not None:
            self._touch(cell)
        return found

    def most_free(self, kind: int, for_s: int) -> int | None:
        """The cell with most free nodes; None: no cell here has any."""
        best = max(self._pools.values(), key=lambda seen: seen.free(kind, for_s), default=None)
        return best.cell if best is not None and best.free(kind, for_s) else None

    def _touch(self, cell: int) -> None:
        self._used.add(cell)
        if self._eviction == "lru":
            self._pools.move_to_end(cell)

    def _evict(self) -> None:
        if self._eviction == "clock":
            # A pool that was used gets a second turn.
            while (oldest := next(iter(self._pools))) in self._used:
                self._used.discard(oldest)
                self._pools.move_to_end(oldest)
        cell, _ = self._pools.popitem(last=False)
        self._used.discard(cell)


class Cached(Guided):
    """Remembers pools that it has asked."""

    name = "cached"

    def __init__(
        self,
        own: int,
        cells: Sequence[int],
        tries: Tries = TRIES,
        *,
        size: int = 64,
        flush_s: float = 5.0,
        eviction: Eviction = "lru",
    ) -> None:
        super().__init__(own, cells, tries)
        self._cache = Cache(size, int(flush_s * 1e6), eviction)

    def pick(self, missing: int, need: Need, tried: Sequence[int], now_us: int, draw: Draw) -> Pick:
        """See `Guide`."""
        best = self._cache.most_free(need.kind, need.for_s)
        if best is not None:
            return best
        # What is remembered has no free nodes: a read, not a claim, of another one.
        cell = self.random_other(draw)
        return Look((cell,)) if cell is not None and self._cache.get(cell) is not None else cell

    def remember(self, seen: PoolSeen, now_us: int) -> None:
        """See `Guided`."""
        self._cache.put(seen, now_us)

    def recall(self, cell: int) -> PoolSeen | None:
        """See `Guided`."""
        return self._cache.get(cell)
