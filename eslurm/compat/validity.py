"""Validity of a policy in the administrators' form (C-09).

`always`; dates, each day counted whole, either end may be left open: `2017-08-01..2017-08-31`, `..2026-12-31`,
`2026-03-01T08:00..2026-03-01T18:00`; `cron(* 7-10 * * mon,fri)`, each minute that matches; `cron(0 8 * */2 mon#1)+10h`, an
interval from each match; dates and cron together with a blank between. Times are the site's, by `offset_s`. Invariant:
`parse_validity(validity_text(v)) == v` for whole seconds.
"""

from __future__ import annotations

import re

from eslurm.compat.cron import parse_cron
from eslurm.compat.errors import OptionError, quoted
from eslurm.compat.lengths import length_text, parse_length
from eslurm.compat.moments import DAY_S, civil_from_days, format_moment, parse_moment
from eslurm.core.model.accounts import Validity
from eslurm.core.model.units import SECOND_US
from eslurm.core.resources.windows import LENGTH_MAX_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eslurm.compat.moments import Offset

LENGTH_MIN_S = 60
_DAY = re.compile(r"\d{4}-\d{1,2}-\d{1,2}")
_MOMENT = re.compile(r"\d{4}-\d{1,2}-\d{1,2}(T\d{1,2}:\d{2}(:\d{2})?)?", re.IGNORECASE)
_WORDS = re.compile(r"\s*(cron\((?P<cron>[^)]*)\)(?:\+(?P<length>\S+))?|(?P<word>\S+))\s*", re.IGNORECASE)
_WAY_OUT = (
    "write always, 2017-08-01..2017-08-31, ..2026-12-31, cron(* 7-10 * * mon,fri) or cron(0 8 * * *)+10h"
)


def utc(utc_s: int) -> int:
    """The offset of a site that keeps UTC."""
    return 0


def parse_validity(text: str, option: str = "validity", offset_s: Offset = utc) -> Validity:
    """Read it in the zone of `offset_s` (see `moments`). Raises `OptionError` with the column."""
    if text.strip().lower() == "always":
        return Validity()
    dates: tuple[int, int] | None = None
    cron, duration_s, seen_cron, end = "", 0, False, 0
    while (match := _WORDS.match(text, end)) is not None:
        at = end + (len(match.group()) - len(match.group().lstrip()))
        end = match.end()
        if match["word"] is None:
            if seen_cron:
                raise _wrong(option, text, at, "a second cron string")
            seen_cron = True
            cron = parse_cron(match["cron"], option, whole=text, at=match.start("cron")).text
            duration_s = _length(match, text, option)
        else:
            if dates is not None or seen_cron:
                raise _wrong(
                    option, text, at, f"{quoted(match['word'])} is too much: dates come once and first"
                )
            dates = _dates(match["word"], at, text, option, offset_s)
    if dates is None and not seen_cron:
        raise _wrong(option, text, len(text), "nothing is said")
    from_us, until_us = dates or (0, 0)
    return Validity(from_us, until_us, cron, duration_s)


def validity_text(validity: Validity, offset_s: Offset = utc) -> str:
    """The text that `parse_validity` reads; the days of the week are numbers then (0 is Sunday)."""
    words = []
    if validity.from_us or validity.until_us:
        first = _moment_text(validity.from_us, offset_s, 0) if validity.from_us else ""
        last = _moment_text(validity.until_us, offset_s, 1) if validity.until_us else ""
        words.append(f"{first}..{last}")
    if validity.cron:
        length = f"+{length_text(validity.duration_s)}" if validity.duration_s else ""
        words.append(f"cron({validity.cron}){length}")
    return " ".join(words) or "always"


def _dates(word: str, at: int, text: str, option: str, offset_s: Offset) -> tuple[int, int]:
    first, dots, last = word.partition("..")
    if not dots:
        if word.lower().startswith("cron"):
            raise _wrong(option, text, at, "a cron string stands in parentheses: cron(...)")
        what = "give first..last, or ..last" if _MOMENT.fullmatch(word) else "neither dates nor cron(...)"
        raise _wrong(option, text, at, what)
    if not first and not last:
        raise _wrong(option, text, at, "dates without a date")
    from_us = _moment(first, at, text, option, offset_s) if first else 0
    until_us = 0
    if last:
        last_at = at + len(first) + 2
        until_us = _moment(last, last_at, text, option, offset_s)
        if _DAY.fullmatch(last):
            until_us = _next_day_us(until_us, offset_s)
    if last and from_us >= until_us:
        raise _wrong(option, text, at, f"{quoted(word)} ends before it begins")
    return from_us, until_us


def _moment(word: str, at: int, text: str, option: str, offset_s: Offset) -> int:
    if _MOMENT.fullmatch(word) is None:
        raise _wrong(option, text, at, f"{quoted(word)} is no date")
    try:
        return parse_moment(word, 0, offset_s, option)
    except OptionError as error:
        raise _wrong(option, text, at, f"{quoted(word)} is no date") from error


def _next_day_us(midnight_us: int, offset_s: Offset) -> int:
    utc_s = midnight_us // SECOND_US
    # A day may have 23 or 25 hours: the next local midnight is found from the local date.
    days = (utc_s + offset_s(utc_s)) // DAY_S + 1
    year, month, day = civil_from_days(days)
    return parse_moment(f"{year:04d}-{month:02d}-{day:02d}", 0, offset_s)


def _moment_text(at_us: int, offset_s: Offset, days_back: int) -> str:
    shown = format_moment(at_us, offset_s)
    if not shown.endswith("T00:00:00"):
        return shown
    utc_s = at_us // SECOND_US
    year, month, day = civil_from_days((utc_s + offset_s(utc_s)) // DAY_S - days_back)
    return f"{year:04d}-{month:02d}-{day:02d}"


def _length(match: re.Match[str], text: str, option: str) -> int:
    if match["length"] is None:
        return 0
    try:
        seconds = parse_length(match["length"], option)
    except OptionError as error:
        raise _wrong(option, text, match.start("length"), "a length of time was expected") from error
    if not LENGTH_MIN_S <= seconds <= LENGTH_MAX_S:
        raise _wrong(option, text, match.start("length"), "an interval lasts from a minute to 366 days")
    return seconds


def _wrong(option: str, text: str, index: int, why: str) -> OptionError:
    return OptionError(option, text, f"does not parse at column {index + 1}: {why}", _WAY_OUT)
