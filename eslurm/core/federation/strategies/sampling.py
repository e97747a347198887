"""`sampling`: for N jobs that need nodes, 2N random cells are read at once, and what they say is shared (S-18).

The power of two choices for a batch: all searches of a cell choose from the same sample, each time the cell with most free
nodes, and a claim leaves the sample with the pool as it is then. A sample in which nothing is free any more is replaced, at
most once in `sleep_ms`.

Deadlock and progress as `stealing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eslurm.core.federation.strategies.guided import TRIES, Guided, newer
from eslurm.core.federation.strategies.interface import (
    MS,
    POOLS_MAX,
    Draw,
    Look,
    Need,
    PoolSeen,
    Search,
)
from eslurm.core.federation.strategies.one_by_one import Pick, Tries

RATIO: Final = 2


class Sampling(Guided):
    """Reads `ratio` pools for each job that waits."""

    name = "sampling"

    def __init__(self, own: int, cells: Sequence[int], tries: Tries = TRIES, *, ratio: int = RATIO) -> None:
        super().__init__(own, cells, tries)
        self._ratio = ratio
        self._waiting = 0
        self._sample: dict[int, PoolSeen | None] = {}
        self._next_us = 0

    def begin(self, need: Need) -> Search:
        """See `Strategy`."""
        self._waiting += 1
        return super().begin(need)

    def ended(self, search: Search) -> None:
        """See `Strategy`."""
        self._waiting -= 1

    def pick(self, missing: int, need: Need, tried: Sequence[int], now_us: int, draw: Draw) -> Pick:
        """See `Guide`."""
        known = [seen for seen in self._sample.values() if seen is not None]
        best = max(known, key=lambda seen: seen.free(need.kind, need.for_s), default=None)
        if best is not None and best.free(need.kind, need.for_s):
            return best.cell
        if now_us < self._next_us:
            return None
        self._next_us = now_us + int(self.tries.sleep_ms * MS)
        count = min(self._ratio * max(1, self._waiting), POOLS_MAX, len(self.others))
        left = list(self.others)
        chosen = [left.pop(min(int(draw() * len(left)), len(left) - 1)) for _ in range(count)]
        self._sample = dict.fromkeys(sorted(chosen))
        return Look(tuple(self._sample)) if chosen else None

    def remember(self, seen: PoolSeen, now_us: int) -> None:
        """See `Guided`."""
        if seen.cell in self._sample and newer(seen, self._sample[seen.cell]):
            self._sample[seen.cell] = seen

    def recall(self, cell: int) -> PoolSeen | None:
        """See `Guided`."""
        return self._sample.get(cell)
