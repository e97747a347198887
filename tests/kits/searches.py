"""Searches of several cells over one table of pools: their steps meet in any order, one at a time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from eslurm.core.federation import pools, runs
from eslurm.core.federation.patience import Patience
from eslurm.core.federation.strategies.free_index import FreeIndex
from eslurm.core.federation.strategies.interface import (
    Asking,
    Convert,
    Done,
    Enqueue,
    GiveBack,
    Later,
    Leave,
    Look,
    Need,
    PoolSeen,
    Search,
    Step,
    Strategy,
    Take,
)
from eslurm.core.federation.strategies.table import STRATEGIES
from eslurm.core.model.federation import Claim, Pool

STEP_US = 500


class Table:
    """Pools by cell, with versions; a step of a search takes effect at once."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        self.pools = [pools.offer(pools.empty(1), ((0, size),)) if size else pools.empty(1) for size in sizes]
        self.versions = [1] * len(sizes)
        self.serial = 0

    def seen(self, cell: int) -> PoolSeen:
        """A pool as it is."""
        return PoolSeen(cell, self.versions[cell], self.pools[cell])

    def put(self, cell: int, pool: Pool) -> None:
        """Replace a pool."""
        self.pools[cell] = pool
        self.versions[cell] += 1
        assert pools.faults(pool, ((0, self.sizes[cell]),)) == ""

    def make(self, parts: Sequence[tuple[PoolSeen, Pool | None]]) -> bool:
        """All of it, or nothing."""
        if any(self.versions[seen.cell] != seen.version or pool is None for seen, pool in parts):
            return False
        for seen, pool in parts:
            if pool is not None:
                self.put(seen.cell, pool)
        return True


class Hunter:
    """A job, its search, and the claims that it holds in the table."""

    def __init__(self, table: Table, strategy: Strategy, need: Need) -> None:
        self.table = table
        self.strategy = strategy
        self.need = need
        self.search: Search = strategy.begin(need)
        self.claims: dict[int, list[tuple[int, int]]] = {}
        self.tickets: dict[int, tuple[int, int]] = {}
        self.pending: Asking | None = None
        self.until_us = 0
        self.is_done = False
        self.steps: list[Step] = []
        self.holds: list[int] = []
        """Nodes that it held before each of its steps."""

    def choose(self, now_us: int, draw: Callable[[], float]) -> Step:
        """The next step; one that needs no answer is taken."""
        self.holds.append(self.search.held)
        step = self.search.choose(now_us, draw)
        self.steps.append(step)
        match step:
            case GiveBack():
                self.give_back()
            case Later(at_us, wakes):
                assert at_us > now_us, "a search that waits waits"
                self.until_us = now_us + STEP_US if wakes else at_us
            case Done():
                self.is_done = True
                assert sum(self.held().values()) == self.need.nodes
                self.strategy.ended(self.search)
            case _:
                self.pending = step
        return step

    def answer(self, now_us: int) -> bool:
        """The pending step takes effect."""
        step = self.pending
        assert step is not None
        self.pending = None
        done = True
        match step:
            case Look(cells):
                found = list(cells)
            case Take(parts):
                wish = self._claim()
                found = [seen.cell for seen, _ in parts]
                assert len(set(found)) == len(found) <= 32
                done = self.table.make(
                    [(seen, pools.claim(_pool(seen), wish, count)) for seen, count in parts]
                )
                if done:
                    for cell in found:
                        self.claims.setdefault(cell, []).append(pools.id_of(wish))
            case Enqueue(parts):
                found = [seen.cell for seen, _ in parts]
                tickets = [(seen, self._claim(count)) for seen, count in parts]
                done = self.table.make([(seen, pools.queue(_pool(seen), ticket)) for seen, ticket in tickets])
                if done:
                    self.tickets = {seen.cell: pools.id_of(ticket) for seen, ticket in tickets}
            case Convert(seen_pools):
                found = [seen.cell for seen in seen_pools]
                done = self.table.make(
                    [(seen, pools.convert(_pool(seen), self.tickets[seen.cell])) for seen in seen_pools]
                )
                if done:
                    for cell, name in self.tickets.items():
                        self.claims.setdefault(cell, []).append(name)
                    self.tickets = {}
            case Leave(seen_pools):
                found = [seen.cell for seen in seen_pools]
                done = self.table.make(
                    [(seen, pools.without_ticket(_pool(seen), self.need.order)) for seen in seen_pools]
                )
                if done:
                    self.tickets = {}
        seen_now = [self.table.seen(cell) for cell in found]
        self.search.answered(step, done, seen_now, now_us)
        return done

    def held(self) -> dict[int, int]:
        """Nodes by lender, as the pools say."""
        found = {}
        for cell, names in self.claims.items():
            claims = [pools.find_claim(self.table.pools[cell], name) for name in names]
            found[cell] = sum(runs.size(one.nodes) for one in claims if one is not None)
        return found

    def give_back(self) -> None:
        """The lenders close the claims."""
        for cell, names in self.claims.items():
            self.table.put(cell, pools.close(self.table.pools[cell], names))
        self.claims.clear()

    def _claim(self, wanted: int = 0) -> Claim:
        self.table.serial += 1
        return Claim(self.need.own + 1, self.table.serial, 1, self.need.order, 0, wanted=wanted)


def _pool(seen: PoolSeen) -> Pool:
    assert seen.pool is not None
    return seen.pool


def counts_of(table: Table) -> FreeIndex:
    """The counts of free nodes by summaries that are never late."""
    index = FreeIndex()
    for cell in range(len(table.sizes)):
        index.put(cell, table.seen(cell).free())
    return index


def meet(
    name: str,
    sizes: Sequence[int],
    needs: Sequence[tuple[int, int]],
    picks: Iterator[int],
    seed: int,
    most: int,
) -> tuple[int, list[Hunter]]:
    """Run searches, one job each as (cell, nodes), until all had their nodes; a job that has them ends some steps later.

    `picks` says which one goes on next. Returns the steps taken, `most` or more: not all had them.
    """
    table, draws = Table(sizes), random.Random(seed)
    index = counts_of(table)
    strategies = [STRATEGIES[name](cell, range(len(sizes)), index) for cell in range(len(sizes))]
    for cell, strategy in enumerate(strategies):
        strategy.interests(0, draws.random)
        strategy.on_word(table.seen(cell), 0)
    hunters = [
        Hunter(table, strategies[cell], Need(cell, serial, nodes, (1, cell + 1, serial)))
        for serial, (cell, nodes) in enumerate(needs)
    ]
    patience = [Patience() for _ in sizes]
    running: list[Hunter] = []
    now_us = steps = 0
    while steps < most and not all(one.is_done for one in hunters):
        steps += 1
        now_us += STEP_US
        for cell, lender in enumerate(patience):
            lender.note(table.pools[cell], now_us)
            kept = lender.pass_on(table.pools[cell], now_us)
            if kept is not table.pools[cell]:
                table.put(cell, kept)
        if running and draws.random() < 0.2:
            running.pop(0).give_back()
        ready = [one for one in hunters if not one.is_done and (one.pending or one.until_us <= now_us)]
        if not ready:
            # Each waits; nothing happens until the first of them goes on.
            steps -= 1
            waiting = [one.until_us for one in hunters if not one.is_done]
            now_us = max(now_us, min(waiting)) if not running else now_us
            continue
        one = ready[next(picks) % len(ready)]
        if one.pending is not None:
            one.answer(now_us)
        elif isinstance(one.choose(now_us, draws.random), Done):
            running.append(one)
        # Watches and summaries bring every pool, late by a step.
        for cell, strategy in enumerate(strategies):
            wanted = strategy.interests(now_us, draws.random).pools if steps % 50 == 0 else ()
            queues = [other for one in hunters if one.need.own == cell for other in one.tickets]
            for other in {cell, *wanted, *queues}:
                strategy.on_word(table.seen(other), now_us)
            index.put(cell, table.seen(cell).free())
    return steps, hunters
