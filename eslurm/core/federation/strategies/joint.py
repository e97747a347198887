"""`joint`: all nodes of a job in one transaction over up to 32 pools, chosen as `balanced` chooses.

A search holds either all its nodes or none, so there is no hold-and-wait and nothing to give back. Where the pools known to
have free nodes are not enough, random ones are read, after a pause that doubles from 5 to 80 ms; where a transaction fails,
its answer has all its pools as they are, and the search chooses anew, after a drawn pause from the second failure on.

Progress: lock-free. A transaction fails only because the version of one of its pools has changed since it was seen, and what
changes pools are claims that were made and lenders that give nodes back. So of searches that meet, one has its nodes: k jobs
that exclude each other all find theirs, one after the other, after at most k failures each and the changes of lenders.
Not starvation-free: a job that needs most of all nodes at one instant may wait for as long as smaller ones come; `tickets`
are for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eslurm.core.federation.strategies.free_index import FreeIndex
from eslurm.core.federation.strategies.guided import newer
from eslurm.core.federation.strategies.interface import (
    POOLS_MAX,
    Asking,
    Done,
    Draw,
    Interests,
    Later,
    Look,
    Need,
    PoolSeen,
    Search,
    Step,
    Take,
)
from eslurm.core.federation.strategies.one_by_one import Tries

PAUSES: Final = Tries(sleep_ms=5.0, longest_ms=80.0)
LOOKS: Final = 16
"""Random pools read at once where those known are not enough."""


class Joint:
    """Knows every pool as it was last seen."""

    name = "joint"

    def __init__(self, own: int, cells: Sequence[int], pauses: Tries = PAUSES) -> None:
        self.own = own
        self.pauses = pauses
        self.pools: dict[int, PoolSeen] = {}
        self._others = tuple(cell for cell in cells if cell != own)
        self._index = FreeIndex()

    def interests(self, now_us: int, draw: Draw) -> Interests:
        """See `Strategy`: nothing."""
        return Interests()

    def on_word(self, seen: PoolSeen, now_us: int) -> None:
        """See `Strategy`."""
        if newer(seen, self.pools.get(seen.cell)):
            self.pools[seen.cell] = seen
            if seen.cell != self.own:
                self._index.put(seen.cell, seen.free())

    def begin(self, need: Need) -> Search:
        """See `Strategy`."""
        return JointSearch(need, self)

    def ended(self, search: Search) -> None:
        """See `Strategy`."""

    def cover(self, need: Need) -> tuple[dict[int, int], bool]:
        """Cells with nodes for a job, own ones first, then best fit; False: too few are known to be free."""
        mine = self.pools.get(self.own)
        count = min(need.nodes, mine.free(need.kind, need.for_s)) if mine is not None else 0
        found = {self.own: count} if count else {}
        missing = need.nodes - count
        while missing and len(found) < POOLS_MAX:
            cell = self._index.best_fit(missing, found)
            if cell is None:
                break
            seen = self.pools.get(cell)
            count = min(missing, seen.free(need.kind, need.for_s)) if seen is not None else 0
            if not count:
                break
            found[cell] = count
            missing -= count
        return found, missing == 0

    def random_cells(self, draw: Draw) -> tuple[int, ...]:
        """Some other cells."""
        left = list(self._others)
        count = min(LOOKS, len(left))
        return tuple(left.pop(min(int(draw() * len(left)), len(left) - 1)) for _ in range(count))


class JointSearch:
    """A job that gets all its nodes at once."""

    def __init__(self, need: Need, known: Joint) -> None:
        self._need = need
        self._known = known
        self._held = 0
        self._failures = 0
        self._pause_until_us = 0
        self._must_pause = False
        self._looks_next = True

    @property
    def held(self) -> int:
        """See `Search`."""
        return self._held

    def choose(self, now_us: int, draw: Draw) -> Step:
        """See `Search`."""
        if self._held:
            return Done()
        if self._must_pause:
            return self._pause(now_us, draw)
        if now_us < self._pause_until_us:
            return Later(self._pause_until_us)
        found, is_enough = self._known.cover(self._need)
        if is_enough:
            self._looks_next = False
            return Take(tuple((self._known.pools[cell], count) for cell, count in found.items()))
        if self._looks_next:
            self._looks_next = False
            cells = self._known.random_cells(draw)
            if cells:
                return Look(cells)
        self._looks_next = True
        self._failures += 1
        return self._pause(now_us, draw)

    def answered(self, step: Asking, done: bool, seen: Sequence[PoolSeen], now_us: int) -> None:
        """See `Search`."""
        for one in seen:
            self._known.on_word(one, now_us)
        if isinstance(step, Take) and done:
            self._held = self._need.nodes
        elif isinstance(step, Take):
            self._failures += 1
            self._must_pause = self._failures > 1

    # ---- within ----

    def _pause(self, now_us: int, draw: Draw) -> Later:
        self._must_pause = False
        self._pause_until_us = now_us + self._known.pauses.pause_us(self._failures, draw)
        return Later(self._pause_until_us)
