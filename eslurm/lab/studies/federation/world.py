"""The cells of the study: a queue, searches for the first of its jobs, and the lender's changes of its pool.

A cell is counts and runs of bits: no controllers, no agents. Nodes are whole and all alike, each cell offers all of its idle
nodes (`lendable` 100 %, the published scheme), and its own jobs claim them as those of others do. A job begins when it
has all its nodes; at its end each lender closes its claim, several in one swap where they meet. Claims that are given back
take the same way.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from eslurm.core.federation import pools, runs
from eslurm.core.federation.patience import Patience
from eslurm.core.federation.strategies.free_index import FreeIndex
from eslurm.core.federation.strategies.interface import (
    Asking,
    Convert,
    Done,
    Enqueue,
    GiveBack,
    Interests,
    Later,
    Leave,
    Look,
    Need,
    PoolSeen,
    Search,
    Strategy,
    Take,
)
from eslurm.core.federation.strategies.table import STRATEGIES
from eslurm.core.model.federation import Claim, Pool, Runs
from eslurm.lab.studies.federation.shape import Job, Shape, draw_jobs, draw_running
from eslurm.lab.studies.federation.store import Change, Clock, Counters, Store

EPOCH: Final = 1
SUMMARY_US: Final = 200_000
"""The shortest time between two summaries of a cell."""
SUMMARY_SHARE: Final = 0.05
"""A change of free nodes that a summary tells, as a part of the cell."""


class Outcome(msgspec.Struct):
    """The fate of a job. Times that a job has not reached are -1."""

    job: Job
    began_us: int = -1
    """Its cell began to look for nodes."""
    started_us: int = -1
    foreign: int = 0
    """Nodes of other cells that it runs on."""
    pools: int = 0
    idle_node_us: int = 0
    """Nodes held by it times the time until it started, or until they were given back."""


class _Held(msgspec.Struct, frozen=True):
    """A claim of a search."""

    lender: int
    serial: int
    nodes: int
    at_us: int


class _Hunt(msgspec.Struct):
    """A job whose cell looks for nodes."""

    outcome: Outcome
    search: Search
    order: tuple[int, int, int]
    held: list[_Held]
    wakes: bool = False
    turn: int = 0
    """Wake-ups of earlier turns are void."""


class _Cell(msgspec.Struct):
    strategy: Strategy
    queue: deque[Outcome]
    hunts: list[_Hunt]
    mine: PoolSeen
    ended: list[tuple[int, int]]
    """Claims whose nodes are idle, to be closed."""
    idle: Runs = ()
    """Nodes to be offered that were in no claim."""
    is_changing: bool = False
    patience: Patience = msgspec.field(default_factory=Patience)
    timed_us: int = -1
    """The time of the next look for tickets to set aside."""
    booked: int = 0
    booked_us: int = 0
    """Nodes that tickets hold, and since when."""
    watched: tuple[int, ...] = ()
    watchers: list[int] = []
    due: bool = False
    """Its watchers are about to hear of its pool."""
    told_free: int = 0
    told_us: int = -SUMMARY_US


class World:
    """One run. `Counters` and `Outcome`s are complete when `run` has returned."""

    def __init__(self, shape: Shape, strategy: str) -> None:
        self.shape = shape
        self.counters = Counters()
        self.outcomes = [Outcome(job) for job in draw_jobs(shape)]
        self.clock = Clock()
        self._draws = random.Random(f"world {shape.seed}")
        running = draw_running(shape)
        self._whole: Runs = ((0, shape.nodes),)
        used_by = [0] * shape.cells
        for one in running:
            used_by[one.cell] += one.nodes
        initial = [_offered(used, shape.nodes - used) for used in used_by]
        self.store = Store(self.clock, self._draws, initial)
        self.store.on_change = self._pool_changed
        self._counts = FreeIndex()
        numbers = range(shape.cells)
        self.cells = [
            _Cell(STRATEGIES[strategy](cell, numbers, self._counts), deque(), [], self.store.seen(cell), [])
            for cell in numbers
        ]
        self._serial = 0
        self.booked_node_us = 0
        """Nodes held by tickets times the time."""
        self._left = len(self.outcomes)
        self._hears_summaries = False
        for number, cell in enumerate(self.cells):
            cell.strategy.on_word(cell.mine, 0)
            cell.told_free = cell.mine.free()
            self._counts.put(number, cell.told_free)
            self._ask_interests(number)
        for one in running:
            self.clock.at(one.until_us, partial(self._nodes_idle, one.cell, ((one.first, one.nodes),)))
        for outcome in self.outcomes:
            self.clock.at(outcome.job.at_us, partial(self._submitted, outcome))

    @property
    def started(self) -> int:
        """Jobs that have started."""
        return len(self.outcomes) - self._left

    def run(self, progress: Callable[[int, int], None]) -> None:
        """Until all jobs have started, or patience is at its end."""
        last_us = self.outcomes[-1].job.at_us if self.outcomes else 0
        work_us = sum(one.job.nodes * one.job.run_us for one in self.outcomes)
        work_us //= self.shape.cells * self.shape.nodes
        until_us = last_us + work_us + int(self.shape.patience * self.shape.run_s * 1e6)
        while self._left and self.clock.step(until_us):
            if not self.clock.events & 0xFFF:
                progress(self.started, len(self.outcomes))
        for number, cell in enumerate(self.cells):
            self._count_booked(number)
            for hunt in cell.hunts:
                _count_idle(hunt, self.clock.now_us)
        self.store.check([self._whole] * self.shape.cells)

    # ---- jobs ----

    def _submitted(self, outcome: Outcome) -> None:
        self.cells[outcome.job.cell].queue.append(outcome)
        self._begin_searches(outcome.job.cell)

    def _begin_searches(self, number: int) -> None:
        cell = self.cells[number]
        while cell.queue and len(cell.hunts) < self.shape.at_once:
            outcome = cell.queue.popleft()
            outcome.began_us = self.clock.now_us
            order = (self.store.revision, number + 1, outcome.job.serial)
            need = Need(number, outcome.job.serial, outcome.job.nodes, order)
            hunt = _Hunt(outcome, cell.strategy.begin(need), order, [])
            cell.hunts.append(hunt)
            self._advance(number, hunt)

    def _advance(self, number: int, hunt: _Hunt) -> None:
        """Take the next steps of a search, until one needs an answer or time."""
        hunt.turn += 1
        hunt.wakes = False
        while True:
            step = hunt.search.choose(self.clock.now_us, self._draws.random)
            match step:
                case GiveBack():
                    _count_idle(hunt, self.clock.now_us)
                    self._give_back(number, hunt)
                case Later(at_us, wakes):
                    hunt.wakes = wakes
                    self.clock.at(
                        max(at_us, self.clock.now_us + 1), partial(self._woken, number, hunt, hunt.turn)
                    )
                    return
                case Done():
                    self._start(number, hunt)
                    return
                case Look(cells):
                    self.counters.reads += 1
                    self.store.read(cells, partial(self._answered, number, hunt, step, True))
                    return
                case Take(parts):
                    self._take(number, hunt, step, parts)
                    return
                case Enqueue(parts):
                    self._enqueue(number, hunt, step, parts)
                    return
                case Convert(seen):
                    self._convert(number, hunt, step, seen)
                    return
                case Leave(seen):
                    self._leave(number, hunt, step, seen)
                    return

    def _woken(self, number: int, hunt: _Hunt, turn: int) -> None:
        if hunt.turn == turn:
            self._advance(number, hunt)

    def _take(self, number: int, hunt: _Hunt, step: Take, parts: Sequence[tuple[PoolSeen, int]]) -> None:
        self._serial += 1
        wish = Claim(number + 1, self._serial, EPOCH, hunt.order, 0)

        def changing(count: int) -> Change:
            return lambda pool: pools.claim(pool, wish, count)

        def answer(done: bool, seen: list[PoolSeen]) -> None:
            self._count_claim(done)
            if done:
                now_us = self.clock.now_us
                hunt.held += [_Held(one.cell, wish.serial, count, now_us) for one, count in parts]
            self._answered(number, hunt, step, done, seen)

        self.store.change([(seen, changing(count)) for seen, count in parts], answer)

    def _enqueue(
        self, number: int, hunt: _Hunt, step: Enqueue, parts: Sequence[tuple[PoolSeen, int]]
    ) -> None:
        self._serial += 1
        ticket = Claim(number + 1, self._serial, EPOCH, hunt.order, 0)

        def entering(count: int) -> Change:
            return lambda pool: pools.queue(pool, replace(ticket, wanted=count))

        def answer(done: bool, seen: list[PoolSeen]) -> None:
            self._count_claim(done)
            self._answered(number, hunt, step, done, self._watch(number, seen) if done else seen)

        self.store.change([(seen, entering(count)) for seen, count in parts], answer)

    def _convert(self, number: int, hunt: _Hunt, step: Convert, seen: Sequence[PoolSeen]) -> None:
        tickets = [
            (one.cell, pools.find_ticket(one.pool, hunt.order)) for one in seen if one.pool is not None
        ]
        found = [(cell, ticket) for cell, ticket in tickets if ticket is not None]

        def converting(ticket: Claim) -> Change:
            return lambda pool: pools.convert(pool, pools.id_of(ticket))

        def answer(done: bool, now: list[PoolSeen]) -> None:
            self._count_claim(done)
            if done:
                self._unwatch(number, now)
                now_us = self.clock.now_us
                hunt.held += [_Held(cell, one.serial, one.wanted, now_us) for cell, one in found]
            self._answered(number, hunt, step, done, now)

        self.store.change(
            [(one, converting(ticket)) for one, (_, ticket) in zip(seen, found, strict=True)], answer
        )

    def _leave(self, number: int, hunt: _Hunt, step: Leave, seen: Sequence[PoolSeen]) -> None:
        def answer(done: bool, now: list[PoolSeen]) -> None:
            self._count_claim(done)
            if done:
                self._unwatch(number, now)
            self._answered(number, hunt, step, done, now)

        self.store.change(
            [(one, lambda pool: pools.without_ticket(pool, hunt.order)) for one in seen], answer
        )

    def _count_claim(self, done: bool) -> None:
        if done:
            self.counters.claims += 1
        else:
            self.counters.failed_claims += 1

    def _watch(self, number: int, seen: Sequence[PoolSeen]) -> list[PoolSeen]:
        """Watch pools from now on. A watch begins with the pool as it is."""
        for one in seen:
            if one.cell != number:
                self.cells[one.cell].watchers.append(number)
                self.counters.watched += 1
        return [self.store.seen(one.cell) for one in seen]

    def _unwatch(self, number: int, seen: Sequence[PoolSeen]) -> None:
        for one in seen:
            if one.cell != number:
                self.cells[one.cell].watchers.remove(number)

    def _answered(self, number: int, hunt: _Hunt, step: Asking, done: bool, seen: list[PoolSeen]) -> None:
        for one in seen:
            if one.cell == number:
                self._note_own(one)
        hunt.search.answered(step, done, seen, self.clock.now_us)
        self._advance(number, hunt)

    def _start(self, number: int, hunt: _Hunt) -> None:
        cell, outcome = self.cells[number], hunt.outcome
        outcome.started_us = self.clock.now_us
        outcome.pools = len({one.lender for one in hunt.held})
        outcome.foreign = sum(one.nodes for one in hunt.held if one.lender != number)
        _count_idle(hunt, self.clock.now_us)
        self._left -= 1
        # Each lender hears that its claim is to be opened, and at the end that it is to be closed.
        self.counters.links += len({one.lender for one in hunt.held} - {number})
        self.clock.at(self.clock.now_us + outcome.job.run_us, partial(self._give_back, number, hunt))
        cell.hunts.remove(hunt)
        cell.strategy.ended(hunt.search)
        self._begin_searches(number)

    def _give_back(self, number: int, hunt: _Hunt) -> None:
        """Tell the lenders that the nodes are idle."""
        by_lender: dict[int, list[tuple[int, int]]] = {}
        for one in hunt.held:
            by_lender.setdefault(one.lender, []).append((number + 1, one.serial))
        hunt.held.clear()
        for lender, claims in by_lender.items():
            if lender == number:
                self._claims_ended(lender, claims)
            else:
                self.counters.links += 1
                self.clock.at(
                    self.clock.now_us + self.store.hop_us(), partial(self._claims_ended, lender, claims)
                )

    # ---- the lender ----

    def _claims_ended(self, number: int, claims: list[tuple[int, int]]) -> None:
        self.cells[number].ended += claims
        self._change_own(number)

    def _nodes_idle(self, number: int, nodes: Runs) -> None:
        cell = self.cells[number]
        cell.idle = runs.union(cell.idle, nodes)
        self._change_own(number)

    def _change_own(self, number: int) -> None:
        """One swap for all that has come together."""
        cell = self.cells[number]
        due_us = cell.patience.next_us
        is_due = due_us is not None and due_us <= self.clock.now_us
        if cell.is_changing or not (cell.ended or cell.idle or is_due):
            return
        cell.is_changing = True
        ended, idle, now_us = list(cell.ended), cell.idle, self.clock.now_us

        def change(pool: Pool) -> Pool:
            return cell.patience.pass_on(pools.offer(pools.close(pool, ended), idle), now_us)

        def answer(done: bool, seen: list[PoolSeen]) -> None:
            cell.is_changing = False
            self._note_own(seen[0])
            if done:
                self.counters.returns += 1
                del cell.ended[: len(ended)]
                cell.idle = runs.difference(cell.idle, idle)
            else:
                self.counters.failed_returns += 1
            self._change_own(number)

        self.store.change([(cell.mine, change)], answer)

    def _time_tickets(self, number: int) -> None:
        """Pass the nodes of a ready ticket on when they have waited for too long."""
        cell = self.cells[number]
        if cell.mine.pool is not None:
            cell.patience.note(cell.mine.pool, self.clock.now_us)
        due_us = cell.patience.next_us
        if due_us is not None and due_us != cell.timed_us:
            cell.timed_us = due_us
            self.clock.at(max(due_us, self.clock.now_us), partial(self._change_own, number))

    # ---- words ----

    def _note_own(self, seen: PoolSeen) -> None:
        cell = self.cells[seen.cell]
        if seen.version > cell.mine.version:
            cell.mine = seen
            cell.strategy.on_word(seen, self.clock.now_us)
            self._time_tickets(seen.cell)
            if self._hears_summaries:
                self._tell_summary(seen.cell)

    def _pool_changed(self, number: int, at_us: int) -> None:
        """A change is on disk then: watchers hear of it."""
        cell = self.cells[number]
        self._count_booked(number)
        self.counters.watched += 1 + len(cell.watchers)
        if not cell.due:
            cell.due = True
            self.clock.at(at_us + self.store.hop_us(), partial(self._deliver, number))

    def _count_booked(self, number: int) -> None:
        cell, pool = self.cells[number], self.store.seen(number).pool
        self.booked_node_us += cell.booked * (self.clock.now_us - cell.booked_us)
        cell.booked_us = self.clock.now_us
        cell.booked = (
            sum(runs.size(one.nodes) for one in pool.claims if one.wanted) if pool is not None else 0
        )

    def _deliver(self, number: int) -> None:
        cell = self.cells[number]
        cell.due = False
        seen = self.store.seen(number)
        self._note_own(seen)
        self._wake(number)
        for watcher in cell.watchers:
            self.cells[watcher].strategy.on_word(seen, self.clock.now_us)
            self._wake(watcher)

    def _wake(self, number: int) -> None:
        for hunt in list(self.cells[number].hunts):
            if hunt.wakes:
                self._advance(number, hunt)

    def _ask_interests(self, number: int) -> None:
        wanted: Interests = self.cells[number].strategy.interests(self.clock.now_us, self._draws.random)
        self._hears_summaries |= wanted.summaries
        for other in self.cells[number].watched:
            self.cells[other].watchers.remove(number)
        self.cells[number].watched = wanted.pools
        for other in wanted.pools:
            self.cells[other].watchers.append(number)
            # A watch begins with the pool as it is.
            self.counters.watched += 1
            self.cells[number].strategy.on_word(self.store.seen(other), self.clock.now_us)
        if wanted.until_us < 2**62:
            self.clock.at(wanted.until_us, partial(self._ask_interests, number))

    def _tell_summary(self, number: int) -> None:
        """Write a summary where enough has changed; all cells hear of it."""
        cell, now_us = self.cells[number], self.clock.now_us
        free = cell.mine.free()
        changed = abs(free - cell.told_free) > SUMMARY_SHARE * self.shape.nodes
        if not changed and (free == 0) == (cell.told_free == 0):
            return
        if now_us < cell.told_us + SUMMARY_US:
            self.clock.at(cell.told_us + SUMMARY_US, partial(self._tell_summary, number))
            return
        cell.told_us, cell.told_free = now_us, free
        self.counters.summaries += 1
        self.counters.watched += self.shape.cells - 1
        self.clock.at(self.store.write() + 2 * self.store.hop_us(), partial(self._counts.put, number, free))


def _offered(first: int, count: int) -> Pool:
    pool = pools.empty(EPOCH)
    return pools.offer(pool, ((first, count),)) if count else pool


def _count_idle(hunt: _Hunt, now_us: int) -> None:
    hunt.outcome.idle_node_us += sum(one.nodes * (now_us - one.at_us) for one in hunt.held)
