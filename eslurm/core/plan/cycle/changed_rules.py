"""Planned starts under changed rules: those still allowed stay.

Plans are examined in the order of their starts, each as if it were made now, behind all earlier ones. Invariant: an
allowed plan keeps its place, a forbidden one is displaced, and no job starts later for a rule that binds others only;
running jobs count, but are left alone.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import msgspec

from eslurm.core.plan.cycle.array_tasks import allowed_together, merged, split
from eslurm.core.plan.cycle.assignments import assignment_of
from eslurm.core.plan.cycle.placement_query import allows, is_open, query_of
from eslurm.core.plan.cycle.queue import QueueEntry
from eslurm.core.plan.cycle.reasons import Why
from eslurm.core.plan.cycle.schedule import KEYS_PER_SLICE, Booking, Charge, Held, Schedule, charge_of
from eslurm.core.plan.cycle.snapshot import Snapshot
from eslurm.core.plan.profile.search import PlacementQuery
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.timeline import INFINITY_US, Timeline
from eslurm.core.resources.usage import Steps, steps_of

ASKED_PER_SLICE: Final = 16
NODES_PER_ASK: Final = 64
ENOUGH: Final = 10**18


def keep_allowed(schedule: Schedule, snapshot: Snapshot) -> Generator[None, None, None]:
    """Check every plan against the schedule's new rules, which count nothing yet."""
    schedule.stuck.clear()
    schedule.to_improve.clear()
    # What was forbidden may be allowed now.
    schedule.freed = schedule.book.topology.everything
    ruling = _Ruling(schedule, snapshot)
    yield from ruling.count_running()
    order = sorted(
        (booking.start_us, job_id, index)
        for job_id, bookings in schedule.bookings.items()
        for index, booking in enumerate(bookings)
    )
    plans = dict(schedule.bookings)
    yield
    if schedule.rules is not None:
        schedule.rules.rest_on(ruling.past)
    work = 0
    for _, job_id, index in order:
        booking = plans[job_id][index]
        if job_id in schedule.bookings:
            yield from ruling.judge(schedule.entries[job_id], booking)
        work += 1 + len(booking.spans) // NODES_PER_ASK
        if work >= ASKED_PER_SLICE:
            work = 0
            yield
    if schedule.rules is not None:
        schedule.rules.rest_on(schedule.book)
    yield from ruling.count_the_rest()


class _Past:
    """Use by running jobs and by the plans allowed so far; the profile also holds the plans not yet examined.

    Only resources that a pool keeps free are counted. Invariant: every amount fits, because the profile has refused larger
    ones.
    """

    def __init__(self, topology: Topology, snapshot: Snapshot) -> None:
        pools = {getattr(pool, "resource", "") for pool in snapshot.policies.get("pool", {}).values()}
        self._lines = [Timeline(ENOUGH) for _ in topology.resources]
        self._wide = [Timeline(ENOUGH) for _ in topology.wide]
        self._kept = [index for index, name in enumerate(topology.resources) if name in pools]
        self._kept_wide = [index for index, name in enumerate(topology.wide) if name in pools]

    def steps(self, resource: int) -> Steps:
        """See `Future`."""
        return steps_of(self._lines[resource])

    def wide_used(self, index: int) -> Timeline:
        """See `Future`."""
        return self._wide[index]

    def add(self, booking: Booking) -> None:
        """Count a booking that begins no earlier than its predecessors: earlier instants are never queried again."""
        for index in self._kept:
            items = sum(span.amounts[index] for span in booking.spans if index < len(span.amounts))
            _use(self._lines[index], booking, items)
        for index in self._kept_wide:
            _use(self._wide[index], booking, booking.wide[index] if index < len(booking.wide) else 0)


class _Ruling:
    """One pass over all plans."""

    __slots__ = ("_queries", "past", "schedule", "snapshot")

    def __init__(self, schedule: Schedule, snapshot: Snapshot) -> None:
        self.schedule = schedule
        self.snapshot = snapshot
        self.past = _Past(schedule.book.topology, snapshot)
        self._queries: dict[tuple[int, int], PlacementQuery | Why | None] = {}

    def count_running(self) -> Generator[None, None, None]:
        """Count running jobs until their planned ends, whatever the rules say.

        A late launch, an extension or a suspension moves no plan behind it: those plans are checked against the actual use
        when they begin.
        """
        rules = self.schedule.rules
        for number, held in enumerate(self.schedule.held.values()):
            charge = _as_planned(held)
            if rules is not None and held.running.job is not None:
                rules.book(held.running.job, charge)
            self.past.add(msgspec.structs.replace(held.booking, stop_us=charge.stop_us))
            if number % ASKED_PER_SLICE == 0:
                yield

    def count_the_rest(self) -> Generator[None, None, None]:
        """Count attempts past their planned ends for as long as they are expected to run."""
        rules = self.schedule.rules
        for number, held in enumerate(self.schedule.held.values()):
            job, charge, whole = held.running.job, _as_planned(held), charge_of(held.booking)
            if rules is not None and job is not None and charge != whole:
                rules.revoke(job, charge)
                rules.book(job, whole)
            if number % KEYS_PER_SLICE == KEYS_PER_SLICE - 1:
                yield

    def judge(self, entry: QueueEntry, booking: Booking) -> Generator[None, None, None]:
        """Count the allowed part of a plan, and displace the rest."""
        schedule = self.schedule
        if entry.job.followers:
            yield from self._judge_member(entry, booking)
            return
        query = self._query(entry)
        allowed = booking if query is None else self._allowed(query, entry, booking)
        schedule.charge(entry.job, booking)
        if allowed is not booking:
            job_id, moves = entry.job_id, schedule.moves.get(entry.job_id, ())
            # Gives back what it was charged for above.
            schedule.drop(job_id, booking)
            schedule.free_early(booking.spans)
            schedule.displaced[job_id] = booking.start_us, INFINITY_US
            if allowed is not None:
                yield from schedule.adding(entry, (allowed,), moves)
        if allowed is not None:
            self.past.add(allowed)

    def _judge_member(self, entry: QueueEntry, booking: Booking) -> Generator[None, None, None]:
        """Count the place of a pack's member; one that is not allowed costs the whole pack its places."""
        schedule = self.schedule
        bookings = schedule.bookings[entry.job_id]
        index = next(index for index, one in enumerate(bookings) if one is booking)
        member = entry.job.members[index]
        query = self._query(entry, index)
        allowed = booking if query is None else self._allowed(query, entry, booking)
        schedule.charge(member, booking)
        if allowed is not None:
            self.past.add(booking)
            return
        for at, (later, one) in enumerate(zip(entry.job.members, bookings, strict=True)):
            if (one.start_us, at) > (booking.start_us, index):
                # Not judged yet, and so not charged either: gives back what it was charged for.
                schedule.charge(later, one)
        yield from schedule.displacing(entry.job_id)

    def _allowed(self, query: PlacementQuery | Why, entry: QueueEntry, booking: Booking) -> Booking | None:
        """The part of the booking that the rules let begin as planned: for an array perhaps some tasks."""
        schedule = self.schedule
        if isinstance(query, Why):
            return None
        topology = schedule.book.topology
        at_us = max(booking.start_us, schedule.book.now_us)
        if booking.tasks == 1:
            return booking if allows(query, at_us, assignment_of(booking, topology)) else None
        parts = split(booking)
        if not is_open(query, at_us, assignment_of(booking, topology)):
            parts = [part for part in parts if is_open(query, at_us, assignment_of(part, topology))]
        if not parts or not allows(query, at_us, assignment_of(parts[0], topology)):
            return None
        if query.constraints:
            del parts[allowed_together(schedule, entry.job, query, at_us, len(parts), is_promised=True) :]
        return booking if len(parts) == booking.tasks else merged(parts)

    def _query(self, entry: QueueEntry, member: int = 0) -> PlacementQuery | Why | None:
        """The query of the job or of its pack's member, shared by all of its shape; None when its partition is gone."""
        key = entry.shape, member
        if key not in self._queries:
            self._queries[key] = None
            if self.snapshot.has_partitions(entry.job):
                schedule, job = self.schedule, entry.job.members[member] if member else entry.job
                need = schedule.need(job, self.snapshot.partitions)
                self._queries[key] = query_of(job, need, schedule.rules, schedule.book.now_us)
        return self._queries[key]


def _as_planned(held: Held) -> Charge:
    """The charge of an attempt that ends as planned; for one past that end, as it is."""
    charge, planned_us = charge_of(held.booking), held.running.planned_us
    if not planned_us or planned_us >= charge.until_us:
        return charge
    is_past = planned_us <= charge.start_us
    stop_us = charge.stop_us if is_past else min(charge.stop_us, planned_us)
    return msgspec.structs.replace(charge, stop_us=stop_us, until_us=max(planned_us, charge.start_us))


def _use(line: Timeline, booking: Booking, items: int) -> None:
    line.forget(booking.start_us)
    if items:
        line.hold(booking.start_us, booking.stop_us, items)
