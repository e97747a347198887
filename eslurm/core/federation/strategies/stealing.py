"""`stealing`: random cells, one after the other (S-15, X-32, X-33), the published Algorithm 2 without its bugs.

A cell never steals from itself: its own nodes are claimed first. A cell without a pool counts as a try; the published loop
asks on without counting. The reads are those of Algorithm 2: each chosen cell is looked up first, but a claim that failed is
tried again from its answer (S-05).

No deadlock, no progress promised, see `one_by_one`. In a federation without free nodes each search asks a cell every
`sleep_ms`, so the store has a load from searches that can find nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from eslurm.core.federation.strategies.guided import Guided
from eslurm.core.federation.strategies.interface import Draw, Need
from eslurm.core.federation.strategies.one_by_one import Pick


class Stealing(Guided):
    """Knows the members and the own pool, nothing else."""

    name = "stealing"

    def pick(self, missing: int, need: Need, tried: Sequence[int], now_us: int, draw: Draw) -> Pick:
        """See `Guide`."""
        return self.random_other(draw)
