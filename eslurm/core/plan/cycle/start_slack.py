"""Jobs whose start has slipped far behind its first forecast.

Forecasts that are too short make starts slip: jobs that overtook another stay longer than expected, and others after them.
Beyond some slack the planned place of a late job is closed to those behind it (`late_places`). Invariant: only waiting
jobs are remembered, and only as long as they wait.
"""

from __future__ import annotations

from typing import Final

from eslurm.core.plan.cycle.queue import QueueEntry

SLIP_HEAD_US: Final = 600_000_000
"""Allowed slip of the one promise of a policy that makes no others: every backfilled job overtakes it."""
PATIENCE_US: Final = 12 * 3_600_000_000
"""Jobs that have waited longer than this when they are first promised a start keep it exactly."""
SLIP_MIN_US: Final = 3_600_000_000
SLIP_MAX_US: Final = 4 * SLIP_MIN_US
"""A planned start may slip by its distance at the forecast, within these bounds, where every job has one."""


def slack_us(ahead_us: int) -> int:
    """Allowed slip of a start that is forecast this long ahead."""
    return min(max(ahead_us, SLIP_MIN_US), SLIP_MAX_US)


class StartSlack:
    """Start slack of a schedule's jobs. `late` are the entries of jobs beyond their slack, `by` the jobs that overran.

    `version` changes with each place of a late job.
    """

    __slots__ = ("_latest_us", "by", "late", "version")

    def __init__(self) -> None:
        # When each job's start was foretold for first, and after which instant that is late.
        self._latest_us: dict[int, tuple[int, int]] = {}
        self.late: dict[int, QueueEntry] = {}
        self.by: dict[int, int] = {}
        self.version = 0

    def copy(self) -> StartSlack:
        """An independent copy."""
        other = StartSlack()
        other._latest_us = self._latest_us.copy()
        other.late, other.by = self.late.copy(), self.by.copy()
        return other

    def is_known(self, job_id: int) -> bool:
        """Check whether the job has a record here."""
        return job_id in self._latest_us

    def jobs(self) -> list[int]:
        """All jobs with a record here."""
        return list(self._latest_us)

    def first_us(self, job_id: int, start_us: int) -> int:
        """The start that was foretold for a job at first, or `start_us` when that is earlier or there was none."""
        known = self._latest_us.get(job_id)
        return start_us if known is None else min(known[0], start_us)

    def note(self, entry: QueueEntry, start_us: int, slack_us: int, *, is_shut: bool = False) -> None:
        """Record a planned start; the first one sets the allowed slip. `is_shut`: its place is closed in any case.

        Tasks of an array begin one after the other: their next start has no meaning here.
        """
        if entry.job.startable > 1:
            return
        job_id = entry.job_id
        known = self._latest_us.get(job_id)
        if known is None:
            known = self._latest_us[job_id] = start_us, start_us + slack_us
        first_us, latest_us = known
        if start_us <= first_us:
            self.by.pop(job_id, None)
        if is_shut or start_us > latest_us:
            self.late[job_id] = entry
            self.version += 1
        elif self.late.pop(job_id, None) is not None:
            self.version += 1

    def forget(self, job_id: int) -> None:
        """Remove a job that does not wait any more."""
        self._latest_us.pop(job_id, None)
        self.by.pop(job_id, None)
        if self.late.pop(job_id, None) is not None:
            self.version += 1
