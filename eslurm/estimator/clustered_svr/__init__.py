"""The estimator `clustered-svr`: the published ESLURM framework (E-40 .. E-49), on scikit-learn."""

from __future__ import annotations

from eslurm.estimator.clustered_svr.estimator import make

__all__ = ["make"]
