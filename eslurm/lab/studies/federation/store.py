"""The shared store of the study: pools with versions, one server that answers one call after another, drawn delays.

A call reaches the store after a delay, waits for the calls before it, takes effect, and is answered after a commit (changes
only) and another delay. Invariant: calls take effect one at a time in the order of their arrival, so changes and reads are
linearizable, as those of the real store are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Final

import msgspec

from eslurm.core.federation import pools
from eslurm.core.federation.runs import Runs
from eslurm.core.federation.strategies.interface import PoolSeen
from eslurm.core.model.federation import Pool

READ_US: Final = 20
WRITE_US: Final = 100
KEY_US: Final = 5
"""The server's time for a call, and for each key in it: some 10,000 changes a second."""
COMMIT_US: Final = 1_000
"""Until a change is on disk; changes under way at the same time share it."""
HOP_US: Final = 100
"""The shortest way between two machines; as much again is drawn."""

Change = Callable[[Pool], Pool | None]


class Clock:
    """Events in the order of their time; those of one instant in the order in which they were entered."""

    def __init__(self) -> None:
        self.now_us = 0
        self.events = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []

    def at(self, at_us: int, run: Callable[[], None]) -> None:
        """Run it then."""
        self.events += 1
        heappush(self._heap, (at_us, self.events, run))

    def step(self, until_us: int) -> bool:
        """Run the next event; False: there is none until then."""
        if not self._heap or self._heap[0][0] > until_us:
            return False
        self.now_us, _, run = heappop(self._heap)
        run()
        return True


class Counters(msgspec.Struct):
    """Messages: calls of the store, each counted once, deliveries by watches, and messages between cells."""

    reads: int = 0
    claims: int = 0
    failed_claims: int = 0
    returns: int = 0
    failed_returns: int = 0
    summaries: int = 0
    watched: int = 0
    links: int = 0

    def total(self) -> int:
        """All of them."""
        return sum(msgspec.structs.astuple(self))


class Store:
    """Pools by cell."""

    def __init__(self, clock: Clock, draws: random.Random, initial: Sequence[Pool]) -> None:
        self._clock = clock
        self._draws = draws
        self._seen = [PoolSeen(cell, 1, pool) for cell, pool in enumerate(initial)]
        self._revision = 1
        self._free_us = 0
        self.busy_us = 0
        self.on_change: Callable[[int, int], None] = lambda cell, delay_us: None

    def hop_us(self) -> int:
        """A drawn way between two machines."""
        return HOP_US + int(self._draws.expovariate(1 / HOP_US))

    def seen(self, cell: int) -> PoolSeen:
        """A pool as it is."""
        return self._seen[cell]

    @property
    def revision(self) -> int:
        """Rises with each change."""
        return self._revision

    def read(self, cells: Sequence[int], answer: Callable[[list[PoolSeen]], None]) -> None:
        """Read pools at one revision."""

        def arrive() -> None:
            found = [self.seen(cell) for cell in cells]
            ready_us = self._serve(READ_US + KEY_US * len(cells))
            self._clock.at(ready_us + self.hop_us(), lambda: answer(found))

        self._clock.at(self._clock.now_us + self.hop_us(), arrive)

    def change(
        self, parts: Iterable[tuple[PoolSeen, Change]], answer: Callable[[bool, list[PoolSeen]], None]
    ) -> None:
        """Change pools if all have the versions seen, and no change declines."""
        parts = list(parts)

        def arrive() -> None:
            done = self._apply(parts)
            found = [self.seen(seen.cell) for seen, _ in parts]
            ready_us = self._serve(WRITE_US + KEY_US * len(parts))
            delay_us = (COMMIT_US if done else 0) + self.hop_us()
            self._clock.at(ready_us + delay_us, lambda: answer(done, found))
            if done:
                for one in found:
                    self.on_change(one.cell, ready_us + COMMIT_US)

        self._clock.at(self._clock.now_us + self.hop_us(), arrive)

    def write(self) -> int:
        """The time that a small write of another key takes at the server. Returns when it is on disk."""
        return self._serve(WRITE_US) + COMMIT_US

    def check(self, everything: Sequence[Runs]) -> None:
        """Raises `AssertionError` for a pool that breaks an invariant. `everything`: all nodes of each cell."""
        for seen, nodes in zip(self._seen, everything, strict=True):
            fault = pools.faults(seen.pool, nodes) if seen.pool is not None else "no pool"
            assert not fault, f"cell {seen.cell}: {fault}"

    # ---- within ----

    def _apply(self, parts: Sequence[tuple[PoolSeen, Change]]) -> bool:
        if any(self._seen[seen.cell].version != seen.version for seen, _ in parts):
            return False
        changed = [(seen.cell, change(seen.pool)) for seen, change in parts if seen.pool is not None]
        if any(pool is None for _, pool in changed):
            return False
        self._revision += 1
        for cell, pool in changed:
            if pool is not None:
                self._seen[cell] = PoolSeen(cell, self._revision, pool)
        return True

    def _serve(self, cost_us: int) -> int:
        self.busy_us += cost_us
        self._free_us = max(self._free_us, self._clock.now_us) + cost_us
        return self._free_us
