"""`prep`: jobs are clustered by where they run from, and each cluster has a regression of its own (after PREP; E-56).

A job's running path is the path of its script or directory (`command`), else its name, under its user. Readings: paths are
alike as far as they share their leading parts, and parts that differ by digits only (run7, run8) are the same; a cluster is
therefore a node of the tree of paths, and a job belongs to the deepest one that has had `cluster_jobs` runs. The regression
is a Bayesian ridge on the runtime (its logarithm if `scale` is "log") by nodes, cores, hour and, unless `limits` is false,
the time limit; a cluster of less than `regression_jobs` runs has their mean. Estimates are drawn into the range of what the
cluster has seen, and none exceeds the limit. A model holds hashes of paths, not paths.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from eslurm.core.model.forecast import Submitted
from eslurm.estimator.rivals.arrays import Arrays, Floats, floats, hashes, prefixed, under
from eslurm.estimator.rivals.features import Encoder, Scale, feature_names, hashed
from eslurm.estimator.rivals.jobs import Ended
from eslurm.estimator.rivals.linear import bayesian_ridge
from eslurm.estimator.rivals.regression import facts_of, read_facts
from eslurm.estimator.rivals.settings import SettingsReader
from eslurm.estimator.rivals.windowed import Learnt, Spans, WindowedEstimator
from eslurm.estimator.rivals.windows import Window
from eslurm.ports.estimator import Setting

NAME: Final = "prep"
CLUSTER_JOBS: Final = 3
REGRESSION_JOBS: Final = 20
PARTS_MOST: Final = 32
"""Of a path: deeper ones are not told apart."""

_DIGITS: Final = re.compile(r"\d+")
_SEPARATOR: Final = "\0"


def make(settings: Mapping[str, Setting]) -> WindowedEstimator:
    """Settings: `window_jobs`, `retrain_every_s`, `limits`, `scale`, `cluster_jobs`, `regression_jobs`.

    Raises `ValueError`.
    """
    reader = SettingsReader(NAME, settings)
    window: Window[Ended] = Window.of(reader)
    method = PrepMethod(
        reader.flag("limits", True),
        Scale(reader.choice("scale", "seconds", "log", "seconds")),
        reader.integer("cluster_jobs", CLUSTER_JOBS, 1, 10_000),
        reader.integer("regression_jobs", REGRESSION_JOBS, 2, 100_000),
    )
    reader.finish()
    return WindowedEstimator(method, window)


def places(job: Submitted) -> list[int]:
    """The nodes of the tree of paths that the job lies under, from its user to its script, as hashes."""
    path = job.command or job.name
    if job.command:
        parts = [_DIGITS.sub("#", part) for part in path.split("/") if part]
    else:
        # The program numbers of a log are names: digits are all they have.
        parts = [path if path.isdigit() else _DIGITS.sub("#", path)] if path else []
    found, place = [], job.user
    for part in ["", *parts[:PARTS_MOST]]:
        place = f"{place}{_SEPARATOR}{part}"
        found.append(hashed(place))
    return found


class PrepMethod:
    """The method behind `prep`."""

    name = NAME
    version = 1

    def __init__(self, limits: bool, scale: Scale, cluster_jobs: int, regression_jobs: int) -> None:
        self._limits = limits
        self._scale = scale
        self._cluster_jobs = cluster_jobs
        self._regression_jobs = regression_jobs

    def learn(self, window: Sequence[Ended]) -> tuple[Arrays, Mapping[str, Any]]:
        encoder, rows = Encoder.learn(window, limits=self._limits)
        targets = self._scale.targets(window)
        members: dict[int, list[int]] = {}
        for index, one in enumerate(window):
            for place in places(one.job):
                members.setdefault(place, []).append(index)
        clusters = {place: kept for place, kept in members.items() if len(kept) >= self._cluster_jobs}
        everything = list(range(len(window)))
        lines = [self._line(rows, targets, kept) for kept in (everything, *clusters.values())]
        arrays = {
            **prefixed("features.", encoder.dump()),
            "places": np.array(list(clusters), dtype=np.uint64),
            "lines": np.array(lines),
        }
        return arrays, {**facts_of(self._scale, self._limits), "clusters": len(clusters)}

    def load(self, arrays: Arrays, facts: Mapping[str, Any]) -> Learnt:
        scale, limits = read_facts(facts)
        known = hashes(arrays, "places")
        lines = floats(arrays, "lines", len(known) + 1, len(feature_names(limits)) + 3)
        encoder = Encoder.load(under("features.", arrays), limits=limits)
        return PrepModel(encoder, {place: row for row, place in enumerate(known.tolist(), 1)}, lines, scale)

    def _line(self, rows: Floats, of_all: Floats, kept: list[int]) -> list[float]:
        """Intercept, coefficients (none of names and users: the cluster says that), least and greatest target."""
        own, targets = rows[kept], of_all[kept]
        spans = [float(targets.min()), float(targets.max())]
        if len(kept) < self._regression_jobs:
            return [float(targets.mean()), *[0.0] * rows.shape[1], *spans]
        line = bayesian_ridge(own[:, 2:], targets)
        return [line.intercept, 0.0, 0.0, *line.coefficients.tolist(), *spans]


class PrepModel:
    """What `prep` has learnt: a line per cluster; the first is that of all jobs."""

    def __init__(self, encoder: Encoder, places: Mapping[int, int], lines: Floats, scale: Scale) -> None:
        self._encoder = encoder
        self._places = places
        self._lines = lines
        self._scale = scale

    def predict(self, jobs: Sequence[Submitted]) -> Spans:
        rows = self._encoder.rows(jobs)
        line = self._lines[[self._row(job) for job in jobs]]
        total = line[:, 0]
        for column in range(rows.shape[1]):
            total = total + rows[:, column] * line[:, column + 1]
        within = np.minimum(np.maximum(total, line[:, -2]), line[:, -1])
        return Spans.exactly(self._scale.seconds(within))

    def _row(self, job: Submitted) -> int:
        """Of the deepest cluster that is known."""
        return next((row for place in reversed(places(job)) if (row := self._places.get(place))), 0)
