"""How long work is expected to stay, where its time limit says only how long it may (ADR 14).

A forecast is advice about length: plans make room beside other work for as long as is expected, and look at the limit
wherever something must not be overrun. Invariant: what is expected never lies beyond the limit, as long as that lasts.
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
"""Estimates are planned with in steps of a sixteenth of their size at most: who asks for the same and is expected to take
about as long is looked for once, and a forecast that changes by less moves nothing."""

AGED_US: Final = 24 * 3600 * SECOND_US
"""Who has waited for so long is not overtaken by shorter jobs any more."""

HALVED_US: Final = 3 * 3600 * SECOND_US
"""For each such time that a job has waited it counts as half as long, where it is promised nothing meanwhile."""


def waiting_us(forecast: Forecast | None, limit_us: int) -> int:
    """For how long room is looked for on behalf of a waiting job, in microseconds; 0: its limit (0: none).

    Half way (in proportion) between what half of such jobs outlive and what few do: for longer it would mostly wait in vain,
    for less it would too often be in the way of those that it is let in front of (ADR 14).
    """
    return _in_steps_us(isqrt(forecast.p50_s * _safe_s(forecast)), limit_us) if forecast is not None else 0


def running_us(forecast: Forecast | None, limit_us: int) -> int:
    """How long a running job is expected to take in all; 0: its limit. What few outlive: those behind it rely on that."""
    return _in_steps_us(_safe_s(forecast), limit_us) if forecast is not None else 0


def _safe_s(forecast: Forecast) -> int:
    return max(forecast.p90_s, forecast.estimate_s)


def _in_steps_us(length_s: int, limit_us: int) -> int:
    grain_s = max(1, (1 << (length_s.bit_length() - 1)) // GRAINS)
    length_us = -(-length_s // grain_s) * grain_s * SECOND_US
    return length_us if not limit_us or length_us < limit_us else 0


def end_us(one: Running, now_us: int, grace_us: int) -> int:
    """When running work is expected to give back what it holds, as seen from `now_us`; always later than that.

    Work that has outlived what was expected takes its limit, unless a new forecast says less: of what is known then this
    is the one thing that holds, and replays of logs lose more with every smaller step (ADR 14). Without a limit it takes
    as long again as it has. Work beyond its limit comes back after the grace, or as long as it is late.
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
    """Waiting jobs in the order in which what came free is offered to them: by priority, and among equals by length.

    A job that ends soon delays few; those that have waited for a day have their turn before them, by age (ADR 14).
    """

    def turn(entry: QueueEntry) -> tuple[int, int]:
        job = entry.job
        return entry.rank, 0 if now_us - job.since_us >= AGED_US else job.stay_us

    return sorting(entries, turn)


def shortest_for_its_wait_first(
    entries: Sequence[QueueEntry], now_us: int
) -> Generator[None, None, list[QueueEntry]]:
    """The same where those who wait have no promise: a job counts as half as long for every three hours that it has waited.

    So the long ones are not put off from one hole to the next until their day has passed (ADR 14).
    """

    def turn(entry: QueueEntry) -> tuple[int, float]:
        job = entry.job
        waited_us = max(0, now_us - job.since_us)
        return entry.rank, 0.0 if waited_us >= AGED_US else job.stay_us * 0.5 ** (waited_us / HALVED_US)

    return sorting(entries, turn)
