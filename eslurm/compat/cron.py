"""Cron strings, five fields: minute hour day-of-month month day-of-week.

Owns reading and checking them with the column of what is wrong; when they match is the calendar's. Lists, ranges,
steps and names are understood, `L` as the last day of a month and `mon#2` as its second Monday. As in cron, a day
matches when *either* day field does, if both are given and neither begins with `*`: the first Monday is `mon#1`.
"""

from __future__ import annotations

import msgspec

from eslurm.compat.errors import OptionError, quoted, whole_number

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTH_DAYS_MAX = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
LAST_DAY = "L"


class _Field(msgspec.Struct, frozen=True):
    what: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    names_from: int = 0


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS, 1),
    _Field("day of the week", 0, 7, _DAYS, 0),
)


class Cron(msgspec.Struct, frozen=True):
    """A parsed cron string. `text` is its normal form, which any cron library reads.

    `weekdays` (0 is Monday) are its days when it `is_weekly`: then neither month nor day of the month is restricted and
    one week is the pattern of all.
    """

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    weekdays: tuple[int, ...]
    is_weekly: bool

    @property
    def day_text(self) -> str:
        """The cron string that matches at midnight of each day of this one."""
        return "0 0 " + self.text.split(" ", 2)[2]


def parse_cron(text: str, option: str = "validity", *, whole: str = "", at: int = 0) -> Cron:
    """Read `text`, which begins at index `at` of `whole`. Raises `OptionError` with the column in `whole`."""
    whole = whole or text
    words = _words(text)
    if len(words) != len(_FIELDS):
        where = at + (words[5][1] if len(words) > 5 else len(text))
        raise _wrong(option, whole, where, f"a cron string has 5 fields, here are {len(words)}")
    values: list[tuple[int, ...]] = []
    normal: list[str] = []
    for field, (word, start) in zip(_FIELDS, words, strict=True):
        found, plain = _read_field(field, word, option, whole, at + start)
        values.append(found)
        normal.append(plain)
    if not _has_a_day(values[2], values[3], normal):
        raise _wrong(option, whole, at + words[2][1], "no such month has such a day: this never matches")
    weekdays = tuple(sorted({(day + 6) % 7 for day in values[4]}))
    is_weekly = normal[2] == "*" and normal[3] == "*" and "#" not in normal[4] and LAST_DAY not in normal[4]
    return Cron(" ".join(normal), values[0], values[1], weekdays, is_weekly)


def _has_a_day(days: tuple[int, ...], months: tuple[int, ...], normal: list[str]) -> bool:
    """Check whether any year has a matching day, because a search without one would scan half a century."""
    if not normal[2].startswith("*") and not normal[4].startswith("*"):
        return True
    nth = [int(which) for part in normal[4].split(",") for _, _, which in [part.partition("#")] if which]
    is_any = len(nth) <= normal[4].count(",")
    reached = {day for day in days if is_any or (day + 6) // 7 in nth}
    return any(_MONTH_DAYS_MAX[month - 1] >= min(reached, default=32) for month in months)


def _words(text: str) -> list[tuple[str, int]]:
    found, start = [], -1
    for index, char in enumerate(text + " "):
        if char.isspace():
            if start >= 0:
                found.append((text[start:index], start))
            start = -1
        elif start < 0:
            start = index
    return found


def _read_field(field: _Field, word: str, option: str, whole: str, at: int) -> tuple[tuple[int, ...], str]:
    found: set[int] = set()
    plain: list[str] = []
    for part in word.split(","):
        numbers, text = _read_part(field, part, option, whole, at)
        found.update(numbers)
        plain.append(text)
        at += len(part) + 1
    return tuple(sorted(found)), ",".join(plain)


def _read_part(field: _Field, part: str, option: str, whole: str, at: int) -> tuple[range, str]:
    if field.high == 31 and part.upper() == LAST_DAY:
        return range(28, 32), LAST_DAY
    head, hash_sign, nth = part.partition("#")
    if hash_sign and field.high == 7:
        day, which = _number(field, head, option, whole, at), whole_number(nth, 1)
        if not 1 <= which <= 5:
            raise _wrong(option, whole, at + len(head) + 1, f"{quoted(nth)} is not 1 to 5")
        return range(day, day + 1), f"{day}#{which}"
    span, slash, step_text = part.partition("/")
    step = whole_number(step_text, 2) if slash else 1
    if step < 1:
        raise _wrong(option, whole, at + len(span) + 1, f"{quoted(step_text)} is no step")
    if span == "*":
        # 0 and 7 are both Sunday: as a step's end only one of them may count.
        high = 6 if field.high == 7 else field.high
        return range(field.low, high + 1, step), f"*/{step}" if slash else "*"
    low_text, dash, high_text = span.partition("-")
    low = _number(field, low_text, option, whole, at)
    if not dash:
        if slash:
            raise _wrong(option, whole, at, "a step needs * or a range before it")
        return range(low, low + 1), str(low)
    high = _number(field, high_text, option, whole, at + len(low_text) + 1)
    if high < low:
        raise _wrong(option, whole, at, f"the range {quoted(span)} runs backwards")
    return range(low, high + 1, step), f"{low}-{high}/{step}" if slash else f"{low}-{high}"


def _number(field: _Field, word: str, option: str, whole: str, at: int) -> int:
    if word.lower() in field.names:
        return field.names.index(word.lower()) + field.names_from
    number = whole_number(word, 2)
    if not field.low <= number <= field.high:
        raise _wrong(
            option, whole, at, f"{quoted(word)} is no {field.what}: that is {field.low} to {field.high}"
        )
    return number


def _wrong(option: str, whole: str, index: int, why: str) -> OptionError:
    return OptionError(
        option,
        whole,
        f"does not parse at column {index + 1}: {why}",
        "write e.g. cron(* 7-10 * * mon,fri) or cron(0 8 * */2 mon#1)+10h",
    )
