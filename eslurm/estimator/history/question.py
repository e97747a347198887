"""A question holds all that is known when it is asked; a batch is many questions as arrays.

Invariant: a question holds rows whose contents do not change any more (ended runs, descriptions) and copies of the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np

from eslurm.estimator.history.history_index import DEPTHS, LEVELS, OPEN_MAX
from eslurm.estimator.history.table import Columns, Flags, Floats, Indices, Rows

BOUNDS: Final = (0, *accumulate(DEPTHS))
RUNNING_AT: Final = BOUNDS[-1]
WAITING_AT: Final = RUNNING_AT + OPEN_MAX
QUANTILES_KEPT: Final = 10
"""Of the cluster's last runs, in `Background.runs`."""
WIDTH: Final = WAITING_AT + OPEN_MAX
"""A question's rows: the last runs of each level, then the user's running and waiting jobs; -1 where there is none."""

COUNTS: Final = ("ended", "submitted", "running", "waiting", "since_submit", "oldest", "newest")
"""By level: numbers of jobs; seconds since the submission before this one's; for how long others run; -1: none."""


class Background(NamedTuple):
    """The whole cluster at one time: logarithms of seconds."""

    runs: Floats
    """Quantiles of the last runs, ascending."""
    beyond: Floats
    """Quantiles of how far runs that reach their limit go beyond it."""


class Question(NamedTuple):
    """One job at one instant. `elapsed_s` is -1 before its start."""

    row: int
    at_s: int
    elapsed_s: int
    waited_s: int
    limit_s: int
    rows: Rows
    counts: Floats
    """Those of `COUNTS`, level after level, then for how long each of the user's running jobs has run."""
    background: Background
    first: bool
    """The first of its kind for this job: what calibration looks at."""


class Batch(NamedTuple):
    """Questions as arrays, and the columns that their rows point into."""

    columns: Columns
    row: Indices
    at: Floats
    elapsed: Floats
    waited: Floats
    rows: Indices
    counts: Floats
    """(questions, levels, counts)"""
    running_for: Floats
    runs: Floats
    beyond: Floats

    @property
    def running(self) -> Flags:
        """Jobs that have run for a while, as flags."""
        return self.elapsed > 0.0

    def level(self, level: int) -> Indices:
        """The last runs of a level, newest first."""
        return self.rows[:, BOUNDS[level] : BOUNDS[level + 1]]

    def counted(self, level: int, name: str) -> Floats:
        """One of `COUNTS`."""
        return self.counts[:, level, COUNTS.index(name)]


def batch(columns: Columns, questions: Sequence[Question]) -> Batch:
    """Raises nothing on any question of this table."""
    counts = np.stack([question.counts for question in questions])
    split = len(LEVELS) * len(COUNTS)
    return Batch(
        columns,
        np.array([question.row for question in questions], np.int64),
        np.array([question.at_s for question in questions], np.float64),
        np.array([question.elapsed_s for question in questions], np.float64),
        np.array([question.waited_s for question in questions], np.float64),
        np.stack([question.rows for question in questions]).astype(np.int64),
        counts[:, :split].reshape(len(questions), len(LEVELS), len(COUNTS)),
        counts[:, split:],
        np.stack([question.background.runs for question in questions]),
        np.stack([question.background.beyond for question in questions]),
    )
