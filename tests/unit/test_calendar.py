"""The site's calendar: the paper's examples, daylight saving time, dates and cron together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.calendar import SiteCalendar, UnknownZone
from eslurm.compat.cron import parse_cron
from eslurm.compat.validity import parse_validity
from eslurm.core.model.accounts import Validity
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.windows import DatesOnly, Window, clipped, merged
from tests.support.profiles import draws

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR_US = 3_600_000_000


def us(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


def instant(zone: ZoneInfo, *fields: int) -> int:
    return us(datetime(*fields, tzinfo=zone))  # type: ignore[arg-type]


def minute_by_minute(text: str, zone: ZoneInfo, from_us: int, until_us: int) -> list[Window]:
    """Each minute's wall clock against the fields, one after the other."""
    cron = parse_cron(text)
    days, months, weekdays = (
        parse_cron(f"* * {text.split()[2]} * *"),
        parse_cron(f"* * * {text.split()[3]} *"),
        text.split()[4],
    )
    assert days and months
    day_set = _numbers(text.split()[2], 1, 31)
    month_set = _numbers(text.split()[3], 1, 12)
    either = not text.split()[2].startswith("*") and not weekdays.startswith("*")
    found: list[Window] = []
    at = EPOCH + timedelta(microseconds=from_us)
    while us(at) < until_us:
        wall = at.astimezone(zone)
        by_day, by_weekday = wall.day in day_set, wall.weekday() in cron.weekdays
        matches = (
            wall.minute in cron.minutes
            and wall.hour in cron.hours
            and wall.month in month_set
            and (by_day or by_weekday if either else by_day and by_weekday)
        )
        if matches:
            if found and found[-1][1] == us(at):
                found[-1] = (found[-1][0], us(at + MINUTE))
            else:
                found.append((us(at), us(at + MINUTE)))
        at += MINUTE
    return found


def _numbers(word: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in word.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        start, stop = (low, high) if span == "*" else (int(first), int(last or first))
        found.update(range(start, stop + 1, int(step or 1)))
    return found


def test_monday_and_friday_from_7_to_11_over_eight_years() -> None:
    """C-46: the paper's example of a transposed template."""
    zone = ZoneInfo("Europe/Berlin")
    calendar = SiteCalendar("Europe/Berlin")
    validity = parse_validity("2018-01-01..2025-12-31 cron(* 7-10 * * mon,fri)", offset_s=calendar.offset_s)
    windows = calendar.windows(validity, 0, INFINITY_US)
    day, expected = datetime(2018, 1, 1), []
    while day.year < 2026:
        if day.weekday() in (0, 4):
            opens = day.replace(hour=7, tzinfo=zone)
            expected.append((us(opens), us(day.replace(hour=11, tzinfo=zone))))
        day += timedelta(days=1)
    assert windows == expected
    assert len(windows) == 835


def test_every_second_months_first_monday_from_8_to_18() -> None:
    zone = ZoneInfo("Europe/Berlin")
    calendar = SiteCalendar("Europe/Berlin")
    validity = parse_validity("cron(0 8 * */2 mon#1)+10h")
    windows = calendar.windows(validity, instant(zone, 2026, 1, 1), instant(zone, 2026, 7, 1))
    starts = [(2026, 1, 5), (2026, 3, 2), (2026, 5, 4)]
    assert windows == [(instant(zone, *day, 8), instant(zone, *day, 18)) for day in starts]


def test_an_interval_that_began_before_is_still_in_force() -> None:
    calendar = SiteCalendar()
    validity = Validity(cron="0 20 * * *", duration_s=10 * 3600)
    midnight = instant(ZoneInfo("UTC"), 2026, 5, 5)
    assert calendar.windows(validity, midnight, midnight + 12 * HOUR_US) == [
        (midnight, midnight + 6 * HOUR_US)
    ]


def test_the_hour_that_is_skipped_and_the_hour_that_comes_twice() -> None:
    zone = ZoneInfo("Europe/Berlin")
    calendar = SiteCalendar("Europe/Berlin")
    spring, autumn = instant(zone, 2026, 3, 29), instant(zone, 2026, 10, 25)
    nights = Validity(cron="* 2 * * *")
    assert calendar.windows(nights, spring, spring + 23 * HOUR_US) == []
    assert calendar.windows(nights, autumn, autumn + 25 * HOUR_US) == [
        (autumn + 2 * HOUR_US, autumn + 4 * HOUR_US)
    ]
    starts = Validity(cron="30 2 * * *", duration_s=3600)
    moved = spring + 2 * HOUR_US
    assert calendar.windows(starts, spring, spring + 23 * HOUR_US) == [(moved, moved + HOUR_US)]
    assert len(calendar.windows(starts, autumn, autumn + 25 * HOUR_US)) == 1


def test_dates_bound_what_recurs() -> None:
    calendar = SiteCalendar()
    noon = instant(ZoneInfo("UTC"), 2026, 5, 5, 12)
    validity = Validity(noon, noon + 90 * 60_000_000, "0 * * * *", 1800)
    half = HOUR_US // 2
    assert calendar.windows(validity, 0, INFINITY_US) == [
        (noon, noon + half),
        (noon + HOUR_US, noon + 3 * half),
    ]
    assert calendar.windows(Validity(until_us=noon), noon, INFINITY_US) == []
    assert calendar.windows(Validity(noon), 0, INFINITY_US) == [(noon, INFINITY_US)]


def test_a_calendar_of_dates_takes_cron_for_always() -> None:
    assert DatesOnly().windows(Validity(5, 9, "0 0 * * *"), 0, 7) == [(5, 7)]


def test_an_unknown_zone_is_named() -> None:
    with pytest.raises(UnknownZone, match="Europe/Atlantis"):
        SiteCalendar("Europe/Atlantis")


def test_intervals_of_any_length_take_no_time() -> None:
    """A stored record is read, whichever release wrote it, without going back to the beginning of time."""
    endless = Validity(cron="0 8 * * *", duration_s=2**53)
    assert SiteCalendar("Europe/Berlin").windows(endless, 0, HOUR_US) == [(0, HOUR_US)]


FIELDS = st.tuples(
    st.sampled_from(["*", "0", "*/7", "10-50/20", "0,59"]),
    st.sampled_from(["*", "7-10", "2", "*/3", "0,23"]),
    st.sampled_from(["*", "*", "*", "1-7", "31", "*/10"]),
    st.sampled_from(["*", "*", "*", "*/2", "3,10"]),
    st.sampled_from(["*", "1,5", "0", "6-7", "*/3"]),
)


@settings(max_examples=draws(60))
@given(
    FIELDS.map(" ".join),
    st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe"]),
    st.sampled_from([(2026, 3, 26), (2026, 10, 23), (2026, 10, 1), (2025, 12, 29), (2026, 4, 3)]),
    st.integers(0, 1440),
    st.integers(1, 5 * 1440),
)
def test_windows_are_the_minutes_that_match(
    text: str, zone: str, day: tuple[int, int, int], shift: int, minutes: int
) -> None:
    from_us = us(datetime(*day, tzinfo=UTC)) + shift * 60_000_000
    until_us = from_us + minutes * 60_000_000
    found = SiteCalendar(zone).windows(Validity(cron=parse_cron(text).text), from_us, until_us)
    assert found == minute_by_minute(text, ZoneInfo(zone), from_us, until_us)


@settings(max_examples=draws(60))
@given(
    FIELDS.map(" ".join).filter(lambda text: not text.startswith("* ")),
    st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]),
    st.sampled_from([(2026, 3, 26), (2026, 10, 23), (2026, 10, 1), (2025, 12, 29), (2026, 4, 3)]),
    st.integers(1, 100),
)
def test_intervals_begin_when_the_library_says(
    text: str, zone: str, day: tuple[int, int, int], minutes: int
) -> None:
    plain, site = parse_cron(text).text, ZoneInfo(zone)
    begin = datetime(*day, tzinfo=UTC)
    end, length = begin + timedelta(days=6), timedelta(minutes=minutes)
    starts: list[datetime] = []
    if any(field.startswith("*") for field in plain.split()[:2]):
        # Each hour or minute, by the clock on the wall; the library loses one where the clock moves by half an hour.
        runs = minute_by_minute(plain, site, us(begin - timedelta(days=2)), us(end))
        starts = [EPOCH + timedelta(microseconds=at) for run in runs for at in range(*run, 60_000_000)]
    else:
        for match in CronSim(plain, (begin - timedelta(days=2)).astimezone(site)):
            if match.astimezone(UTC) >= end:
                break
            starts.append(match.astimezone(UTC))
    windows = merged((us(start), us(start + length)) for start in starts)
    found = SiteCalendar(zone).windows(Validity(cron=plain, duration_s=minutes * 60), us(begin), us(end))
    assert found == clipped(windows, us(begin), us(end))


@settings(max_examples=draws(60))
@given(
    FIELDS.map(" ".join),
    st.integers(1, 400),
    st.integers(0, 5000),
    st.integers(1, 5000),
    st.integers(0, 5000),
)
def test_asking_in_parts_gives_the_same(text: str, length: int, start: int, first: int, second: int) -> None:
    calendar = SiteCalendar("Europe/Berlin")
    validity = Validity(cron=parse_cron(text).text, duration_s=length * 60)
    begin = us(datetime(2026, 3, 27, tzinfo=UTC)) + start * 60_000_000
    middle, end = begin + first * 60_000_000, begin + (first + second) * 60_000_000
    joined = [*calendar.windows(validity, begin, middle), *calendar.windows(validity, middle, end)]
    whole = calendar.windows(validity, begin, end)
    assert _minutes(joined) == _minutes(whole)


def _minutes(windows: list[Window]) -> set[int]:
    return {at for start, stop in windows for at in range(start // 60_000_000, stop // 60_000_000)}
