"""Strict order."""

from __future__ import annotations

from collections.abc import Generator

from eslurm.core.plan.cycle import reasons
from eslurm.core.plan.cycle.policy import Cycle
from eslurm.core.plan.cycle.reasons import WhyKind


class Fcfs:
    """First come, first served: no job starts before one ahead of it that could use the same nodes.

    Jobs of a partition that is down, and jobs that need nodes out of service or more than their limits allow, are skipped;
    they do not block those behind them.
    """

    name = "fcfs"

    def plan(self, cycle: Cycle) -> Generator[None, None, None]:
        """See `Policy`."""
        yield from cycle.withdraw()
        blocked = 0
        for job in cycle.jobs():
            if cycle.slice_over():
                yield
            members = cycle.members(job)
            if blocked & members:
                cycle.waiting[job.job_id] = cycle.rest
                # A job that waits its turn keeps it on all the nodes it could use.
                blocked |= members
                continue
            left = yield from cycle.start_now(job)
            if not left or cycle.is_full:
                continue
            if cycle.waiting[job.job_id].kind in (WhyKind.RESOURCES, WhyKind.PRIORITY):
                blocked |= members
                cycle.rest = reasons.behind(job.job_id)
            if not cycle.ledger.open & cycle.reach & ~blocked:
                break
