"""The time that facts are decided at: this host's clocks behind the core's timekeeper.

Invariant: every `now` that reaches the core comes from here, so no jump of the wall clock makes time-outs come in masses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from eslurm.core.model.timekeeping import BOUND_US, Timekeeper
from eslurm.telemetry.clocks import boot_us, wall_us

log = logging.getLogger("esctld.clock")


class Clock:
    """Never before `floor_us`, the time of the last commit; follows jumps of the wall clock above `bound_us` only slowly."""

    def __init__(
        self,
        floor_us: int = 0,
        bound_us: int = BOUND_US,
        wall: Callable[[], int] = wall_us,
        steady: Callable[[], int] = boot_us,
    ) -> None:
        self._keeper = Timekeeper(floor_us, bound_us)
        self._wall = wall
        self._steady = steady

    def now_us(self) -> int:
        """The cluster's time."""
        now_us = self._keeper.read(self._wall(), self._steady())
        alarm = self._keeper.take_alarm()
        if alarm is not None:
            log.error(
                "the wall clock jumped by %.1f s and is %.1f s ahead of the cluster's time, which follows slowly: "
                "check the time service of this host",
                alarm.jump_us / 1e6,
                alarm.ahead_us / 1e6,
            )
        return now_us
