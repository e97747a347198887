"""Dates of the Gregorian calendar as day numbers, and instants in readable form. Pure arithmetic.

`offset_s` gives a zone's offset from UTC, in seconds, at a UTC time in seconds: the caller knows the zones. Commands
import it first thing: it imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Offset: TypeAlias = Callable[[int], int]

DAY_S = 86_400


def days_from_civil(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to a date of the Gregorian calendar."""
    # Counting years from March puts the leap day last, so month lengths follow one linear formula.
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def civil_from_days(days: int) -> tuple[int, int, int]:
    """The (year, month, day) that is `days` after 1970-01-01."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    return year_of_era + era * 400 + (month <= 2), month, day


def format_moment(at_us: int, offset_s: Offset) -> str:
    """Local time as `2026-03-01T08:00:00`; 0 (never) is `N/A`."""
    if at_us <= 0:
        return "N/A"
    utc_s = at_us // 1_000_000
    days, second_of_day = divmod(utc_s + offset_s(utc_s), DAY_S)
    year, month, day = civil_from_days(days)
    minutes, second = divmod(second_of_day, 60)
    return f"{year:04d}-{month:02d}-{day:02d}T{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"
