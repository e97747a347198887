"""The earliest time at which a waiting job may begin: after its begin time and the jobs that it depends on (C-30)."""

from __future__ import annotations

from eslurm.core.plan.cycle import reasons
from eslurm.core.plan.cycle.policy import LATE_US, Cycle
from eslurm.core.plan.cycle.queue import Pending
from eslurm.core.plan.cycle.reasons import Why
from eslurm.core.resources.timeline import INFINITY_US


class EarliestStarts:
    """Earliest times of the jobs of one cycle, by the ends of what runs and of what is planned."""

    __slots__ = ("_cycle", "_ends", "_ends_at")

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        # Ends of what runs, and how many jobs had started in this cycle when they were listed.
        self._ends: dict[int, int] | None = None
        self._ends_at = 0

    def from_us(self, job: Pending) -> int | None:
        """Earliest time of the job: after its begin time and the planned ends of its dependencies, or the first of them."""
        from_us = max(self._cycle.now_us, job.not_before_us, job.start_at_us)
        if is_ready(job):
            return from_us
        ends = [end_us for other in job.after if 0 < (end_us := self._end_us(other)) < INFINITY_US]
        if job.after:
            if not ends or (len(ends) < len(job.after) and not job.after_any):
                return None
            from_us = max(from_us, min(ends) if job.after_any else max(ends))
        return max(from_us, self._cycle.now_us + 1)

    def _end_us(self, job_id: int) -> int:
        count = len(self._cycle.schedule.starting)
        if self._ends is None or (self._ends_at < count and job_id in self._cycle.placed):
            # Jobs that have started in this cycle since count, too.
            self._ends, self._ends_at = self._cycle.schedule.ends(), count
        return max(self._ends.get(job_id, 0), self._cycle.schedule.planned_end_us(job_id))

    def why_unknown(self, job: Pending) -> Why:
        """The reason of a job whose earliest time is not known."""
        for other in job.after:
            if not 0 < self._end_us(other) < INFINITY_US:
                return reasons.after_job(other)
        return reasons.WAITS


def is_ready(job: Pending) -> bool:
    """Check whether the job waits for resources only."""
    return not job.after and not job.not_before_us


def is_due(job: Pending, now_us: int) -> bool:
    """Check whether the begin time has come for a job that is not released yet: it follows at once and keeps its place."""
    return not job.after and now_us - LATE_US <= job.not_before_us <= now_us and job.not_before_us > 0
