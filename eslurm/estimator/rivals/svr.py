"""`svr`: one support vector regression over the window (E-56).

Readings: RBF kernel, standardised features; it learns the logarithm of the runtime unless `scale` is "seconds"; the time
limit is a feature too unless `limits` is false (Table IV has none), and no estimate exceeds it.
"""

from __future__ import annotations

from collections.abc import Mapping

from eslurm.estimator.rivals.arrays import Floats
from eslurm.estimator.rivals.features import Scale
from eslurm.estimator.rivals.jobs import Ended
from eslurm.estimator.rivals.regression import RegressionMethod
from eslurm.estimator.rivals.settings import SettingsReader
from eslurm.estimator.rivals.vectors import COST, EPSILON, Vectors
from eslurm.estimator.rivals.windowed import WindowedEstimator
from eslurm.estimator.rivals.windows import Window
from eslurm.ports.estimator import Setting

NAME = "svr"


def make(settings: Mapping[str, Setting]) -> WindowedEstimator:
    """Settings: `window_jobs`, `retrain_every_s`, `limits`, `scale`, `cost` and `epsilon` of the regression.

    Raises `ValueError`.
    """
    reader = SettingsReader(NAME, settings)
    window: Window[Ended] = Window.of(reader)
    cost = reader.number("cost", COST, 1e-3, 1e4)
    epsilon = reader.number("epsilon", EPSILON, 0.0, 10.0)
    scale = Scale(reader.choice("scale", "log", "log", "seconds"))
    limits = reader.flag("limits", True)
    reader.finish()

    def learn(rows: Floats, targets: Floats) -> Vectors:
        return Vectors.learn(rows, targets, cost=cost, epsilon=epsilon)

    return WindowedEstimator(RegressionMethod(NAME, learn, Vectors.load, scale=scale, limits=limits), window)
