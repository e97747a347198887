"""`irpa`: a random forest, a support vector regression and a Bayesian ridge regression together (Wu et al.; E-56).

Readings: the three learn from the same window and features; `combine = "average"` (default) takes the mean of their
estimates in seconds, `"best"` the one that was most accurate on the last fifth of the window after learning from the rest.
The forest learns seconds, the other two logarithms: what suits each. The time limit is a feature too unless `limits` is
false, and no estimate exceeds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from eslurm.core.model.forecast import Submitted
from eslurm.estimator.rivals.arrays import Arrays, Floats, floats, prefixed, under
from eslurm.estimator.rivals.features import Encoder, Scale, feature_names, runtimes
from eslurm.estimator.rivals.jobs import Ended
from eslurm.estimator.rivals.linear import Linear, bayesian_ridge
from eslurm.estimator.rivals.regression import Regression, read_limits
from eslurm.estimator.rivals.settings import SettingsReader
from eslurm.estimator.rivals.trees import TREES, Trees
from eslurm.estimator.rivals.vectors import Vectors
from eslurm.estimator.rivals.windowed import Learnt, Spans, WindowedEstimator
from eslurm.estimator.rivals.windows import Window
from eslurm.ports.estimator import Setting

MEMBERS: Final = ("forest", "svr", "ridge")
SCALES: Final = (Scale.SECONDS, Scale.LOG, Scale.LOG)
HELD_OUT: Final = 0.2
_JUDGED_MIN: Final = 5


def make(settings: Mapping[str, Setting]) -> WindowedEstimator:
    """Settings: `window_jobs`, `retrain_every_s`, `limits`, `trees`, `combine`. Raises `ValueError`."""
    reader = SettingsReader("irpa", settings)
    window: Window[Ended] = Window.of(reader)
    method = IrpaMethod(
        reader.flag("limits", True),
        reader.integer("trees", TREES, 1, 1_000),
        reader.choice("combine", "average", "average", "best"),
    )
    reader.finish()
    return WindowedEstimator(method, window)


class IrpaMethod:
    """The method behind `irpa`."""

    name = "irpa"
    version = 1

    def __init__(self, limits: bool, trees: int, combine: str) -> None:
        self._limits = limits
        self._trees = trees
        self._combine = combine

    def learn(self, window: Sequence[Ended]) -> tuple[Arrays, Mapping[str, Any]]:
        encoder, rows = Encoder.learn(window, limits=self._limits)
        members = self._members(rows, window)
        arrays = prefixed("features.", encoder.dump())
        for name, member in zip(MEMBERS, members, strict=True):
            arrays.update(prefixed(name + ".", member.dump()))
        arrays["weights"] = self._weights(window)
        return arrays, {"features": feature_names(self._limits), "limits": self._limits}

    def load(self, arrays: Arrays, facts: Mapping[str, Any]) -> Learnt:
        limits = read_limits(facts)
        width = len(feature_names(limits))
        encoder = Encoder.load(under("features.", arrays), limits=limits)
        members = (
            Trees.load(under("forest.", arrays), width),
            Vectors.load(under("svr.", arrays), width),
            Linear.load(under("ridge.", arrays), width),
        )
        weights = floats(arrays, "weights", len(MEMBERS))
        if not 0 <= weights.min() <= weights.max() <= 1 or abs(float(weights.sum()) - 1) > 1e-9:
            raise ValueError("the model is damaged: weights must be shares of 1")
        return IrpaModel(encoder, members, weights)

    def _members(self, rows: Floats, window: Sequence[Ended]) -> tuple[Regression, ...]:
        seconds, logs = Scale.SECONDS.targets(window), Scale.LOG.targets(window)
        return (
            Trees.learn(rows, seconds, trees=self._trees),
            Vectors.learn(rows, logs),
            bayesian_ridge(rows, logs),
        )

    def _weights(self, window: Sequence[Ended]) -> Floats:
        judged = int(len(window) * HELD_OUT)
        if self._combine == "average" or judged < _JUDGED_MIN:
            return np.full(len(MEMBERS), 1 / len(MEMBERS))
        earlier, later = window[:-judged], window[-judged:]
        encoder, rows = Encoder.learn(earlier, limits=self._limits)
        later_rows, truth = encoder.rows([one.job for one in later]), runtimes(later)
        scores = []
        for member, scale in zip(self._members(rows, earlier), SCALES, strict=True):
            found = scale.seconds(member.predict(later_rows))
            scores.append(float((np.minimum(found, truth) / np.maximum(found, truth)).mean()))
        weights = np.zeros(len(MEMBERS))
        weights[int(np.argmax(scores))] = 1.0
        return weights


class IrpaModel:
    """What `irpa` has learnt."""

    def __init__(self, encoder: Encoder, members: Sequence[Regression], weights: Floats) -> None:
        self._encoder = encoder
        self._members = members
        self._weights = weights

    def predict(self, jobs: Sequence[Submitted]) -> Spans:
        rows = self._encoder.rows(jobs)
        total = np.zeros(len(jobs))
        for member, scale, weight in zip(self._members, SCALES, self._weights.tolist(), strict=True):
            if weight:
                total = total + weight * scale.seconds(member.predict(rows))
        return Spans.exactly(total)
