"""`trip`: Tobit regression on runtimes that the time limit cut off (Fan et al. 2017; E-56).

A job that was ended at its limit says only that it would have run at least that long; ordinary regression takes it for
finished and underestimates its like. Readings: the target is the logarithm of the runtime; a job counts as cut off when it
ran for `cut_at` of its limit or longer; the limit is a feature unless `limits` is false; no estimate exceeds the limit, as
no run will. The interval is that of the normal distribution around the line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from eslurm.core.model.forecast import NO_LIMIT, Submitted
from eslurm.estimator.rivals.arrays import Arrays, prefixed, under
from eslurm.estimator.rivals.features import Encoder, Scale, feature_names
from eslurm.estimator.rivals.jobs import Ended
from eslurm.estimator.rivals.linear import Linear, tobit
from eslurm.estimator.rivals.regression import read_limits
from eslurm.estimator.rivals.settings import SettingsReader
from eslurm.estimator.rivals.windowed import Learnt, Spans, WindowedEstimator
from eslurm.estimator.rivals.windows import Window
from eslurm.ports.estimator import Setting

CUT_AT: Final = 0.98
_P90: Final = 1.2815515655446004
"""A tenth of a normal distribution lies so many spreads above its middle."""


def make(settings: Mapping[str, Setting]) -> WindowedEstimator:
    """Settings: `window_jobs`, `retrain_every_s`, `limits`, `cut_at`. Raises `ValueError`."""
    reader = SettingsReader("trip", settings)
    window: Window[Ended] = Window.of(reader)
    method = TripMethod(reader.flag("limits", True), reader.number("cut_at", CUT_AT, 0.1, 1.0))
    reader.finish()
    return WindowedEstimator(method, window)


class TripMethod:
    """The method behind `trip`."""

    name = "trip"
    version = 1

    def __init__(self, limits: bool, cut_at: float) -> None:
        self._limits = limits
        self._cut_at = cut_at

    def learn(self, window: Sequence[Ended]) -> tuple[Arrays, Mapping[str, Any]]:
        encoder, rows = Encoder.learn(window, limits=self._limits)
        censored = np.array([self._was_cut(one) for one in window])
        line = tobit(rows, Scale.LOG.targets(window), censored)
        return (
            {**prefixed("features.", encoder.dump()), **line.dump()},
            {
                "features": feature_names(self._limits),
                "limits": self._limits,
                "censored_jobs": int(censored.sum()),
            },
        )

    def load(self, arrays: Arrays, facts: Mapping[str, Any]) -> Learnt:
        limits = read_limits(facts)
        encoder = Encoder.load(under("features.", arrays), limits=limits)
        return TripModel(encoder, Linear.load(arrays, len(feature_names(limits))))

    def _was_cut(self, one: Ended) -> bool:
        return one.job.limit_s != NO_LIMIT and one.runtime_s >= self._cut_at * one.job.limit_s


class TripModel:
    """What `trip` has learnt."""

    def __init__(self, encoder: Encoder, line: Linear) -> None:
        self._encoder = encoder
        self._line = line

    def predict(self, jobs: Sequence[Submitted]) -> Spans:
        middle = self._line.predict(self._encoder.rows(jobs))
        reach = _P90 * self._line.spread
        low, point, high = (Scale.LOG.seconds(middle + step) for step in (-reach, 0.0, reach))
        return Spans(low, point, high, point)
