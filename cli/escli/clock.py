"""The commands' clock and time zone; `eslurm.compat` gets both as arguments."""

from __future__ import annotations

import time


def now_us() -> int:
    """Wall-clock time, UTC, in microseconds."""
    return time.time_ns() // 1000


def local_offset_s(utc_s: int) -> int:
    """Offset of local time from UTC at `utc_s`, in seconds; summer time included."""
    return time.localtime(utc_s).tm_gmtoff
