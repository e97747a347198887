"""Places for those who lost theirs: work outlived its limit, nodes went out, they ask for something else (C-39).

They look for another place in the order of the policy. When something that had to be where they were planned is to blame
and one of them would begin later than that ends, those behind it in the order give up their places and are planned anew,
one after the other: the loss is shared instead of falling on one. Invariant: who stands before the first that would lose
keeps its place, neither arrivals nor nodes that go out set this off (C-59), and at most `PlanLimits.improved_max` give way
in one cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TypeAlias

from eslurm.core.plan.cycle.forward import Ahead
from eslurm.core.plan.cycle.policy import SPAN_STEPS, TRY_STEPS
from eslurm.core.plan.cycle.queue import QueueEntry
from eslurm.core.plan.cycle.schedule import Schedule

Rank: TypeAlias = tuple[bool, tuple[int, ...]]
Order: TypeAlias = Callable[[QueueEntry, int], tuple[int, ...]]
"""Where a job stands, by its entry and the start it has or had; the least comes first."""


def by_start(entry: QueueEntry, start_us: int) -> tuple[int, ...]:
    """In the order of the starts that were promised."""
    return start_us, entry.job_id


def by_priority(entry: QueueEntry, _: int) -> tuple[int, ...]:
    """By priority, then age."""
    return entry.turn


def recover(ahead: Ahead, jobs: Iterable[QueueEntry], order: Order) -> Generator[None, None, None]:
    """Plans those of the jobs that have lost their places, and those behind them if need be."""
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
    """Dependants come behind those that they may wait for."""
    return bool(entry.job.after), order(entry, start_us)


def _last_start_us(schedule: Schedule, job_id: int) -> int:
    """Where the last of a job begins; 0 for one without a place: giving way would not help it."""
    return max([booking.start_us for booking in schedule.bookings.get(job_id, ())], default=0)


def _give_way(
    ahead: Ahead, order: Order, rank: Rank, start_us: int
) -> Generator[None, None, list[tuple[Rank, QueueEntry]]]:
    """Takes the places of those behind that rank, if they end after that start; those who start first go first."""
    cycle, schedule = ahead.cycle, ahead.schedule
    behind: list[tuple[int, Rank, QueueEntry]] = []
    for job_id, bookings in schedule.bookings.items():
        entry = schedule.entries[job_id]
        if entry.job.start_at_us or job_id in schedule.claimants:
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
