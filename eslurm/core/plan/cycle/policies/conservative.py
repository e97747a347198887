"""Conservative backfill."""

from __future__ import annotations

from collections.abc import Generator
from itertools import chain

from eslurm.core.plan.cycle.dependents import plan_later
from eslurm.core.plan.cycle.forward import ForwardPlanner
from eslurm.core.plan.cycle.policy import Cycle
from eslurm.core.plan.cycle.recovery import by_start, recover
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.slices import sorting


class Conservative:
    """Every job is promised a start on arrival, and no later job may delay it.

    When an attempt ends early, the promises are examined in the order of their starts, and a job that has lost its start
    in the order of its first one: each may move to an earlier place and none to a later one. So with exact estimates no
    job starts later than its first promise. When an attempt outlives its limit, the promises in its way and those behind
    them move in the order of their starts.
    """

    name = "conservative"

    def plan(self, cycle: Cycle) -> Generator[None, None, None]:
        """See `Policy`."""
        ahead = ForwardPlanner(cycle)
        schedule = cycle.schedule
        yield from ahead.start_due()
        yield from recover(ahead, chain(cycle.snapshot.pending, cycle.snapshot.later), by_start)
        if (yield from ahead.improve(lambda: _by_start(schedule))):
            yield from ahead.plan_new(cycle.snapshot.pending)
            yield from plan_later(ahead)


def _by_start(schedule: Schedule) -> Generator[None, None, list[int]]:
    # An attempt that ends a moment late takes a job's start away: the nodes that it releases then go to that job first.
    first_us = schedule.slack.first_us
    starts = [
        (first_us(job_id, bookings[0].start_us), job_id) for job_id, bookings in schedule.bookings.items()
    ]
    starts = yield from sorting(starts)
    return [job_id for _, job_id in starts]
