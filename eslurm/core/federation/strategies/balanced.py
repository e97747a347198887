"""`balanced`: best fit over the counts of all cells, as learned from answers (X-31).

The cells that were ever seen stand in an index ordered by free nodes. A search takes the cell with the fewest nodes that are
enough, else the one with most; a cell that was tried is out of its choice until the pause after a failed try, and has the
count that the answer brought. When no cell is known to have free nodes, a random one is read.

Progress: pauses are drawn anew below a bound that doubles from 5 to 80 ms, and a search that is short of nodes twice gives
all back before its next pause. Of searches that want the same nodes one has, with a probability that does not go to zero,
the pools for itself for as long as it needs; so each finds its nodes with probability one, once others have ended. How long
that takes has no bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eslurm.core.federation.strategies.free_index import FreeIndex
from eslurm.core.federation.strategies.guided import Guided, newer
from eslurm.core.federation.strategies.interface import Draw, Look, Need, PoolSeen, Search
from eslurm.core.federation.strategies.one_by_one import OneByOne, Pick, Tries

BACK_OFF: Final = Tries(num_retry=1, sleep_ms=5.0, longest_ms=80.0)


class Balanced(Guided):
    """Knows every pool as it was last seen."""

    name = "balanced"

    def __init__(self, own: int, cells: Sequence[int], tries: Tries = BACK_OFF) -> None:
        super().__init__(own, cells, tries)
        self._index = FreeIndex()
        self._pools: dict[int, PoolSeen] = {}

    def begin(self, need: Need) -> Search:
        """See `Strategy`."""
        return OneByOne(need, self, self.tries, retries_cell=False)

    def pick(self, missing: int, need: Need, tried: Sequence[int], now_us: int, draw: Draw) -> Pick:
        """See `Guide`."""
        best = self._index.best_fit(missing, tried)
        if best is not None:
            return best
        cell = self.random_other(draw)
        return None if cell is None else Look((cell,))

    def remember(self, seen: PoolSeen, now_us: int) -> None:
        """See `Guided`. The index counts nodes of the first class on which nothing is booked."""
        if newer(seen, self._pools.get(seen.cell)):
            self._pools[seen.cell] = seen
            self._index.put(seen.cell, seen.free())

    def recall(self, cell: int) -> PoolSeen | None:
        """See `Guided`."""
        return self._pools.get(cell)
