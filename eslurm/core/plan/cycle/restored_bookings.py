"""Promises that outlive their planner: from bookings to the log, and from there to a new schedule (ADR 17).

Invariant: a restored booking has the same start, nodes, amounts and tasks, as long as its job asks for the same.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from itertools import chain, groupby
from typing import Final

from eslurm.core.model.job import Span
from eslurm.core.model.promise import Promise, PromisedStart, Run
from eslurm.core.plan.cycle.assignments import component_of
from eslurm.core.plan.cycle.queue import Pending, QueueEntry
from eslurm.core.plan.cycle.reasons import Why, WhyKind
from eslurm.core.plan.cycle.schedule import Booking, Schedule, ends_of
from eslurm.core.plan.cycle.snapshot import Snapshot
from eslurm.core.resources.vector import Vector, scale

STARTS_MAX: Final = 8
"""Number of an array's next starts in the log: each task that starts changes the record."""
PROMISES_PER_SLICE: Final = 128


def kept_of(job_id: int, bookings: Iterable[Booking]) -> Promise:
    """The promise that the log keeps of a job's bookings; of a pack, all members' starts in their order."""
    first = list(bookings)
    if not any(booking.job_id != job_id for booking in first):
        first = sorted(first, key=_start_us)[:STARTS_MAX]
    return Promise(job_id, tuple([_promised(one) for one in first]))


def _promised(booking: Booking) -> PromisedStart:
    if not booking.has_parts:
        return PromisedStart(booking.start_us, _runs_of(booking.spans), booking.tasks)
    by_part = [_runs_of(list(spans)) for _, spans in groupby(booking.spans, component_of)]
    runs = tuple(chain.from_iterable(by_part))
    return PromisedStart(booking.start_us, runs, booking.tasks, tuple([len(one) for one in by_part]))


def take_over(
    schedule: Schedule, snapshot: Snapshot
) -> Generator[None, None, tuple[dict[int, tuple[Booking, ...]], dict[int, QueueEntry]]]:
    """Bookings from an earlier planner's promises, not booked yet, and the entries of their jobs."""
    found: dict[int, tuple[Booking, ...]] = {}
    entries: dict[int, QueueEntry] = {}
    for number, promise in enumerate(snapshot.promises.values(), 1):
        job_id = promise.job_id
        # What becomes of it is to be told.
        schedule.moved.add(job_id)
        entry = snapshot.known.get(job_id)
        bookings = _bookings_of(schedule, snapshot, entry, promise) if entry is not None else ()
        if entry is not None and bookings:
            found[job_id], entries[job_id] = bookings, entry
            text = "waits for the start that it was promised"
            schedule.whys[job_id] = Why(WhyKind.RESOURCES, text, promise.start_us)
        else:
            schedule.unkept[job_id] = "it may not start then any more"
        if number % PROMISES_PER_SLICE == 0:
            yield
    return found, entries


def _bookings_of(
    schedule: Schedule, snapshot: Snapshot, entry: QueueEntry, promise: Promise
) -> tuple[Booking, ...]:
    job = entry.job
    if not snapshot.has_partitions(job):
        return ()
    if job.followers:
        return _bookings_of_pack(schedule, snapshot, job, promise)
    wide = schedule.need(job, snapshot.partitions).wide
    found: list[Booking] = []
    left = job.startable
    for one in promise.starts:
        left -= one.tasks
        if left < 0:
            break
        stop_us, until_us = ends_of(job, one.start_us)
        found.append(
            Booking(
                job.job_id,
                one.start_us,
                stop_us,
                _spans_of(one),
                scale(wide, one.tasks),
                snapshot.now_us,
                one.tasks,
                until_us,
            )
        )
    return tuple(found)


def _bookings_of_pack(
    schedule: Schedule, snapshot: Snapshot, job: Pending, promise: Promise
) -> tuple[Booking, ...]:
    """The places of all members; none when the promise was made for other members or delays."""
    starts = promise.starts
    delays_us = [one.start_us - promise.start_us for one in starts]
    if delays_us != list(job.delays_us):
        return ()
    found: list[Booking] = []
    for member, one in zip(job.members, starts, strict=True):
        wide = schedule.need(member, snapshot.partitions).wide
        stop_us, until_us = ends_of(member, one.start_us)
        spans = _spans_of(one)
        found.append(Booking(member.job_id, one.start_us, stop_us, spans, wide, snapshot.now_us, 1, until_us))
    return tuple(found)


def _runs_of(spans: Sequence[Span]) -> tuple[Run, ...]:
    """Spans as runs, in this order."""
    found: list[Run] = []
    amounts: Vector | None = None
    first = count = tasks = 0
    said: Vector = ()
    for span in spans:
        if count and span.node == first + count and span.tasks == tasks and span.amounts == amounts:
            count += 1
            continue
        if count:
            found.append(Run(first, count, tasks, said))
        said = () if span.amounts == amounts else span.amounts
        first, count, tasks, amounts = span.node, 1, span.tasks, span.amounts
    if count:
        found.append(Run(first, count, tasks, said))
    return tuple(found)


def _spans_of(start: PromisedStart) -> tuple[Span, ...]:
    """The spans from which `_promised` made it."""
    found: list[Span] = []
    amounts: Vector = ()
    parts = chain.from_iterable(
        [part] * count for part, count in enumerate(start.parts or (len(start.runs),))
    )
    for run, part in zip(start.runs, parts, strict=False):
        amounts = run.amounts or amounts
        found += [Span(node, amounts, run.tasks, part) for node in range(run.node, run.node + run.count)]
    return tuple(found)


def _start_us(booking: Booking) -> int:
    return booking.start_us
