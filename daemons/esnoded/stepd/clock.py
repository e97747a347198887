"""The supervisor's two clocks, both in integer microseconds.

Durations (limits, grace, silence) are measured on CLOCK_BOOTTIME, which nobody sets and which counts
while the node sleeps; wall time is only ever reported.
"""

from __future__ import annotations

import time


def boot_us() -> int:
    """Microseconds since boot, suspended time included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def wall_us() -> int:
    """Microseconds UTC since the epoch."""
    return time.time_ns() // 1000
