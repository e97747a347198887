"""Places for jobs that wait for other jobs or for a begin time: behind the planned ends of their dependencies.

Invariant: no job is planned before the planned end of its dependencies, and when that end moves, all jobs behind it are
replanned, each once; linear in the whole graph.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator

from eslurm.core.plan.cycle.forward import PASS_STEPS, ForwardPlanner
from eslurm.core.plan.cycle.queue import QueueEntry


def plan_later(ahead: ForwardPlanner) -> Generator[None, None, None]:
    """Plan jobs that wait for other jobs or for a time, in topological order; linear in the whole graph."""
    todo = yield from _dependants(ahead)
    missing: dict[int, int] = {}
    behind: dict[int, list[int]] = {}
    ready: list[QueueEntry] = []
    for job_id, entry in todo.items():
        before = [other for other in entry.job.after if other in todo]
        for other in before:
            behind.setdefault(other, []).append(job_id)
        if before:
            missing[job_id] = len(before)
        else:
            ready.append(entry)
    heapq.heapify(ready)
    while ready:
        entry = heapq.heappop(ready)
        yield from _plan_later(ahead, entry)
        for job_id in behind.get(entry.job_id, ()):
            missing[job_id] -= 1
            if not missing[job_id]:
                heapq.heappush(ready, todo[job_id])
    ahead.schedule.changed_ends.clear()


def _dependants(ahead: ForwardPlanner) -> Generator[None, None, dict[int, QueueEntry]]:
    """Jobs without a place, jobs behind them, and jobs behind one whose end has changed."""
    cycle, schedule = ahead.cycle, ahead.schedule
    todo: dict[int, QueueEntry] = {}
    behind: dict[int, list[QueueEntry]] = {}
    for entry in cycle.snapshot.later:
        cycle.spend(PASS_STEPS)
        if cycle.slice_over():
            yield
        for other in entry.job.after:
            behind.setdefault(other, []).append(entry)
        if entry.job_id not in schedule.bookings and schedule.stuck.get(entry.job_id) != entry.shape:
            todo[entry.job_id] = entry
    reached = [*todo, *(job_id for job_id in schedule.changed_ends if job_id in behind)]
    while reached:
        for entry in behind.get(reached.pop(), ()):
            if entry.job_id not in todo:
                todo[entry.job_id] = entry
                reached.append(entry.job_id)
        cycle.spend(PASS_STEPS)
        if cycle.slice_over():
            yield
    return todo


def _plan_later(ahead: ForwardPlanner, entry: QueueEntry) -> Generator[None, None, None]:
    schedule = ahead.schedule
    bookings = schedule.bookings.get(entry.job_id, ())
    from_us = ahead.earliest.from_us(entry.job)
    if bookings and from_us is not None and min(booking.start_us for booking in bookings) >= from_us:
        # What it waits for may end sooner now, and its own nodes have been free all the time.
        yield from ahead.move_up(entry.job_id, is_changed=True)
        return
    if bookings:
        yield from schedule.removing(entry.job_id)
    schedule.stuck.pop(entry.job_id, None)
    yield from ahead.plan(entry)
