"""The common part of strategies that claim pool after pool: the members, the own pool, the bounds of a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from eslurm.core.federation.strategies.interface import Draw, Interests, Need, PoolSeen, Search
from eslurm.core.federation.strategies.one_by_one import OneByOne, Pick, Tries

TRIES = Tries()


class Guided:
    """A strategy and the `Guide` of its searches. A subclass remembers pools, and picks."""

    name: ClassVar[str]

    def __init__(self, own: int, cells: Sequence[int], tries: Tries = TRIES) -> None:
        self.own = own
        self.others = tuple(cell for cell in cells if cell != own)
        self.tries = tries
        self.mine: PoolSeen | None = None

    def interests(self, now_us: int, draw: Draw) -> Interests:
        """See `Strategy`."""
        return Interests()

    def on_word(self, seen: PoolSeen, now_us: int) -> None:
        """See `Strategy`."""
        if seen.cell != self.own:
            self.remember(seen, now_us)
        elif self.mine is None or seen.version > self.mine.version:
            self.mine = seen

    def begin(self, need: Need) -> Search:
        """See `Strategy`."""
        return OneByOne(need, self, self.tries)

    def ended(self, search: Search) -> None:
        """See `Strategy`."""

    def find(self, cell: int) -> PoolSeen | None:
        """See `Guide`."""
        return self.mine if cell == self.own else self.recall(cell)

    def pick(self, missing: int, need: Need, tried: Sequence[int], now_us: int, draw: Draw) -> Pick:
        """See `Guide`."""
        raise NotImplementedError

    def remember(self, seen: PoolSeen, now_us: int) -> None:
        """Another cell's pool."""

    def recall(self, cell: int) -> PoolSeen | None:
        """Another cell's pool as remembered; None: read it."""
        return None

    def random_other(self, draw: Draw) -> int | None:
        """Any other cell; None: there is none."""
        return self.others[min(int(draw() * len(self.others)), len(self.others) - 1)] if self.others else None


def newer(seen: PoolSeen, known: PoolSeen | None) -> bool:
    """Check that a word says more than what is known."""
    return known is None or seen.version > known.version
