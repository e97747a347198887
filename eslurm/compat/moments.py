"""Points in time as users write them: `now+1hour`, `16:00`, `tomorrow`, `2026-03-01T08:00`.

Pure: the present and the site's zone come in as arguments. `offset_s` gives the zone's offset from UTC, in seconds, at a
UTC time in seconds, so that summer time is the caller's knowledge.
"""

from __future__ import annotations

from eslurm.compat.errors import OptionError, whole_number
from eslurm.core.model.dates import DAY_S, civil_from_days, days_from_civil, format_moment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from eslurm.core.model.dates import Offset as Offset

__all__ = ["DAY_S", "civil_from_days", "days_from_civil", "format_moment", "parse_moment"]

_YEAR_MAX = 9999
_UNITS_S: Mapping[str, int] = {
    "": 1,
    "second": 1,
    "sec": 1,
    "s": 1,
    "minute": 60,
    "min": 60,
    "m": 60,
    "hour": 3600,
    "h": 3600,
    "day": DAY_S,
    "d": DAY_S,
    "week": 7 * DAY_S,
    "w": 7 * DAY_S,
}
_NAMED_CLOCKS: Mapping[str, int] = {
    "midnight": 0,
    "elevenses": 11 * 3600,
    "noon": 12 * 3600,
    "fika": 15 * 3600,
    "teatime": 16 * 3600,
}
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_WAY_OUT = "use e.g. {option} now+1hour, 16:00, tomorrow or 2030-01-31T08:00"


def parse_moment(
    text: str, now_us: int, offset_s: Offset, option: str = "--begin", *, past: bool = False
) -> int:
    """A point in time as UTC microseconds.

    A clock time alone (`16:00`, `noon`) is its next occurrence, as for sbatch; with `past` it is today's, as
    for sacct. `now-2days` is meant for queries. Raises OptionError.
    """
    lowered = text.lower()
    if lowered.startswith("now"):
        return now_us + _relative_s(text, option) * 1_000_000
    local_now_s = now_us // 1_000_000 + offset_s(now_us // 1_000_000)
    today_s = local_now_s - local_now_s % DAY_S
    if lowered in ("today", "tomorrow", "yesterday"):
        shift_days = {"today": 0, "tomorrow": 1, "yesterday": -1}[lowered]
        return _utc_us(today_s + shift_days * DAY_S, offset_s)
    clock_s = _clock_s(lowered)
    if clock_s >= 0:
        later = not past and clock_s <= local_now_s - today_s
        return _utc_us(today_s + clock_s + (DAY_S if later else 0), offset_s)
    local_s = _date_s(lowered, today_s)
    if local_s is None:
        raise OptionError(option, text, "is not a time", _WAY_OUT.format(option=option))
    return _utc_us(local_s, offset_s)


def _relative_s(text: str, option: str) -> int:
    """The seconds of `now`, `now+90`, `now+2hours`, `now-1week`."""
    rest = text[3:].strip()
    if not rest:
        return 0
    body = rest[1:].strip().lower()
    digits = body.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = body[len(digits) :]
    unit_s = _UNITS_S.get(unit) or _UNITS_S.get(unit.removesuffix("s")) or 0
    count = whole_number(digits.strip(), 9)
    if rest[0] not in "+-" or count < 0 or not unit_s or count * unit_s > 100 * 366 * DAY_S:
        raise OptionError(
            option,
            text,
            "is not a time from now",
            f"use e.g. {option} now+90 (seconds), now+30minutes, now+2hours, now+1day or now+1week",
        )
    return count * unit_s if rest[0] == "+" else -count * unit_s


def _clock_s(text: str) -> int:
    """Seconds since midnight of `HH:MM[:SS]` with an optional AM or PM, or -1."""
    if text in _NAMED_CLOCKS:
        return _NAMED_CLOCKS[text]
    half = text[-2:] if text.endswith(("am", "pm")) else ""
    parts = [whole_number(part.strip(), 2) for part in text.removesuffix(half).split(":")]
    if len(parts) not in (2, 3) or min(parts) < 0:
        return -1
    hour, minute, second = (*parts, 0)[:3]
    if half:
        if not 1 <= hour <= 12:
            return -1
        hour = hour % 12 + (12 if half == "pm" else 0)
    if hour > 23 or minute > 59 or second > 59:
        return -1
    return hour * 3600 + minute * 60 + second


def _date_s(text: str, today_s: int) -> int | None:
    """Local seconds of `YYYY-MM-DD[THH:MM[:SS]]`, `MM/DD[/YY]` or `MM.DD[.YY]` (this year), or None."""
    day_text, separator, clock_text = text.replace(" ", "t", 1).partition("t")
    clock_s = _clock_s(clock_text) if separator else 0
    fields = _day_fields(day_text, civil_from_days(today_s // DAY_S)[0])
    if clock_s < 0 or fields is None:
        return None
    year, month, day = fields
    if not (1970 <= year <= _YEAR_MAX and 1 <= month <= 12 and 1 <= day <= _days_in(year, month)):
        return None
    return days_from_civil(year, month, day) * DAY_S + clock_s


def _day_fields(text: str, this_year: int) -> tuple[int, int, int] | None:
    for separator, year_first in (("-", True), ("/", False), (".", False)):
        parts = text.split(separator)
        numbers = [whole_number(part, 4) for part in parts]
        if len(parts) < 2 or min(numbers) < 0:
            continue
        if year_first:
            return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None
        if len(numbers) == 2:
            return this_year, numbers[0], numbers[1]
        if len(numbers) == 3:
            year = numbers[2] + 2000 if len(parts[2]) <= 2 else numbers[2]
            return year, numbers[0], numbers[1]
    return None


def _days_in(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and leap else _MONTH_DAYS[month - 1]


def _utc_us(local_s: int, offset_s: Offset) -> int:
    # The offset depends on the UTC time that is looked for: two guesses settle it except inside the
    # hour a zone skips, where the later reading is as good as any.
    guess_s = local_s - offset_s(local_s)
    return (local_s - offset_s(guess_s)) * 1_000_000
