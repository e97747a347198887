"""How long work is expected to stay, where its time limit says only how long it may (ADR 14).

A forecast is advice about length: plans make room beside other work for as long as is expected, and look at the limit
wherever something must not be overrun. Invariant: what is expected never lies beyond the limit, as long as that lasts.
"""

from __future__ import annotations

from typing import Final

from eslurm.core.plan.snapshot import Running
from eslurm.core.resources.timeline import INFINITY_US

SECOND_US: Final = 1_000_000
GRAINS: Final = 16
"""Estimates are planned with in steps of a sixteenth of their size at most: who asks for the same and is expected to take
about as long is looked for once, and a forecast that changes by less moves nothing."""


def planned_us(estimate_s: int, limit_us: int) -> int:
    """The length to plan with, in microseconds; 0: the limit (0: none) says it all."""
    if estimate_s <= 0:
        return 0
    grain_s = max(1, (1 << (estimate_s.bit_length() - 1)) // GRAINS)
    length_us = -(-estimate_s // grain_s) * grain_s * SECOND_US
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
