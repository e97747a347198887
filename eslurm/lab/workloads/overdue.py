"""Next planning instant without an arrival or an end: the next planned start that counts.

A start that was planned for the expected end of overdue work does not count: that end is an event of its own.
"""

from __future__ import annotations

from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import RunningKey
from eslurm.core.resources.timeline import INFINITY_US


class Overdue:
    """Expected ends of running jobs. Invariant: it knows exactly the jobs that have started and not left."""

    def __init__(self) -> None:
        self._until_us: dict[RunningKey, int] = {}
        self._expected_us: dict[RunningKey, int] = {}

    def start(self, key: RunningKey, expected_us: int, until_us: int) -> None:
        """The job runs until `until_us` at the latest, and is expected to end at `expected_us` (0: no estimate)."""
        self._until_us[key] = until_us
        self._expected_us[key] = expected_us or until_us

    def leave(self, key: RunningKey) -> None:
        """It has ended."""
        del self._until_us[key], self._expected_us[key]

    def follow(self, schedule: Schedule, now_us: int) -> None:
        """A plan was made: what should be back by now is expected when the plan says."""
        for key, expected_us in self._expected_us.items():
            if expected_us <= now_us:
                self._expected_us[key] = schedule.end_us(key)

    def wake_us(self, schedule: Schedule, now_us: int) -> int:
        """The next planned start that comes whether or not anything ends before it; `INFINITY_US` without one."""
        next_us = schedule.next_start_us()
        overdue = {
            expected_us for key, expected_us in self._expected_us.items() if expected_us > self._until_us[key]
        }
        if now_us < next_us and next_us not in overdue:
            return next_us
        starts = (one.start_us for some in schedule.bookings.values() for one in some)
        return min(
            (at_us for at_us in starts if at_us > now_us and at_us not in overdue), default=INFINITY_US
        )
