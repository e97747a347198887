"""Scores of predictions: accuracy, underestimates, error, coverage; and at another rate of underestimates.

An estimator can always underestimate less with larger estimates. `scaled` makes them comparable: every estimate times the
one constant, found in hindsight, with which the wanted share is underestimated. Invariant: every figure is a plain mean
over the jobs given, so that it can be recomputed from a table of predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from eslurm.core.model.forecast import Forecast
from eslurm.lab.studies.workload import LoggedJob

Floats: TypeAlias = NDArray[np.float64]

FRONTIER_UNDER: Final = (
    0.01,
    0.02,
    0.03,
    0.05,
    0.07,
    0.1,
    0.13,
    0.16,
    0.2,
    0.25,
    0.3,
    0.35,
    0.4,
    0.45,
    0.5,
    0.6,
)
"""Rates of underestimates at which a frontier is drawn."""


class Scaled(msgspec.Struct, frozen=True):
    """The same estimates, each times `factor`."""

    factor: float
    aea: float
    under: float
    """At most the wanted rate; less where several jobs have the same ratio."""


class Scores(msgspec.Struct, frozen=True):
    """Figures of one estimator at one instant (E-49). Shares are 0..1."""

    jobs: int
    aea: float
    """Mean of min/max of estimate and runtime."""
    under: float
    """Share of jobs with estimate < runtime."""
    mae_s: float
    coverage: float
    """Share of jobs with p10 <= runtime <= p90."""
    area_aea: float
    """As `aea`, each job counted by its processor seconds."""
    scaled: Scaled


def score(jobs: Sequence[LoggedJob], forecasts: Sequence[Forecast], target_under: float) -> Scores:
    """The figures of these jobs: at least one, and one forecast each."""
    runtimes, estimates = runtimes_of(jobs), estimates_of(forecasts)
    low = np.array([one.p10_s for one in forecasts], dtype=np.float64)
    high = np.array([one.p90_s for one in forecasts], dtype=np.float64)
    areas = np.array([job.area for job in jobs], dtype=np.float64)
    exact = accuracies(estimates, runtimes)
    return Scores(
        jobs=len(jobs),
        aea=float(exact.mean()),
        under=float((estimates < runtimes).mean()),
        mae_s=float(np.abs(estimates - runtimes).mean()),
        coverage=float(((low <= runtimes) & (runtimes <= high)).mean()),
        area_aea=float((exact * areas).sum() / areas.sum()),
        scaled=scaled(estimates, runtimes, target_under),
    )


def runtimes_of(jobs: Sequence[LoggedJob]) -> Floats:
    """Run times in seconds, (jobs,)."""
    return np.array([job.runtime_s for job in jobs], dtype=np.float64)


def estimates_of(forecasts: Sequence[Forecast]) -> Floats:
    """Estimates in seconds, (jobs,)."""
    return np.array([one.estimate_s for one in forecasts], dtype=np.float64)


def accuracies(estimates: Floats, runtimes: Floats) -> Floats:
    """Equation 4, job by job."""
    found: Floats = np.minimum(estimates, runtimes) / np.maximum(estimates, runtimes)
    return found


def scaled(estimates: Floats, runtimes: Floats, target_under: float) -> Scaled:
    """The smallest constant with which no more than this share (0..1) of the jobs is underestimated."""
    ratios = np.sort(runtimes / estimates)
    allowed = min(int(target_under * len(ratios) + 1e-9), len(ratios) - 1)
    factor = float(ratios[len(ratios) - 1 - allowed])
    # A job's own ratio as the factor makes its estimate exact; compared as ratios, rounding cannot make it an underestimate.
    under = float((ratios > factor).mean())
    return Scaled(factor, float(accuracies(estimates * factor, runtimes).mean()), under)


def frontier(jobs: Sequence[LoggedJob], forecasts: Sequence[Forecast]) -> list[Scaled]:
    """These estimates scaled, from few underestimates to many."""
    runtimes, estimates = runtimes_of(jobs), estimates_of(forecasts)
    return [scaled(estimates, runtimes, under) for under in FRONTIER_UNDER]
