"""Slurm's durations: `min`, `min:s`, `h:m:s`, `d-h`, `d-h:m`, `d-h:m:s`, `UNLIMITED`.

Owns both directions: the values of `--time` and the TIME columns.
"""

from __future__ import annotations

from eslurm.compat.errors import OptionError, whole_number
from eslurm.core.model import request_limits as limits

UNLIMITED_S = 0
_ENDLESS = frozenset({"unlimited", "infinite", "-1"})
_WAY_OUT = "use e.g. {option} 90 (minutes), 1:30:00 or 2-12:00:00"


def parse_time_limit(text: str, option: str = "--time") -> int:
    """A time limit in seconds; 0 means none (`UNLIMITED`, `INFINITE`, `-1` or `0`).

    Seconds are kept exactly: Slurm's rounding up to whole minutes is not copied.
    """
    if text.lower() in _ENDLESS:
        return UNLIMITED_S
    seconds = _seconds(text)
    if seconds < 0:
        raise OptionError(
            option, text, "is not a time (minutes, h:m:s or d-h:m:s)", _WAY_OUT.format(option=option)
        )
    if seconds > limits.TIME_LIMIT_MAX_S:
        raise OptionError(option, text, "is longer than 68 years", f"use {option} UNLIMITED for no limit")
    return seconds


def parse_delay(text: str, option: str = "--delay") -> int:
    """A delay in seconds: a number of seconds, `h:m:s` or `d-h:m:s` (D-a)."""
    seconds = whole_number(text, 10)
    if seconds < 0 and text.count(":") == 2:
        seconds = _seconds(text)
    if seconds < 0:
        raise OptionError(
            option, text, "is not a delay (seconds, h:m:s or d-h:m:s)", "use e.g. 1800 or 00:30:00"
        )
    if seconds > limits.PACK_DELAY_MAX_S:
        raise OptionError(
            option, text, f"is longer than {limits.PACK_DELAY_MAX_S} s", "submit that job later"
        )
    return seconds


def _seconds(text: str) -> int:
    days_text, dash, clock = text.partition("-")
    if not dash:
        clock, days_text = text, "0"
    parts = [whole_number(part, 9) for part in clock.split(":")]
    days = whole_number(days_text, 9)
    if days < 0 or min(parts) < 0 or len(parts) > 3:
        return -1
    if dash:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == 1:
        hours, minutes, seconds = 0, parts[0], 0
    elif len(parts) == 2:
        hours, minutes, seconds = 0, parts[0], parts[1]
    else:
        hours, minutes, seconds = parts
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def format_duration(seconds: int) -> str:
    """Seconds in squeue's form: `0:07`, `12:00`, `1:30:00`, `2-12:00:00`. Negative ones show as `0:00`."""
    seconds = max(0, seconds)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    if not hours:
        return f"{minute}:{second:02d}"
    days, hour = divmod(hours, 24)
    if not days:
        return f"{hour}:{minute:02d}:{second:02d}"
    return f"{days}-{hour:02d}:{minute:02d}:{second:02d}"


def format_elapsed(seconds: int) -> str:
    """Seconds in sacct's form, always with hours: `00:00:07`, `2-12:00:00`."""
    minutes, second = divmod(max(0, seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    clock = f"{hour:02d}:{minute:02d}:{second:02d}"
    return f"{days}-{clock}" if days else clock


def format_time_limit(seconds: int) -> str:
    """A time limit in squeue's form; 0 is `UNLIMITED`."""
    return "UNLIMITED" if seconds == UNLIMITED_S else format_duration(seconds)
