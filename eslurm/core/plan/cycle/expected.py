"""Expected runtimes of jobs, for which the time limit is only an upper bound (ADR 14).

A forecast is advice: plans reserve room beside other work for the expected time, and use the limit wherever an overrun
would do harm. Invariant: an expectation never exceeds the limit while that lasts.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from math import isqrt
from typing import Final

from eslurm.core.model.forecast import Forecast
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.queue import QueueEntry
from eslurm.core.plan.cycle.snapshot import Running
from eslurm.core.plan.slices import sorting
from eslurm.core.resources.timeline import INFINITY_US

GRAINS: Final = 16
"""Estimates are rounded to steps of at most a sixteenth of their size: equal requests with similar estimates share one
search, and a forecast that changes by less moves nothing.
"""

AGED_US: Final = 24 * 3600 * SECOND_US
"""A job that has waited this long is not overtaken by shorter jobs any more."""

HALVED_US: Final = 3 * 3600 * SECOND_US
"""For each such time that a job has waited it counts as half as long, where it is promised nothing meanwhile."""


def waiting_us(forecast: Forecast | None, limit_us: int) -> int:
    """Expected runtime in microseconds for which a waiting job is planned; 0: its limit (0: none).

    Half way (in proportion) between the median and a high quantile: a longer one would let it wait in vain, a shorter one
    would often delay the jobs that it overtakes (ADR 14).
    """
    return _in_steps_us(isqrt(forecast.p50_s * safe_s(forecast)), limit_us) if forecast is not None else 0


def running_us(forecast: Forecast | None, limit_us: int) -> int:
    """Expected total runtime of a running job, a high quantile because jobs behind it rely on it; 0: its limit."""
    return _in_steps_us(safe_s(forecast), limit_us) if forecast is not None else 0


def safe_s(forecast: Forecast) -> int:
    """Runtime in seconds that such a job rarely exceeds: a high quantile, or the point estimate with its margin."""
    return max(forecast.p90_s, forecast.estimate_s)


def _in_steps_us(length_s: int, limit_us: int) -> int:
    grain_s = max(1, (1 << (length_s.bit_length() - 1)) // GRAINS)
    length_us = -(-length_s // grain_s) * grain_s * SECOND_US
    return length_us if not limit_us or length_us < limit_us else 0


def end_us(one: Running, now_us: int, grace_us: int) -> int:
    """Expected release of a running attempt's resources, always later than `now_us`.

    An attempt past its expected end is expected to take its limit, unless a new forecast says less: smaller steps lose
    more in replays of logs (ADR 14). Without a limit it takes as long again as so far. Past its limit it ends after the
    grace, or as late again as it is now.
    """
    expected_us = one.expected_us or one.until_us
    if expected_us > now_us:
        return expected_us
    if one.until_us >= INFINITY_US:
        return now_us + max(grace_us, now_us - one.since_us, 1)
    if one.until_us > now_us:
        return one.until_us
    return now_us + max(grace_us, now_us - one.until_us, 1)


def shortest_first(entries: Sequence[QueueEntry], now_us: int) -> Generator[None, None, list[QueueEntry]]:
    """Waiting jobs in the order in which released resources are offered: by priority, then by length.

    A short job delays few others; jobs that have waited for a day come before it by age (ADR 14).
    """

    def turn(entry: QueueEntry) -> tuple[int, int]:
        job = entry.job
        return entry.rank, 0 if now_us - job.since_us >= AGED_US else job.stay_us

    return sorting(entries, turn)


def shortest_for_its_wait_first(
    entries: Sequence[QueueEntry], now_us: int
) -> Generator[None, None, list[QueueEntry]]:
    """The same for jobs without a promise: a job counts half as long for every three hours of waiting.

    So long jobs are not postponed again and again until their day has passed (ADR 14).
    """

    def turn(entry: QueueEntry) -> tuple[int, float]:
        job = entry.job
        waited_us = max(0, now_us - job.since_us)
        return entry.rank, 0.0 if waited_us >= AGED_US else job.stay_us * 0.5 ** (waited_us / HALVED_US)

    return sorting(entries, turn)
