"""Interval of a planned start, from the expected runtimes of the jobs before it on its nodes.

A plan uses one runtime for each job; the forecast has a distribution. The interval reaches from the start if all
predecessors on its nodes ended at their P10 to that if all ended at their P90. It does not hold eight of ten starts: of
many predecessors the last one is late; on shared nodes the job may wait for fewer than all; an early end may let in other
jobs; and rules, reservations and other times are not examined: where one of them decides the start, there is no interval.
Invariants: the planned start lies within; nothing here changes the schedule; it is as of the moment it was made.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from heapq import nsmallest
from operator import itemgetter
from typing import Final, NamedTuple

from eslurm.core.model.forecast import Forecast
from eslurm.core.model.job import Job
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.schedule import Booking, Schedule
from eslurm.core.plan.cycle.snapshot import RunningKey
from eslurm.core.plan.profile.search import RESOURCES
from eslurm.core.plan.slices import parts
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.state.cluster import State

BOOKINGS_MAX: Final = 5_000
"""Planned starts that are looked through, the next ones first: of those behind nothing is said."""
SPANS_PER_SLICE: Final = 256
BOOKINGS_PER_SLICE: Final = 2_048
_ORDER: Final = itemgetter(0, 1)


class Interval(NamedTuple):
    """In microseconds UTC; both 0: unknown."""

    earliest_us: int = 0
    latest_us: int = 0


UNKNOWN: Final = Interval()


class _Stay(NamedTuple):
    """Times until which a job may be on a node; `is_known`: from forecasts, not only from limits."""

    stop_us: int
    earliest_us: int
    latest_us: int
    is_known: bool


class StartIntervals:
    """Made between two cycles of the planner. Query in the order of the starts, and `follow` up to each first."""

    def __init__(self, state: State, schedule: Schedule, now_us: int) -> None:
        self._state = state
        self._now_us = now_us
        self._is_in_use = state.config.use_forecasts
        # Copies of pointers: the planner goes on while this is looked through.
        self._held = list(schedule.held.items()) if self._is_in_use else []
        self._bookings = list(schedule.bookings.values()) if self._is_in_use else []
        self._moves = schedule.moves.copy() if self._is_in_use else {}
        self._starts: list[tuple[int, int, Booking]] = []
        self._is_complete = True
        # Node -> what is on it, and of what has ended before the starts asked for, the last ends.
        self._stays: dict[int, list[_Stay]] = {}
        self._before: dict[int, _Stay] = {}
        self._next = 0

    def follow(self, until_us: int) -> Generator[None, None, None]:
        """Include all starts planned before then, in slices."""
        yield from self._sort()
        spans = 0
        while self._held:
            key, held = self._held.pop()
            stay = self._running_stay(key, held.booking)
            for node, _ in held.running.spans:
                self._stays.setdefault(node, []).append(stay)
            spans += 1 + len(held.running.spans)
            if spans >= SPANS_PER_SLICE:
                spans = 0
                yield
        while self._next < len(self._starts) and self._starts[self._next][0] < until_us:
            _, job_id, booking = self._starts[self._next]
            self._next += 1
            self._book(job_id, booking)
            spans += 2 * len(booking.spans)
            if spans >= SPANS_PER_SLICE:
                spans = 0
                yield

    def _sort(self) -> Generator[None, None, None]:
        """Sort the next planned starts, once."""
        found: list[tuple[int, int, Booking]] = []
        for some in parts(self._bookings, BOOKINGS_PER_SLICE):
            found += [(one.start_us, one.job_id, one) for bookings in some for one in bookings]
            if len(found) > BOOKINGS_MAX:
                self._is_complete = False
                found = nsmallest(BOOKINGS_MAX, found, key=_ORDER)
            yield
        if self._bookings:
            self._bookings = []
            self._starts = sorted(found, key=_ORDER)

    def find(self, start_us: int, nodes: Iterable[int], job: Job | None = None) -> Interval:
        """The interval for a start planned at `start_us` on these nodes.

        `job` is its record, if it has one, for its other begin times.
        """
        if not self._is_in_use or start_us <= self._now_us:
            return UNKNOWN
        floor_us = self._now_us
        if job is not None:
            moves = self._moves.get(job.job_id, ())
            if job.spec.start_at_us or job.open or (moves and moves[-1].kind != RESOURCES):
                return UNKNOWN
            floor_us = max(floor_us, job.not_before_us)
        if not self._is_complete and self._next == len(self._starts):
            return UNKNOWN
        before = self._last_ends(start_us, nodes)
        if not before.is_known:
            return UNKNOWN
        earliest_us = max(before.earliest_us, floor_us)
        return Interval(min(earliest_us, start_us), max(before.latest_us, start_us))

    def _last_ends(self, start_us: int, nodes: Iterable[int]) -> _Stay:
        """The last end of all jobs that are planned to leave these nodes by then."""
        earliest_us = latest_us = 0
        is_known = False
        for node in nodes:
            last = self._before.get(node)
            left: list[_Stay] = []
            for stay in self._stays.get(node, ()):
                if stay.stop_us > start_us:
                    left.append(stay)
                else:
                    last = stay if last is None else _later(last, stay)
            if last is not None:
                self._stays[node], self._before[node] = left, last
                earliest_us = max(earliest_us, last.earliest_us)
                latest_us = max(latest_us, last.latest_us)
                is_known |= last.is_known
        return _Stay(start_us, earliest_us, latest_us, is_known)

    def _running_stay(self, key: RunningKey, booking: Booking) -> _Stay:
        """The stay of a running job."""
        found, stop_us = self._state.find_attempt(*key), booking.stop_us
        forecast = found[0].forecast if found is not None else None
        if found is None or forecast is None or stop_us >= INFINITY_US:
            return _Stay(stop_us, stop_us, stop_us, False)
        attempt = found[1]
        low_us, high_us = _lengths_us(forecast)
        since_us = (attempt.started_us or attempt.placed_us) + attempt.paused_us
        earliest_us = max(min(since_us + low_us, attempt.until_us), self._now_us)
        # One that has taken longer than nine of ten do: how much longer, the plan says.
        latest_us = min(since_us + high_us, attempt.until_us)
        return _Stay(stop_us, min(earliest_us, stop_us), max(latest_us, stop_us), True)

    def _book(self, job_id: int, booking: Booking) -> None:
        """Include a planned job: it begins within its own interval."""
        job = self._state.find_job(job_id)
        numbers = [span.node for span in booking.spans]
        start_us, stop_us = booking.start_us, booking.stop_us
        stay = _Stay(stop_us, stop_us, stop_us, False)
        if job is not None and stop_us < INFINITY_US:
            begins = self.find(start_us, numbers, job)
            earliest_us, latest_us = begins if begins is not UNKNOWN else (start_us, start_us)
            limit_us = job.spec.time_limit_s * SECOND_US or INFINITY_US
            low_us, high_us = (
                _lengths_us(job.forecast) if job.forecast is not None else (stop_us - start_us,) * 2
            )
            stay = _Stay(
                stop_us,
                min(earliest_us + min(low_us, limit_us), stop_us),
                max(latest_us + min(high_us, limit_us), stop_us),
                begins is not UNKNOWN or job.forecast is not None,
            )
        for node in numbers:
            self._stays.setdefault(node, []).append(stay)


def _lengths_us(forecast: Forecast) -> tuple[int, int]:
    """P10 and P90."""
    return forecast.p10_s * SECOND_US, forecast.p90_s * SECOND_US


def _later(one: _Stay, other: _Stay) -> _Stay:
    return _Stay(
        max(one.stop_us, other.stop_us),
        max(one.earliest_us, other.earliest_us),
        max(one.latest_us, other.latest_us),
        one.is_known or other.is_known,
    )
