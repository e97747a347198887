"""The times of jobs that repeat by a clock. Pure."""

from __future__ import annotations

from typing import Final

from eslurm.core.model.accounts import Validity
from eslurm.core.model.job import Attempt, Job
from eslurm.core.model.units import SECOND_US
from eslurm.core.resources.windows import DAY_US, STRETCH_US, Calendar
from eslurm.core.state.cluster import State

MINUTE_US: Final = 60 * SECOND_US
_AHEAD_US: Final = 3_700 * DAY_US
"""A time that comes at all comes within ten years: 29 February is eight years away at most."""


def next_us(calendar: Calendar, schedule: str, after_us: int) -> int:
    """The first time of a cron string later than `after_us`; 0: there is none."""
    # As windows of a minute: then the calendar moves what a change of the clock skips, as cron does.
    validity = Validity(cron=schedule, duration_s=60)
    for at_us in range(after_us, after_us + _AHEAD_US, STRETCH_US):
        for since_us, until_us in calendar.windows(validity, at_us, at_us + STRETCH_US):
            start_us = -(-max(since_us, after_us + 1) // MINUTE_US) * MINUTE_US
            if start_us < until_us:
                return start_us
    return 0


def again_us(state: State, job: Job, attempt: Attempt, now_us: int) -> int:
    """The time from which the job of a crontab runs again after this attempt; 0: it does not.

    Later than the attempt's start, though the clock of the leader may have gone back.
    """
    crontab = state.crontabs.get(job.spec.user.uid) if job.spec.cron else None
    if crontab is None or not crontab.has(job.job_id):
        return 0
    return next_us(state.calendar, job.spec.cron, max(now_us, state.now_us, attempt.placed_us))
