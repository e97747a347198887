"""Recent trouble of a part of the federation: invariants that speak of sound parts hold for those that are ready.

Invariant: whatever is in trouble is not ready, and neither is what was in trouble a moment ago.
"""

from __future__ import annotations

from typing import Final

from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.scheduler import Scheduler

SETTLE_US: Final = 25 * SECOND_US
"""After trouble: a watch's silence is noticed (11 s), a pause before a listing ends (5 s), calls end and are repeated."""
FRESH_US: Final = 3 * SECOND_US
"""After its beginning: it lists, gets a lease and writes, with a pause of 1 s between."""


class Health:
    """Of one cell, or of the store."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._troubles = 0
        self._ready_us = 0
        self.touched_us = 0
        """The last time at which trouble began or ended here, or at which the part began anew."""

    @property
    def is_ready(self) -> bool:
        """Check whether it has been sound for long enough."""
        return not self._troubles and self._scheduler.at_us >= self._ready_us

    @property
    def in_trouble(self) -> bool:
        """Check whether something lasting is wrong with it now."""
        return self._troubles > 0

    def begin_trouble(self) -> None:
        """Something lasting has begun."""
        self._troubles += 1

    def end_trouble(self) -> None:
        """It is over."""
        self._troubles -= 1
        self.on_trouble(0)

    def on_trouble(self, for_us: int) -> None:
        """Something has happened that lasts so long."""
        self.touched_us = self._scheduler.at_us
        self._ready_us = max(self._ready_us, self._scheduler.at_us + for_us + SETTLE_US)

    def on_begin(self) -> None:
        """It begins anew: nothing of before is left in it."""
        self.touched_us = self._scheduler.at_us
        self._ready_us = self._scheduler.at_us + FRESH_US
