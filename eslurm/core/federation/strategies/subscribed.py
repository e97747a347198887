"""`subscribed`: the one with most free nodes of `k` cells whose pools are watched (monitor B, S-13).

In place of a queue for each cell with all others as subscribers, a cell watches a few random others, which change every
`change_s`: what all hear grows with the cells, not with their square. A watch brings the pool itself, so a claim needs no
read before it. Between two changes a search finds nothing beyond the own cell and those `k`.

Deadlock and progress as `stealing`.
"""

from __future__ import annotations

from collections.abc import Sequence

from eslurm.core.federation.strategies.guided import TRIES, Guided, newer
from eslurm.core.federation.strategies.interface import Draw, Interests, Need, PoolSeen
from eslurm.core.federation.strategies.one_by_one import Pick, Tries


class Subscribed(Guided):
    """Watches `k` pools."""

    name = "subscribed"

    def __init__(
        self,
        own: int,
        cells: Sequence[int],
        tries: Tries = TRIES,
        *,
        k: int = 8,
        change_s: float = 10.0,
    ) -> None:
        super().__init__(own, cells, tries)
        self._k = k
        self._change_us = int(change_s * 1e6)
        self._watched: dict[int, PoolSeen | None] = {}

    def interests(self, now_us: int, draw: Draw) -> Interests:
        """See `Strategy`: other cells each time. A watch begins with the pool as it is."""
        left = list(self.others)
        chosen = [
            left.pop(min(int(draw() * len(left)), len(left) - 1)) for _ in range(min(self._k, len(left)))
        ]
        self._watched = {cell: self._watched.get(cell) for cell in sorted(chosen)}
        return Interests(tuple(self._watched), until_us=now_us + self._change_us)

    def pick(self, missing: int, need: Need, tried: Sequence[int], now_us: int, draw: Draw) -> Pick:
        """See `Guide`."""
        known = [seen for seen in self._watched.values() if seen is not None]
        best = max(known, key=lambda seen: seen.free(need.kind, need.for_s), default=None)
        return best.cell if best is not None and best.free(need.kind, need.for_s) else None

    def remember(self, seen: PoolSeen, now_us: int) -> None:
        """See `Guided`."""
        if seen.cell in self._watched and newer(seen, self._watched[seen.cell]):
            self._watched[seen.cell] = seen

    def recall(self, cell: int) -> PoolSeen | None:
        """See `Guided`."""
        return self._watched.get(cell)
