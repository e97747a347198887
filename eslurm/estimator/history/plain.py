"""Answers before the first model: the last runs of the job's nearest relatives, or its limit.

Invariant: like any answer, it depends on the question alone.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from eslurm.core.model.forecast import NO_LIMIT
from eslurm.estimator.history.history_index import LEVELS
from eslurm.estimator.history.question import BOUNDS, Question
from eslurm.estimator.history.table import Columns

NEAREST: Final = tuple(LEVELS.index(name) for name in ("twin", "user_limit", "user"))
RUNS: Final = 5
SLACK: Final = 1.05
SPREAD: Final = 2.0


def interval(columns: Columns, question: Question) -> tuple[float, float, float, float]:
    """p10, p50, p90 and the estimate in seconds."""
    for level in NEAREST:
        rows = question.rows[BOUNDS[level] : BOUNDS[level] + RUNS]
        rows = rows[rows >= 0]
        if len(rows) > 1 or (len(rows) and level == NEAREST[-1]):
            return _of_runs(np.exp(columns.run[rows].astype(np.float64)), float(question.limit_s))
    low, middle, high = (float(np.exp(question.background.runs[place])) for place in (1, 5, 9))
    if question.limit_s == NO_LIMIT:
        return low, middle, high, high
    most = float(question.limit_s)
    return min(low, most), min(middle, most), most, most


def _of_runs(seconds: np.ndarray, limit_s: float) -> tuple[float, float, float, float]:
    longest = float(seconds.max())
    most = limit_s if limit_s > NO_LIMIT else longest * SPREAD
    most = max(most, longest)
    return float(seconds.min()) / SPREAD, float(seconds[:2].mean()), most, min(longest * SLACK, most)
