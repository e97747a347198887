"""Windows of cron strings in a site's time zone: the calendar for the core.

Matching minutes are computed from a template of one week (C-46) where the string restricts neither month nor day of the
month, else from the runs of minutes of one day on each matching day. Templates are transposed piece by piece between
changes of the zone's offset, so each minute counts as the local clock shows it: an hour that the zone skips is in no
window, one that it repeats is in twice. Strings with a length (`cron(...)+10h`) begin intervals; there a start within a
skipped hour is moved behind it, and within a repeated one it counts once, as in cron.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim

from eslurm.compat.cron import Cron, parse_cron
from eslurm.core.model.accounts import Validity
from eslurm.core.model.units import SECOND_US
from eslurm.core.model.wording import quoted
from eslurm.core.resources.timeline import INFINITY_US, Slot, Timeline
from eslurm.core.resources.windows import (
    DAY_US,
    LENGTH_MAX_S,
    STRETCH_US,
    Window,
    clipped,
    dates_within,
    join,
    merged,
    without,
)

MINUTE_US = 60 * SECOND_US
WEEK_US = 7 * DAY_US
YEARS_MAX_US = 3700 * DAY_US
"""Horizon of recurring windows without an end, from `from_us`: ten years."""
CACHED_MAX = 512
_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_US = 253_000_000_000 * SECOND_US
"""Near the end of the year 9986: what comes later is not worked out."""


class UnknownZone(ValueError):
    """There is no such time zone."""


class SiteCalendar:
    """Implements `core.resources.windows.Calendar` for one zone (`Europe/Berlin`). Raises `UnknownZone`."""

    def __init__(self, zone: str = "UTC") -> None:
        try:
            self._zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise UnknownZone(
                f"zone: {quoted(zone)} is no time zone: write e.g. Europe/Berlin or UTC"
            ) from error
        self._crons: dict[str, Cron] = {}
        self._stretches: OrderedDict[tuple[str, int, int], list[Window]] = OrderedDict()
        self._offsets: OrderedDict[int, list[tuple[int, int, int]]] = OrderedDict()

    def offset_s(self, utc_s: int) -> int:
        """The zone's offset from UTC at a UTC time, both in seconds, as `compat.moments` asks for it."""
        at = _EPOCH_UTC + timedelta(
            seconds=min(max(utc_s, -_LAST_US // SECOND_US // 5), _LAST_US // SECOND_US)
        )
        offset = at.astimezone(self._zone).utcoffset()
        assert offset is not None
        return int(offset.total_seconds())

    def windows(self, validity: Validity, from_us: int, until_us: int) -> list[Window]:
        """See `Calendar`; with a cron string and `INFINITY_US` the windows of the next ten years."""
        within = dates_within(validity, from_us, until_us)
        if not within or not validity.cron:
            return within
        start_us, stop_us = within[0]
        if stop_us == INFINITY_US:
            stop_us = start_us + YEARS_MAX_US
        stop_us = min(stop_us, _LAST_US)
        length_us = min(validity.duration_s, LENGTH_MAX_S) * SECOND_US
        first = (start_us - length_us) // STRETCH_US
        found: list[Window] = []
        for number in range(first, -(-stop_us // STRETCH_US)):
            join(found, clipped(self._stretch(validity.cron, validity.duration_s, number), start_us, stop_us))
        return found

    def _stretch(self, text: str, duration_s: int, number: int) -> list[Window]:
        """The windows that begin in a stretch; stretches are counted from the epoch."""
        key = (text, duration_s, number)
        known = self._stretches.get(key)
        if known is not None:
            self._stretches.move_to_end(key)
            return known
        start_us = number * STRETCH_US
        cron = self._crons.get(text)
        if cron is None:
            if len(self._crons) >= CACHED_MAX:
                self._crons.clear()
            cron = self._crons[text] = parse_cron(text)
        if duration_s:
            found = self._intervals(cron, duration_s * SECOND_US, start_us, start_us + STRETCH_US)
        else:
            found = self._minutes(cron, start_us, start_us + STRETCH_US)
        self._stretches[key] = found
        if len(self._stretches) > CACHED_MAX:
            self._stretches.popitem(last=False)
        return found

    def _intervals(self, cron: Cron, length_us: int, start_us: int, stop_us: int) -> list[Window]:
        starts_anytime = any(field.startswith("*") for field in cron.text.split()[:2])
        pieces = [] if starts_anytime else self._pieces(start_us, stop_us)
        near: list[Window] = []
        starts: set[int] = set()
        for (_, _, before_us), (change_us, _, after_us) in pairwise(pieces):
            window = max(change_us - DAY_US, start_us), min(change_us + DAY_US, stop_us)
            near.append(window)
            found = _starts_around(cron, change_us, before_us, after_us)
            starts.update(at_us for at_us in found if window[0] <= at_us < window[1])
        runs = without(self._minutes(cron, start_us, stop_us), merged(near))
        # One match a minute as long as minutes match: the intervals from them leave no gap.
        windows = [(first_us, last_us - MINUTE_US + length_us) for first_us, last_us in runs]
        return merged(windows + [(at_us, at_us + length_us) for at_us in starts])

    def _minutes(self, cron: Cron, start_us: int, stop_us: int) -> list[Window]:
        template = _week(cron) if cron.is_weekly else None
        found: list[Window] = []
        for piece_us, piece_stop_us, offset_us in self._pieces(start_us, stop_us):
            local_us, local_stop_us = piece_us + offset_us, piece_stop_us + offset_us
            if template is not None:
                slots = template.transposed(WEEK_US, 1, local_us, local_stop_us).slots()
                local = [(slot.start_us, slot.stop_us) for slot in slots]
            else:
                days = _days(cron, local_us // DAY_US, (local_stop_us - 1) // DAY_US)
                local = clipped(_on_days(cron, days), local_us, local_stop_us)
            found += [(first_us - offset_us, last_us - offset_us) for first_us, last_us in local]
        return merged(found)

    def _pieces(self, start_us: int, stop_us: int) -> list[tuple[int, int, int]]:
        """[start_us, stop_us) in pieces of constant offset from UTC: (start, stop, offset in microseconds)."""
        known = self._offsets.get(start_us)
        if known is not None:
            return known
        found: list[tuple[int, int, int]] = []
        at_us = start_us
        offset_s = self.offset_s(at_us // SECOND_US)
        day_us = start_us
        while day_us < stop_us:
            next_us = min(day_us + DAY_US, stop_us)
            if self.offset_s((next_us - SECOND_US) // SECOND_US) != offset_s:
                change_us = self._change(day_us, next_us - SECOND_US, offset_s)
                found.append((at_us, change_us, offset_s * SECOND_US))
                at_us, offset_s = change_us, self.offset_s(change_us // SECOND_US)
            day_us = next_us
        found.append((at_us, stop_us, offset_s * SECOND_US))
        self._offsets[start_us] = found
        if len(self._offsets) > CACHED_MAX:
            self._offsets.popitem(last=False)
        return found

    def _change(self, low_us: int, high_us: int, offset_s: int) -> int:
        """The first second in (low, high] at which the offset is another than `offset_s`; at `high` it is."""
        low, high = low_us // SECOND_US - 1, high_us // SECOND_US
        while high - low > 1:
            middle = (low + high) // 2
            if self.offset_s(middle) == offset_s:
                low = middle
            else:
                high = middle
        return high * SECOND_US


def _starts_around(cron: Cron, change_us: int, before_us: int, after_us: int) -> Iterable[int]:
    """The matches of some days around a change of the offset: a skipped one is moved behind it, a repeated one counts
    once. `before_us` and `after_us` are the offsets from UTC.
    """
    days = _days(cron, (change_us - DAY_US + before_us) // DAY_US, (change_us + DAY_US + after_us) // DAY_US)
    for first_us, last_us in _on_days(cron, days):
        for local_us in range(first_us, last_us, MINUTE_US):
            is_before = local_us - before_us < change_us
            yield local_us - before_us if is_before else max(local_us - after_us, change_us)


def _week(cron: Cron) -> Timeline:
    """The template of a week, in local time; like the epoch it begins with a Thursday."""
    days = [day for day in range(7) if (day + 3) % 7 in cron.weekdays]
    return Timeline.from_slots(1, (Slot(*window, 1) for window in merged(_on_days(cron, days))))


def _on_days(cron: Cron, days: Iterable[int]) -> list[Window]:
    """The runs of matching minutes on each of some days since the epoch."""
    runs = merged(
        (hour * 60 + minute, hour * 60 + minute + 1) for hour in cron.hours for minute in cron.minutes
    )
    return [
        (day * DAY_US + first * MINUTE_US, day * DAY_US + last * MINUTE_US)
        for day in days
        for first, last in runs
    ]


def _days(cron: Cron, first: int, last: int) -> list[int]:
    """The matching days since the epoch from `first` to `last`."""
    before = _EPOCH + timedelta(days=first) - timedelta(minutes=1)
    found: list[int] = []
    for match in CronSim(cron.day_text, before):
        day = (match - _EPOCH).days
        if day > last:
            break
        found.append(day)
    return found
