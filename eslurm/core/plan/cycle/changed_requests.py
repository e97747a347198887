"""Requests that change while the job waits (C-59): a job that still fits its place keeps its starts.

It is then examined before all others for an earlier place (`Ahead.improve`). Invariant: no other job's plan changes, and
the profile holds either the new plan or none of the job's.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from eslurm.core.plan.cycle.array_tasks import as_many
from eslurm.core.plan.cycle.placement_query import is_open, query_of
from eslurm.core.plan.cycle.queue import Pending, QueueEntry
from eslurm.core.plan.cycle.reasons import Why
from eslurm.core.plan.cycle.schedule import Booking, Schedule, ends_of
from eslurm.core.plan.cycle.snapshot import Snapshot
from eslurm.core.plan.placement.mapping import spans_of
from eslurm.core.plan.profile.search import NoStart, PlacementQuery, narrowed, start_exactly
from eslurm.core.resources.vector import fits

_STANDING: Final = ("partition", "user", "groups", "account", "qos", "reservation")
"""The fields by which rules identify a job's consumers."""


def follow_request(schedule: Schedule, snapshot: Snapshot, entry: QueueEntry) -> Generator[None, None, None]:
    """Plan the changed request at the job's present starts; the job loses its place when it does not fit."""
    job_id, job, was = entry.job_id, entry.job, schedule.entries[entry.job_id].job
    is_appointed = job.start_at_us or was.start_at_us or job_id in schedule.preemptors
    if is_appointed or schedule.renews or snapshot.closed_partition(job) is not None:
        yield from schedule.displacing(job_id)
        return
    query = query_of(job, schedule.need(job, snapshot.partitions), schedule.rules, snapshot.now_us)
    old = schedule.bookings[job_id]
    if isinstance(query, Why) or any(one.start_us < job.not_before_us for one in old):
        yield from schedule.displacing(job_id)
        return
    yield from schedule.book.preparing(query.need)
    yield from schedule.removing(job_id)
    new = yield from _where_it_was(schedule, entry, was, query, old)
    new = new or (yield from _at_the_same_starts(schedule, snapshot.now_us, entry, query, old))
    if not new:
        schedule.lose(job_id, old)
        return
    schedule.note(entry, new, ())
    schedule.changed.add(job_id)
    schedule.free_early(span for booking in old for span in booking.spans)


def _where_it_was(
    schedule: Schedule, entry: QueueEntry, was: Pending, query: PlacementQuery, old: Sequence[Booking]
) -> Generator[None, None, list[Booking]]:
    """The same nodes for no longer with no larger amounts: no rule applies again. Jobs with more rights may have been
    planned beside it since, so a new start there could be refused.
    """
    job = entry.job
    booking = old[0]
    is_alike = all(getattr(job, name) == getattr(was, name) for name in _STANDING)
    is_alike &= [part.partition for part in job.parts] == [part.partition for part in was.parts]
    at_us = max(booking.start_us, schedule.book.now_us)
    stop_us, until_us = ends_of(job, at_us)
    if len(old) > 1 or booking.tasks > 1 or not is_alike or stop_us > booking.stop_us:
        return []
    topology = schedule.book.topology
    own = topology.mask_of_numbers(span.node for span in booking.spans)
    need = narrowed(query.need, own)
    if until_us > booking.until_us or not need.allowed or need.include & ~own:
        return []
    chosen = schedule.book.fits_at(need, at_us, stop_us - at_us, query.closed)
    if chosen is None or not is_open(query, at_us, chosen):
        return []
    spans = spans_of(topology, need, chosen)
    # Part by part: rules may tell the partitions of two parts on one node apart.
    had = {(span.node, span.component): span.amounts for span in booking.spans}
    if not fits(need.wide, booking.wide) or not all(
        fits(span.amounts, had.get((span.node, span.component), ())) for span in spans
    ):
        return []
    new = Booking(job.job_id, at_us, stop_us, spans, need.wide, booking.made_us, 1, until_us)
    yield from schedule.taking(job, new)
    return [new]


def _at_the_same_starts(
    schedule: Schedule, now_us: int, entry: QueueEntry, query: PlacementQuery, old: Sequence[Booking]
) -> Generator[None, None, list[Booking]]:
    """Bookings for as many tasks as before, each at its present start; empty when one of them does not fit."""
    job = entry.job
    left = job.startable
    taken: list[Booking] = []
    for booking in sorted(old, key=lambda one: one.start_us):
        at_us = max(booking.start_us, now_us)
        tasks = min(booking.tasks, left)
        left -= tasks
        while tasks > 0:
            found = start_exactly(schedule.book, query, at_us)
            if isinstance(found, NoStart):
                for one in taken:
                    yield from schedule.giving(job, one)
                return []
            together, need, chosen = 1, query.need, found.chosen
            if tasks > 1:
                together, need, chosen = as_many(schedule, job, query, found, tasks)
            spans = spans_of(schedule.book.topology, need, chosen)
            stop_us, until_us = ends_of(job, at_us)
            new = Booking(job.job_id, at_us, stop_us, spans, need.wide, now_us, together, until_us)
            yield from schedule.taking(job, new)
            taken.append(new)
            tasks -= together
            yield
    return taken
