"""The estimator `history`: run times of related jobs, the likely one among them, and its uncertainty.

For each job the model gives a distribution of the run time on a grid of candidates: past runs at several levels of
likeness (user; user and program, size, limit, ...), its limit, the cluster's quantiles. Two kinds of models judge it, and
the mean of their log-odds counts: small networks that point at past runs (`network`), and boosted symmetric trees over
candidates (`trees`). From the distribution follow the interval and the estimate: the candidate with the highest expected
accuracy minus a penalty for running longer, which `calibration` sets so that the share of underestimates stays what was
asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

from eslurm.estimator.history.estimator import History, settings_of
from eslurm.ports.estimator import Setting


def make(settings: Mapping[str, Setting]) -> History:
    """A new one that knows nothing yet. Raises `ValueError` that names a setting it cannot use."""
    return History(settings_of(settings))
