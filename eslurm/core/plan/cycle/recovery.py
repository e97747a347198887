"""New places for displaced jobs: an attempt outlived its limit, nodes went out, a request changed (C-39).

They are replanned in the policy's order. When an attempt that could not move is the cause and one of them would begin
later than that attempt ends, those behind it in the order give up their places and are replanned one after the other: the
loss is shared. Invariant: jobs before the first loser keep their places, neither arrivals nor failed nodes start this
(C-59), and at most `PlanLimits.improved_max` jobs give way in one cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TypeAlias

from eslurm.core.plan.cycle.forward import ForwardPlanner
from eslurm.core.plan.cycle.policy import SPAN_STEPS, TRY_STEPS
from eslurm.core.plan.cycle.queue import QueueEntry
from eslurm.core.plan.cycle.schedule import Schedule

Rank: TypeAlias = tuple[bool, tuple[int, ...]]
Order: TypeAlias = Callable[[QueueEntry, int], tuple[int, ...]]
"""Sort key of a job, from its entry and the start it has or had; the least comes first."""


def by_start(entry: QueueEntry, start_us: int) -> tuple[int, ...]:
    """Order by promised starts."""
    return start_us, entry.job_id


def by_priority(entry: QueueEntry, _: int) -> tuple[int, ...]:
    """Order by priority, then age."""
    return entry.turn


def recover(ahead: ForwardPlanner, jobs: Iterable[QueueEntry], order: Order) -> Generator[None, None, None]:
    """Replan jobs that lost their places, and those behind them where needed."""
    schedule = ahead.schedule
    if not schedule.displaced:
        return
    displaced, schedule.displaced = schedule.displaced, {}
    lost = [
        (_rank(order, entry, displaced[entry.job_id][0]), entry)
        for entry in jobs
        if entry.job_id in displaced
    ]
    lost.sort()
    for index, (rank, entry) in enumerate(lost):
        yield from ahead.plan(entry)
        start_us, until_us = displaced[entry.job_id]
        if _last_start_us(schedule, entry.job_id) > until_us:
            yield from schedule.removing(entry.job_id)
            again = lost[index:] + (yield from _give_way(ahead, order, rank, start_us))
            break
    else:
        return
    again.sort()
    ahead.forget_searches()
    for _, entry in again:
        yield from ahead.plan(entry)


def _rank(order: Order, entry: QueueEntry, start_us: int) -> Rank:
    """The rank of a job; dependents come behind their dependencies."""
    return bool(entry.job.after), order(entry, start_us)


def _last_start_us(schedule: Schedule, job_id: int) -> int:
    """Last planned start of a job; 0 for one without a place, which cannot give way."""
    return max([booking.start_us for booking in schedule.bookings.get(job_id, ())], default=0)


def _give_way(
    ahead: ForwardPlanner, order: Order, rank: Rank, start_us: int
) -> Generator[None, None, list[tuple[Rank, QueueEntry]]]:
    """Release the places behind that rank that end after that start, in the order of their starts."""
    cycle, schedule = ahead.cycle, ahead.schedule
    behind: list[tuple[int, Rank, QueueEntry]] = []
    for job_id, bookings in schedule.bookings.items():
        entry = schedule.entries[job_id]
        if entry.job.start_at_us or job_id in schedule.preemptors:
            continue
        if all(booking.stop_us <= start_us for booking in bookings):
            continue
        first_us = min(booking.start_us for booking in bookings)
        own = _rank(order, entry, first_us)
        if own > rank:
            behind.append((first_us, own, entry))
        cycle.spend(1)
        if cycle.slice_over():
            yield
    behind.sort()
    if cycle.limits.improved_max:
        del behind[cycle.limits.improved_max :]
    for _, _, entry in behind:
        gone = yield from schedule.removing(entry.job_id)
        cycle.spend(sum(TRY_STEPS + SPAN_STEPS * len(booking.spans) for booking in gone))
        if cycle.slice_over():
            yield
    return [(own, entry) for _, own, entry in behind]
