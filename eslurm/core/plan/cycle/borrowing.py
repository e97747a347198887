"""Starts of waiting jobs on cores that running jobs lend, and the room that borrowers keep when those end (R-03, R-04).

Lent cores are a room of uncertain end: no search and no promise counts on them. After a cycle's own starts, jobs that accept
borrowed cores are tried on what is free and what is lent together, in planning order. Invariants: a start delays no booking,
neither with what it takes now nor with what it keeps from an owner's expected end on; a job behind one that waits takes
free resources only where the policy backfills; a core is lent to one job at a time.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from msgspec.structs import replace

from eslurm.core.model.job import Span
from eslurm.core.model.lending import Loan
from eslurm.core.model.placement import Placement
from eslurm.core.plan.cycle.placement_query import allows
from eslurm.core.plan.cycle.policy import SKIP_STEPS, TRY_STEPS, Cycle
from eslurm.core.plan.cycle.queue import QueueEntry
from eslurm.core.plan.cycle.reasons import Why
from eslurm.core.plan.cycle.schedule import Booking, Return
from eslurm.core.plan.cycle.snapshot import Lendable, Lent
from eslurm.core.plan.placement.mapping import choose, spans_of
from eslurm.core.plan.profile.profile import ProfileError
from eslurm.core.plan.profile.search import Move
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.vector import CORES

TRIES_MAX: Final = 64
"""Jobs tried in one cycle."""


def foresee(cycle: Cycle) -> Generator[None, None, None]:
    """Book what borrowers keep when the owners of their cores end; plans in the way give way."""
    schedule = cycle.schedule
    for lent in cycle.snapshot.lent:
        held = schedule.held.get(lent.borrower)
        if held is None:
            continue
        tail = _tail(cycle, lent, held.booking)
        if tail is None:
            continue
        try:
            yield from schedule.claiming(None, tail)
        except ProfileError:
            # What runs there by its own right is late to leave.
            continue
        schedule.returns.append(Return(None, tail))
        cycle.spend(TRY_STEPS)
        if cycle.slice_over():
            yield


def start_on_lent(cycle: Cycle) -> Generator[None, None, None]:
    """Start jobs that accept borrowed cores on cores that are lent now."""
    snapshot = cycle.snapshot
    if not snapshot.lendable or cycle.is_full:
        return
    room = _Room(cycle, snapshot.lendable)
    tries = 0
    waiting = 0
    # Requests that did not fit: the room only shrinks.
    failed: set[tuple[int, bool]] = set()
    for entry in snapshot.pending:
        job = entry.job
        cycle.spend(SKIP_STEPS)
        if cycle.slice_over():
            yield
        if job.job_id in cycle.placed:
            continue
        members = cycle.members(job)
        is_behind = bool(waiting & members)
        can_try = (
            job.borrows
            and (entry.shape, is_behind) not in failed
            and not job.start_at_us
            and job.job_id not in cycle.schedule.preemptors
        )
        if can_try:
            tries += 1
            cycle.spend(TRY_STEPS)
            if cycle.slice_over():
                yield
            if (yield from room.start(entry, is_behind=is_behind)):
                if cycle.is_full or room.is_empty:
                    return
                continue
            failed.add((entry.shape, is_behind))
        waiting |= members
        if tries >= TRIES_MAX:
            return


def _tail(cycle: Cycle, lent: Lent, booking: Booking) -> Booking | None:
    """The part of these cores that the borrower has after their owner's expected end; None when it ends before."""
    from_us = max(cycle.schedule.end_us(lent.owner), cycle.now_us + 1)
    if from_us >= booking.stop_us:
        return None
    span = Span(lent.node, (lent.cores,), 0)
    return Booking(booking.job_id, from_us, booking.stop_us, (span,), (), cycle.now_us, is_return=True)


class _Room:
    """Free and lent amounts together; they shrink with each start."""

    __slots__ = ("_cycle", "_is_strict", "_ledger", "_lendable")

    def __init__(self, cycle: Cycle, lendable: Sequence[Lendable]) -> None:
        self._cycle = cycle
        # Without bookings of its own the policy has nothing that keeps others from delaying those ahead.
        self._is_strict = cycle.snapshot.is_strict
        self._ledger: Ledger = cycle.ledger.fork()
        self._lendable: dict[int, list[Lendable]] = {}
        for one in lendable:
            running = cycle.snapshot.running.get(one.owner)
            if running is None or one.node not in self._ledger.topology.positions:
                continue
            held = next((amounts for node, amounts in running.spans if node == one.node), None)
            if held is None:
                continue
            # Cores of several owners on one node are told apart by their holds.
            less = (*held[:CORES], held[CORES] - one.cores, *held[CORES + 1 :])
            self._ledger.rehold([(one.node, held, less)], running.until_us, running.until_us)
            self._lendable.setdefault(one.node, []).append(one)

    @property
    def is_empty(self) -> bool:
        """Check whether all that was lent is borrowed."""
        return not any(one.cores for there in self._lendable.values() for one in there)

    def start(self, entry: QueueEntry, *, is_behind: bool) -> Generator[None, None, bool]:
        """Place the job if it fits; whether it starts."""
        cycle, schedule, job = self._cycle, self._cycle.schedule, entry.job
        query = cycle.queries.careful(entry) if is_behind else cycle.queries.startable(entry)
        if isinstance(query, Why) or query.need.exclusive:
            return False
        chosen = choose(self._ledger, query.need)
        if chosen is None or not allows(query, cycle.now_us, chosen):
            return False
        spans = spans_of(cycle.ledger.topology, query.need, chosen)
        own, loans = self._split(spans, lent_first=is_behind)
        if not loans or (is_behind and self._is_strict and any(span.amounts[CORES] for span in own)):
            # Without a loan it is the policy that lets it wait.
            return False
        booking = cycle.booking(job, query.need, cycle.now_us, own)
        tails = [
            tail for loan in loans if (tail := _tail(cycle, _lent(job.job_id, loan), booking)) is not None
        ]
        moves, why = schedule.moves.get(job.job_id, ()), schedule.whys.get(job.job_id)
        planned = yield from schedule.removing(job.job_id)
        try:
            schedule.start(job, booking)
        except ProfileError:
            yield from _put_back(cycle, entry, planned, moves, why)
            return False
        taken: list[Booking] = []
        try:
            for tail in tails:
                yield from schedule.taking(None, tail)
                taken.append(tail)
        except ProfileError:
            for tail in taken:
                yield from schedule.giving(None, tail)
            schedule.starting.pop()
            yield from schedule.giving(job, booking)
            yield from _put_back(cycle, entry, planned, moves, why)
            return False
        schedule.returns += [Return(None, tail) for tail in taken]
        self._place(job.job_id, booking, spans, loans)
        return True

    def _split(self, spans: Sequence[Span], *, lent_first: bool) -> tuple[tuple[Span, ...], tuple[Loan, ...]]:
        """The spans without borrowed cores, and the loans."""
        positions, free = self._cycle.ledger.topology.positions, self._cycle.ledger.free_on
        own: list[Span] = []
        loans: list[Loan] = []
        for span in spans:
            cores = span.amounts[CORES]
            there = sum(one.cores for one in self._lendable.get(span.node, ()))
            lent = min(cores, there) if lent_first else max(0, cores - free(positions[span.node])[CORES])
            left = lent
            for one in self._lendable.get(span.node, ()) if lent else ():
                part = min(left, one.cores)
                if part:
                    loans.append(Loan(*one.owner, span.node, part))
                left -= part
            amounts = (*span.amounts[:CORES], cores - lent, *span.amounts[CORES + 1 :])
            own.append(replace(span, amounts=amounts) if lent else span)
        return tuple(own), tuple(loans)

    def _place(self, job_id: int, booking: Booking, spans: tuple[Span, ...], loans: tuple[Loan, ...]) -> None:
        cycle = self._cycle
        cycle.placements.append(Placement(job_id, spans, booking.until_us, booking.wide, loans=loans))
        cycle.placed[job_id] = 1
        cycle.waiting.pop(job_id, None)
        for ledger in (cycle.ledger, self._ledger):
            ledger.hold_wide(booking.wide)
        for span, whole in zip(booking.spans, spans, strict=True):
            cycle.ledger.hold(span.node, span.amounts, booking.until_us)
            self._ledger.hold(whole.node, whole.amounts, booking.until_us)
        for loan in loans:
            self._lendable[loan.node] = [
                replace(one, cores=one.cores - loan.cores) if one.owner == (loan.owner, loan.attempt) else one
                for one in self._lendable[loan.node]
            ]


def _lent(job_id: int, loan: Loan) -> Lent:
    return Lent((job_id, 0), (loan.owner, loan.attempt), loan.node, loan.cores)


def _put_back(
    cycle: Cycle, entry: QueueEntry, planned: tuple[Booking, ...], moves: tuple[Move, ...], why: Why | None
) -> Generator[None, None, None]:
    """Restore the plan of a job that was not started after all."""
    if not planned:
        return
    yield from cycle.schedule.adding(entry, planned, moves)
    if why is not None:
        cycle.schedule.whys[entry.job_id] = why
