"""The host's two clocks for every daemon, in integer microseconds.

Durations (limits, grace, silence) are measured on CLOCK_BOOTTIME, which cannot be set and which counts while the host
sleeps; wall time may jump, and is for users and other hosts. Imports nothing but `time`.
"""

from __future__ import annotations

import time


def wall_us() -> int:
    """Microseconds UTC since the epoch; an administrator may set this clock at any time."""
    return time.time_ns() // 1000


def boot_us() -> int:
    """Microseconds since the host's boot, time asleep included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
