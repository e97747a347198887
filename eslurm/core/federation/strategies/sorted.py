"""`sorted`: the first cells of a list of all cells by their free nodes (monitor A, S-11, S-12).

The list is made of the summaries, which every cell watches: choosing costs no message, but each change of a summary goes to
every cell, so what all hear grows with the square of the cells. All cells read the same list, and so go to the same cells:
each chosen pool is read before nodes of it are claimed.

Deadlock and progress as `stealing`.
"""

from __future__ import annotations

from collections.abc import Sequence

from eslurm.core.federation.strategies.guided import TRIES, Guided
from eslurm.core.federation.strategies.interface import Counts, Draw, Interests, Need
from eslurm.core.federation.strategies.one_by_one import Pick, Tries


class Sorted(Guided):
    """Asks the first `first` cells of the list."""

    name = "sorted"

    def __init__(
        self, own: int, cells: Sequence[int], counts: Counts, tries: Tries = TRIES, *, first: int = 8
    ) -> None:
        super().__init__(own, cells, tries)
        self._counts = counts
        self._first = first

    def interests(self, now_us: int, draw: Draw) -> Interests:
        """See `Strategy`."""
        return Interests(summaries=True)

    def pick(self, missing: int, need: Need, tried: Sequence[int], now_us: int, draw: Draw) -> Pick:
        """See `Guide`."""
        found = [cell for cell in self._counts.most_free(self._first) if cell not in tried]
        return found[min(int(draw() * len(found)), len(found) - 1)] if found else None
