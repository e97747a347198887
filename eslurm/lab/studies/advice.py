"""Accuracy of time limits and forecasts, and a limit that would have sufficed, from ended jobs (E-50).

Invariant: advice is never guessed from too few jobs. With `n` alike jobs the chance that the next one runs longer than the
k-th shortest of them is (n + 1 - k) / (n + 1), whatever the distribution; a limit is suggested where that is at most
`CUT_SHARE`, which takes `JOBS_MIN` jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from eslurm.core.forecast.accuracy import Tally
from eslurm.core.model.forecast import Forecast

CUT_SHARE: Final = 0.05
JOBS_MIN: Final = 19
_STEPS_S: Final = ((3_600, 60), (24 * 3_600, 600))
_STEP_LONG_S: Final = 3_600
_SPARE_S: Final = 60
SAVING_MIN: Final = 0.1
"""A suggestion that would spare less than this part of the limit is not worth a change."""


class Run(msgspec.Struct, frozen=True):
    """One job that ran. `limit_s` 0: none. `first_s` 0: no estimate. `forecast` is that of its start.

    `is_whole`: it ended by itself and well, so its runtime is sufficient; `was_cut`: by its time limit.
    """

    ran_s: int
    limit_s: int = 0
    first_s: int = 0
    forecast: Forecast | None = None
    is_whole: bool = True
    was_cut: bool = False


class Accuracy(msgspec.Struct, frozen=True):
    """Over `jobs` jobs: average estimation accuracy (Equation 5), and the share that ran longer than estimated."""

    jobs: int
    aea: float
    under: float


class Suggestion(msgspec.Struct, frozen=True):
    """A limit in seconds, and the upper bound of the chance that a job like these exceeds it."""

    limit_s: int
    chance: float
    jobs: int


class Review(msgspec.Struct, frozen=True):
    """Results for a group of alike jobs. None: unknown, or nothing to suggest (`note` is the reason)."""

    jobs: int
    limit: Accuracy | None
    estimate: Accuracy | None
    coverage: float | None
    """Share of jobs that ended within P10-P90 as forecast at their start; meant to be 0.8."""
    suggestion: Suggestion | None
    note: str
    limit_s: int = 0
    """The limit asked for last; 0: none."""


def review(runs: Sequence[Run]) -> Review:
    """The review of these jobs, at least one, the oldest first."""
    suggestion, note = suggest(runs)
    inside = [
        one.forecast.p10_s <= one.ran_s <= one.forecast.p90_s for one in runs if one.forecast is not None
    ]
    return Review(
        len(runs),
        _accuracy([(one.limit_s, one.ran_s) for one in runs]),
        _accuracy([(one.first_s, one.ran_s) for one in runs]),
        sum(inside) / len(inside) if inside else None,
        suggestion,
        note,
        runs[-1].limit_s,
    )


def _accuracy(pairs: Sequence[tuple[int, int]]) -> Accuracy | None:
    tally = Tally()
    for estimate_s, ran_s in pairs:
        if estimate_s > 0:
            tally.add(estimate_s, ran_s)
    return Accuracy(tally.jobs, tally.aea, tally.under) if tally.jobs else None


def suggest(runs: Sequence[Run]) -> tuple[Suggestion | None, str]:
    """The sufficient limit for the next such job, or the reason for no suggestion.

    Counted are jobs that ended well and those that their limit cut, which count as longer than any known time.
    """
    counted = [one for one in runs if one.is_whole or one.was_cut]
    cut = sum(one.was_cut for one in counted)
    jobs = len(counted)
    if jobs < JOBS_MIN:
        return None, f"too few jobs to say: {jobs} ended well or at their limit, {JOBS_MIN} are needed"
    allowed = int(CUT_SHARE * (jobs + 1))
    if cut >= allowed:
        return (
            None,
            f"{cut} of {jobs} were ended by their limit: how long they need is not known, ask for more",
        )
    times_s = sorted(one.ran_s for one in counted if not one.was_cut)
    longest_s = times_s[jobs - allowed]
    limit_s = rounded_up(longest_s + _SPARE_S)
    now_s = runs[-1].limit_s
    if now_s * (1 - SAVING_MIN) < limit_s and longest_s <= now_s:
        return None, "the limit fits"
    return Suggestion(limit_s, allowed / (jobs + 1), jobs), ""


def rounded_up(seconds: int) -> int:
    """To whole minutes; above an hour to ten of them, above a day to hours."""
    step_s = next((step for below_s, step in _STEPS_S if seconds <= below_s), _STEP_LONG_S)
    return -(-seconds // step_s) * step_s
