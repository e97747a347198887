"""Studies of a log that led to the published estimator, to be made again on any log (E-51 to E-55).

Invariant: figures depend on the log alone; where pairs of jobs are too many, every n-th job stands for all.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from eslurm.core.model.forecast import Forecast
from eslurm.estimator.clustered_svr.clusters import ELBOW_MOST, bend
from eslurm.estimator.clustered_svr.model import elbow_of
from eslurm.estimator.jobs import Ended
from eslurm.estimator.window import WINDOW_JOBS
from eslurm.lab.studies.scores import accuracies, estimates_of, runtimes_of
from eslurm.lab.studies.workload import LoggedJob
from eslurm.ports.estimator import Setting

Row: TypeAlias = tuple[float, ...]

P_GRID: Final = tuple(round(10 ** (exponent / 20), 4) for exponent in range(-40, 81))
"""0.01 to 10,000."""
SIMILAR: Final = 0.8
"""Sizes, and runtimes, are similar when the smaller is at least so much of the larger."""
INTERVAL_HOURS: Final = 60
GAPS: Final = (1, 2, 3, 5, 7, *range(10, 100, 10), *range(100, 1_000, 50), *range(1_000, 3_001, 200))
ANCHORS_MAX: Final = 20_000
ALPHAS: Final = tuple(round(1 + step / 100, 2) for step in range(9))
"""Table VIII."""
ELBOW_WINDOWS: Final = 5
"""Windows of the log, evenly apart, whose elbows are looked at."""
SWEPT: Final[tuple[str, Mapping[str, Setting]]] = ("clustered-svr", {"alpha": 1.0, "gate": 0.0})
"""The published model by itself: what users asked for is not looked at."""
_HOUR_S: Final = 3_600
_DAY_S: Final = 86_400
_LONG_S: Final = 6 * _HOUR_S
_EVENING_HOUR: Final = 18


class Study(msgspec.Struct, frozen=True):
    """A curve or table: what is in which column, its rows, and figures about it."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    facts: Mapping[str, Any]


def overestimates(jobs: Sequence[LoggedJob]) -> Study:
    """E-51: how P = t_s/t_r is distributed, of jobs with a requested time. Above 1 the user overestimated."""
    ratios = np.sort(
        [job.submitted.limit_s / job.runtime_s for job in jobs if job.submitted.limit_s > 0] or [np.nan]
    )
    known = int(np.isfinite(ratios).sum())
    rows = tuple((p, float(np.searchsorted(ratios, p, "right") / max(known, 1))) for p in P_GRID)
    facts = {
        "jobs": known,
        "over": float((ratios > 1).mean()) if known else 0.0,
        "more_than_twice": float((ratios > 2).mean()) if known else 0.0,
        "median_p": float(np.median(ratios)) if known else None,
    }
    return Study("cdf", ("p", "share"), rows if known else (), facts)


class JobPairs:
    """The pairs of correlated jobs (E-52): alike in name, size and runtime.

    Jobs without a name are compared by their users: logs without names have nothing else.
    """

    def __init__(self, jobs: Sequence[LoggedJob]) -> None:
        self._named = (
            any(job.submitted.name for job in jobs) and len({job.submitted.name for job in jobs}) > 1
        )
        numbers: dict[str, int] = {}
        names = [job.submitted.name if self._named else job.submitted.user for job in jobs]
        self._names = np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)
        self._known = np.array([bool(name) for name in names])
        self._cores = np.array([job.submitted.cores for job in jobs], dtype=np.float64)
        self._runtimes = runtimes_of(jobs)
        self._submits = np.array([job.submitted.at_s for job in jobs], dtype=np.int64)
        self._anchors = np.arange(0, len(jobs), max(1, -(-len(jobs) // ANCHORS_MAX)))

    @property
    def by(self) -> str:
        """The attribute that takes the place of the name."""
        return "name" if self._named else "user"

    def by_gap(self) -> Study:
        """Share of correlated pairs over the distance of their positions in the log."""
        rows = []
        for gap in GAPS:
            first = self._with_partner(gap)
            if len(first):
                rows.append((float(gap), float(self._alike(first, first + gap).mean()), float(len(first))))
        return Study("gap", ("gap", "ratio", "pairs"), tuple(rows), {"same": self.by})

    def by_interval(self, progress: Callable[[int, int], None] | None = None) -> Study:
        """Share of correlated pairs over the hours between their submissions; `progress` gets the hours that are done."""
        pairs = np.zeros(INTERVAL_HOURS, dtype=np.int64)
        alike = np.zeros(INTERVAL_HOURS, dtype=np.int64)
        gap = 1
        while True:
            first = self._with_partner(gap)
            hours = (self._submits[first + gap] - self._submits[first]) // _HOUR_S
            near = hours < INTERVAL_HOURS
            if not near.any():
                break
            first, hours = first[near], hours[near]
            pairs += np.bincount(hours, minlength=INTERVAL_HOURS)
            alike += np.bincount(hours, self._alike(first, first + gap), minlength=INTERVAL_HOURS).astype(
                np.int64
            )
            gap += 1
            if progress is not None:
                progress(int(hours.min()), INTERVAL_HOURS)
        rows = tuple(
            (float(hour), float(alike[hour] / pairs[hour]), float(pairs[hour]))
            for hour in range(INTERVAL_HOURS)
            if pairs[hour]
        )
        return Study("interval", ("hours", "ratio", "pairs"), rows, {"same": self.by})

    def _with_partner(self, gap: int) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._anchors[self._anchors + gap < len(self._names)]
        return found

    def _alike(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.bool_]:
        same: NDArray[np.bool_] = (self._names[first] == self._names[second]) & self._known[first]
        for values in (self._cores, self._runtimes):
            same &= accuracies(values[first], values[second]) >= SIMILAR
        return same


def habits(jobs: Sequence[LoggedJob], begins_s: int = 0) -> dict[str, Any]:
    """E-53, E-54: how large the log is, when long jobs come, how often users submit the same again within a day.

    `begins_s` is the instant of the log's second 0, for hours of the day. The same job: same user, name, and size.
    """
    long_jobs = [job for job in jobs if job.runtime_s > _LONG_S]
    evening = sum((begins_s + job.submitted.at_s) // _HOUR_S % 24 >= _EVENING_HOUR for job in long_jobs)
    seen: dict[str, list[int]] = {}
    last: dict[tuple[str, str, int], int] = {}
    again = of = 0
    for job in jobs:
        asked = job.submitted
        if not asked.user:
            continue
        key = (asked.user, asked.name, asked.cores)
        own = seen.setdefault(asked.user, [])
        if bisect.bisect_left(own, asked.at_s - _DAY_S) < len(own):
            of += 1
            again += key in last and asked.at_s - last[key] <= _DAY_S
        own.append(asked.at_s)
        last[key] = asked.at_s
    span_s = jobs[-1].submitted.at_s - jobs[0].submitted.at_s
    return {
        "jobs": len(jobs),
        "users": len(seen),
        "days": round(span_s / _DAY_S, 1),
        "long_jobs": len(long_jobs),
        "long_jobs_18_to_24": evening / len(long_jobs) if long_jobs else None,
        "same_as_within_24_h": again / of if of else None,
    }


def alpha_sweep(jobs: Sequence[LoggedJob], forecasts: Sequence[Forecast]) -> Study:
    """E-55, in the form of Table VIII: AEA and UR over the slack, from estimates made with alpha = 1 (Equation 3)."""
    runtimes, estimates = runtimes_of(jobs), estimates_of(forecasts)
    rows = []
    for alpha in ALPHAS:
        slack = estimates * alpha
        rows.append((alpha, float(accuracies(slack, runtimes).mean()), float((slack < runtimes).mean())))
    return Study("alpha", ("alpha", "aea", "ur"), tuple(rows), {"jobs": len(jobs)})


def elbow_curve(jobs: Sequence[LoggedJob], progress: Callable[[int, int], None] | None = None) -> Study:
    """E-44: what is left of the spread of the features (Table IV) with K clusters, mean over windows of the log.

    Windows as the published estimator learns from: 700 jobs in the order of their ends. `k` of the facts is where the mean
    curve bends most, `by_window` where each does.
    """
    ended = [Ended(job.submitted, job.runtime_s) for job in sorted(jobs, key=lambda job: job.end_s)]
    count = min(ELBOW_WINDOWS, max(1, len(ended) // WINDOW_JOBS))
    ends = [len(ended) * (window + 1) // count for window in range(count)]
    curves, chosen = [], []
    for done, end in enumerate(ends):
        if progress is not None:
            progress(done, count)
        found = elbow_of(ended[max(0, end - WINDOW_JOBS) : end])
        whole = found.inertias[0] or 1.0
        curves.append([inertia / whole for inertia in found.inertias])
        chosen.append(found.k)
    shortest = min(ELBOW_MOST, *(len(curve) for curve in curves))
    mean = [sum(curve[place] for curve in curves) / count for place in range(shortest)]
    rows_of = tuple((float(place + 1), value) for place, value in enumerate(mean))
    return Study("elbow", ("k", "inertia"), rows_of, {"k": bend(mean) + 1, "by_window": chosen})
