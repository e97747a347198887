"""Time windows in which policies are in force (C-09), and the calendar that yields them.

A window is half open, [start_us, stop_us), `INFINITY_US` as its stop means for ever. Invariant: the windows of one
`Windows` ascend and neither overlap nor touch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Final, Protocol, TypeAlias

from eslurm.core.model.accounts import Validity
from eslurm.core.model.units import SECOND_US
from eslurm.core.resources.timeline import INFINITY_US

Window: TypeAlias = tuple[int, int]
Fetch: TypeAlias = Callable[[int, int], list[Window]]

DAY_US: Final = 86_400 * SECOND_US
HORIZON_US: Final = 400 * DAY_US
"""Horizon of recurring windows: plans beyond it are made again before they come."""
STRETCH_US: Final = 28 * DAY_US
LENGTH_MAX_S: Final = 366 * 86_400
"""Greatest length of the intervals that a cron string begins: a search for those in force looks back this far."""
WINDOWS_MAX: Final = 20_000
"""Bound of the windows kept of one validity; beyond, the horizon is nearer."""


class Calendar(Protocol):
    """Evaluates cron strings, for which it needs a time zone."""

    def windows(self, validity: Validity, from_us: int, until_us: int) -> list[Window]:
        """The parts of [from_us, until_us) in which `validity` is in force: ascending, apart from each other.

        Without a cron string `until_us` may be `INFINITY_US`.
        """
        ...

    def offset_s(self, utc_s: int) -> int:
        """The zone's offset from UTC at a UTC time, both in seconds: for texts."""
        ...


class DatesOnly:
    """A calendar without a time zone: it takes each cron string as always true between the dates."""

    def windows(self, validity: Validity, from_us: int, until_us: int) -> list[Window]:
        """See `Calendar`."""
        return dates_within(validity, from_us, until_us)

    def offset_s(self, utc_s: int) -> int:
        """See `Calendar`."""
        return 0


def dates_within(validity: Validity, from_us: int, until_us: int) -> list[Window]:
    """The part of [from_us, until_us) between the dates of `validity`, its cron string ignored."""
    start_us = max(from_us, validity.from_us)
    stop_us = min(until_us, validity.until_us or INFINITY_US)
    return [(start_us, stop_us)] if start_us < stop_us else []


def merged(windows: Iterable[Window]) -> list[Window]:
    """The same instants as windows that ascend and do not touch."""
    found: list[Window] = []
    for start_us, stop_us in sorted(windows):
        if found and start_us <= found[-1][1]:
            if stop_us > found[-1][1]:
                found[-1] = (found[-1][0], stop_us)
        else:
            found.append((start_us, stop_us))
    return found


def clipped(windows: list[Window], from_us: int, until_us: int) -> list[Window]:
    """The parts within [from_us, until_us) of windows that ascend and do not overlap; there may be 100,000."""
    first = bisect_right(windows, from_us, key=itemgetter(1))
    found = windows[first : bisect_left(windows, until_us, lo=first, key=itemgetter(0))]
    if found:
        found[0] = max(found[0][0], from_us), found[0][1]
        found[-1] = found[-1][0], min(found[-1][1], until_us)
    return found


def join(windows: list[Window], others: list[Window]) -> None:
    """Append windows that begin later to windows that ascend and do not touch; the same holds for the result."""
    at = 0
    while at < len(others) and windows and others[at][0] <= windows[-1][1]:
        windows[-1] = windows[-1][0], max(windows[-1][1], others[at][1])
        at += 1
    windows += others[at:]


def without(windows: list[Window], others: list[Window]) -> list[Window]:
    """The instants of `windows` that are in none of `others`; both ascend and do not touch."""
    found: list[Window] = []
    index = 0
    for start_us, stop_us in windows:
        while index < len(others) and others[index][1] <= start_us:
            index += 1
        at = index
        while at < len(others) and others[at][0] < stop_us:
            if others[at][0] > start_us:
                found.append((start_us, others[at][0]))
            start_us = others[at][1]
            at += 1
        if start_us < stop_us:
            found.append((start_us, stop_us))
    return found


class Windows:
    """Windows from `from_us` on, computed in stretches on demand.

    Recurring windows are known up to `from_us + HORIZON_US` and to `WINDOWS_MAX`, not beyond.
    """

    __slots__ = ("_fetch", "_from_us", "_known_us", "_limit_us", "_starts", "_stops", "recurs")

    def __init__(self, fetch: Fetch, from_us: int, *, recurs: bool) -> None:
        self._fetch = fetch
        self._from_us = from_us
        self._known_us = from_us
        self.recurs = recurs
        self._limit_us = from_us + HORIZON_US if recurs else INFINITY_US
        self._starts: list[int] = []
        self._stops: list[int] = []

    @classmethod
    def of(cls, calendar: Calendar, validity: Validity, from_us: int) -> Windows:
        """The windows in which `validity` is in force."""
        return cls(
            lambda start_us, stop_us: calendar.windows(validity, start_us, stop_us),
            from_us,
            recurs=bool(validity.cron),
        )

    def less(self, others: Iterable[Windows]) -> Windows:
        """These windows without the instants of the others."""
        hiding = [other for other in others if not other.is_never]
        if not hiding:
            return self

        def fetch(start_us: int, stop_us: int) -> list[Window]:
            hidden = merged(window for other in hiding for window in other.within(start_us, stop_us))
            return without(self.within(start_us, stop_us), hidden)

        recurs = self.recurs or any(other.recurs for other in hiding)
        return Windows(fetch, self._from_us, recurs=recurs)

    @property
    def is_always(self) -> bool:
        """Check whether it is one window without end from the beginning."""
        return not self.recurs and self.within(self._from_us, INFINITY_US) == [(self._from_us, INFINITY_US)]

    @property
    def is_never(self) -> bool:
        """Check whether there is no window at all."""
        return not self.recurs and not self.within(self._from_us, INFINITY_US)

    def advance(self, now_us: int) -> None:
        """Forget the past and extend the horizon; later queries begin at `now_us` or after it."""
        if not self.recurs:
            return
        passed = bisect_right(self._stops, now_us)
        del self._starts[:passed], self._stops[:passed]
        self._known_us = max(self._known_us, now_us)
        self._from_us = now_us
        self._limit_us = now_us + HORIZON_US

    def is_over(self, at_us: int) -> bool:
        """Check whether windows from `at_us` on are unknown because they lie beyond the horizon."""
        return self.recurs and self.find(at_us, INFINITY_US) is None

    def find(self, from_us: int, until_us: int) -> Window | None:
        """The first window that has an instant in [from_us, until_us)."""
        if self._known_us < until_us and self._known_us < self._limit_us:
            found = self._find_known(from_us, until_us)
            if found is not None and found[1] < self._known_us:
                return found
            return self._find_further(from_us, until_us)
        return self._find_known(from_us, until_us)

    def within(self, from_us: int, until_us: int) -> list[Window]:
        """The parts of all windows within [from_us, until_us)."""
        found: list[Window] = []
        at_us = from_us
        while at_us < until_us:
            window = self.find(at_us, until_us)
            if window is None:
                break
            found.append((max(window[0], from_us), min(window[1], until_us)))
            at_us = window[1]
        return found

    def _find_known(self, from_us: int, until_us: int) -> Window | None:
        index = bisect_right(self._stops, from_us)
        if index < len(self._starts) and self._starts[index] < until_us:
            return self._starts[index], self._stops[index]
        return None

    def _find_further(self, from_us: int, until_us: int) -> Window | None:
        """Compute further stretches until the end of the wanted window is known."""
        while self._known_us < self._limit_us:
            found = self._find_known(from_us, until_us)
            if found is None and self._known_us >= until_us:
                return None
            if found is not None and found[1] < self._known_us:
                return found
            self._grow()
        return self._find_known(from_us, until_us)

    def _grow(self) -> None:
        start_us = self._known_us
        stop_us = min(start_us + STRETCH_US, self._limit_us) if self.recurs else INFINITY_US
        found = self._fetch(start_us, stop_us)
        at = 0
        if found and self._stops and found[0][0] <= self._stops[-1]:
            self._stops[-1] = found[0][1]
            at = 1
        self._starts += [first_us for first_us, _ in found[at:]]
        self._stops += [last_us for _, last_us in found[at:]]
        self._known_us = stop_us
        if len(self._starts) >= WINDOWS_MAX:
            self._limit_us = min(self._limit_us, stop_us)


def covers_all(several: Iterable[Windows], from_us: int) -> bool:
    """Check whether each instant from `from_us` on lies in one of the windows that never recur."""
    lasting = (one for one in several if not one.recurs)
    windows = merged(window for one in lasting for window in one.within(from_us, INFINITY_US))
    return windows == [(from_us, INFINITY_US)]


def find_stay(windows: Windows, duration_us: int, from_us: int, until_us: int) -> int | None:
    """The first instant from `from_us` on at which an interval fits into ONE window and ends before `until_us`."""
    at_us = from_us
    while at_us < until_us:
        window = windows.find(at_us, until_us)
        if window is None:
            return None
        start_us = max(window[0], at_us)
        stop_us = min(window[1], until_us)
        if stop_us == INFINITY_US or stop_us - start_us >= duration_us:
            return start_us
        at_us = window[1]
    return None


def find_gap(windows: Windows, duration_us: int, from_us: int, until_us: int) -> int | None:
    """The first instant from `from_us` on at which an interval touches no window and ends before `until_us`."""
    at_us = from_us
    while at_us < until_us:
        end_us = stop_of(at_us, duration_us)
        if end_us > until_us:
            return None
        window = windows.find(at_us, end_us)
        if window is None:
            return at_us if at_us == from_us or not windows.is_over(at_us) else None
        at_us = window[1]
    return None


def stop_of(start_us: int, duration_us: int) -> int:
    """End of an interval: `INFINITY_US` as its duration means never."""
    end_us = start_us + duration_us
    return end_us if end_us < INFINITY_US else INFINITY_US
