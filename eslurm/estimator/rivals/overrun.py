"""What to say of a job that has outlived its estimate: the corrections of Tsafrir and others.

A plain number has nothing to say then: it is raised step by step, a little at first, more the longer the job goes on.
"""

from __future__ import annotations

from typing import Final

from eslurm.core.model.forecast import NO_LIMIT

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
"""So much longer than first estimated: the first step that lies ahead."""


def corrected(estimate_s: int, elapsed_s: int, limit_s: int) -> int:
    """An estimate that exceeds what has passed; not beyond the limit unless that has passed too. All in seconds."""
    if estimate_s > elapsed_s:
        return estimate_s
    ahead = (estimate_s + step_s for step_s in STEPS_S if estimate_s + step_s > elapsed_s)
    raised = next(ahead, elapsed_s + STEPS_S[-1])
    return min(raised, limit_s) if limit_s != NO_LIMIT and limit_s > elapsed_s else raised
