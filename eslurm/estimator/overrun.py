"""Estimates above the elapsed time: the corrections of Tsafrir and others for jobs that outlive their estimate.

The estimate is raised step by step, a little at first, more the longer the job runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eslurm.core.model.forecast import LONGEST_S, NO_LIMIT, Forecast, Submitted

_MINUTE_S: Final = 60
_HOUR_S: Final = 3_600

STEPS_S: Final = (
    _MINUTE_S,
    5 * _MINUTE_S,
    15 * _MINUTE_S,
    30 * _MINUTE_S,
    _HOUR_S,
    2 * _HOUR_S,
    5 * _HOUR_S,
    10 * _HOUR_S,
    20 * _HOUR_S,
    50 * _HOUR_S,
    100 * _HOUR_S,
)
"""Steps above the first estimate: the first one that lies ahead."""


def corrected(estimate_s: int, elapsed_s: int, limit_s: int) -> int:
    """An estimate above the elapsed time; not above the limit unless that has passed too. All in seconds."""
    if estimate_s > elapsed_s:
        return estimate_s
    ahead = (estimate_s + step_s for step_s in STEPS_S if estimate_s + step_s > elapsed_s)
    raised = next(ahead, elapsed_s + STEPS_S[-1])
    return min(raised, limit_s) if limit_s != NO_LIMIT and limit_s > elapsed_s else raised


def bounded(seconds: Sequence[float], job: Submitted, elapsed_s: int, *, cap_s: int) -> Forecast:
    """A forecast in whole seconds from p10, p50, p90 and the estimate.

    They are put in order, capped at `cap_s` (0: no cap) unless that has passed, and exceed `elapsed_s`.
    """
    most_s = LONGEST_S if cap_s == NO_LIMIT else min(cap_s, LONGEST_S)
    capped = [min(max(1, round(one)), most_s) for one in seconds]
    beyond = [corrected(one, elapsed_s, job.limit_s) for one in capped]
    low, middle, high = sorted(beyond[:3])
    return Forecast(low, middle, high, beyond[3])
