"""`forest`: one random forest over the window (E-56).

Readings: it learns seconds unless `scale` is "log" (the mean of logarithms underestimates far more often); the time limit is
a feature too unless `limits` is false (Table IV has none), and no estimate exceeds it.
"""

from __future__ import annotations

from collections.abc import Mapping

from eslurm.estimator.rivals.arrays import Floats
from eslurm.estimator.rivals.features import Scale
from eslurm.estimator.rivals.jobs import Ended
from eslurm.estimator.rivals.regression import RegressionMethod
from eslurm.estimator.rivals.settings import SettingsReader
from eslurm.estimator.rivals.trees import LEAF_JOBS, TREES, Trees
from eslurm.estimator.rivals.windowed import WindowedEstimator
from eslurm.estimator.rivals.windows import Window
from eslurm.ports.estimator import Setting

NAME = "forest"


def make(settings: Mapping[str, Setting]) -> WindowedEstimator:
    """Settings: `window_jobs`, `retrain_every_s`, `limits`, `scale`, `trees`, `leaf_jobs`. Raises `ValueError`."""
    reader = SettingsReader(NAME, settings)
    window: Window[Ended] = Window.of(reader)
    trees = reader.integer("trees", TREES, 1, 1_000)
    leaf_jobs = reader.integer("leaf_jobs", LEAF_JOBS, 1, 1_000)
    scale = Scale(reader.choice("scale", "seconds", "log", "seconds"))
    limits = reader.flag("limits", True)
    reader.finish()

    def learn(rows: Floats, targets: Floats) -> Trees:
        return Trees.learn(rows, targets, trees=trees, leaf_jobs=leaf_jobs)

    return WindowedEstimator(RegressionMethod(NAME, learn, Trees.load, scale=scale, limits=limits), window)
