"""The agent's clock: wall time as it was when the process started, counted on by CLOCK_BOOTTIME.

Invariant: between two readings exactly as much time passes as on the host, asleep or not, whatever is done to its wall
clock meanwhile. So a jump neither fires all timers at once nor puts them off for hours.
"""

from __future__ import annotations

from collections.abc import Callable

from eslurm.telemetry.clocks import boot_us, wall_us


class AgentClock:
    """Read both clocks once, then only the one that never jumps."""

    def __init__(self, wall: Callable[[], int] = wall_us, boot: Callable[[], int] = boot_us) -> None:
        self._wall = wall
        self._boot = boot
        self._offset_us = wall() - boot()

    def now_us(self) -> int:
        """The present for everything that waits or is compared with itself later; microseconds."""
        return self._boot() + self._offset_us

    def to_boot_us(self, at_us: int) -> int:
        """A reading of `now_us` as one of CLOCK_BOOTTIME, which all processes of the host share; 0 stays 0."""
        return max(0, at_us - self._offset_us) if at_us else 0

    def earliest_us(self) -> int:
        """The present for what others have dated: the wall clock may have been corrected since, or put wrong, so what
        is over has to be over by both."""
        return min(self.now_us(), self._wall())
