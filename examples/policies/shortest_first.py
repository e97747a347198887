"""Starts the jobs with the shortest time limits first; who waits longer than a day is promised a start."""

from __future__ import annotations

from collections.abc import Generator

from eslurm.core.plan.cycle.policy import Cycle

DAY_US = 86_400_000_000
NO_LIMIT_US = 1 << 62


class ShortestFirst:
    name = "shortest_first"

    def plan(self, cycle: Cycle) -> Generator[None, None, None]:
        yield from cycle.withdraw()
        old_us = cycle.now_us - DAY_US
        jobs = sorted(
            cycle.jobs(), key=lambda job: (job.submitted_us > old_us, job.time_limit_us or NO_LIMIT_US)
        )
        for job in jobs:
            if cycle.slice_over():
                yield
            left = yield from cycle.start_now(job)
            if left and job.submitted_us <= old_us:
                cycle.promise(job)
