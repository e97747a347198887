"""Support vector regression: learnt by libsvm, kept as arrays, predicted row by row.

Invariant: a row's prediction is the same bits whatever rows are beside it: sums go over support vectors in one fixed order.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import SVR

from eslurm.estimator.rivals.arrays import Arrays, Floats, floats

BLOCK_ROWS: Final = 256
"""Rows at a time: bounds the memory of a large batch."""

EPSILON: Final = 0.1
COST: Final = 1.0


class Vectors:
    """An RBF regression on standardised targets: b + sum of dual[k] exp(-gamma |x - v[k]|^2), times spread plus middle."""

    def __init__(self, support: Floats, dual: Floats, scalars: Floats) -> None:
        self._support = support
        self._dual = dual
        self._scalars = scalars

    @staticmethod
    def learn(rows: Floats, targets: Floats, *, cost: float = COST, epsilon: float = EPSILON) -> Vectors:
        """From rows of features; targets that are all the same give a constant."""
        middle, spread = float(targets.mean()), float(targets.std())
        width = rows.shape[1]
        if len(targets) < 2 or spread < 1e-9:
            return Vectors(np.zeros((0, width)), np.zeros(0), np.array([middle, 1.0, 0.0, 1.0]))
        variance = float(rows.var())
        gamma = 1.0 / (width * variance) if variance > 1e-12 else 1.0
        fitted = SVR(kernel="rbf", C=cost, epsilon=epsilon, gamma=gamma).fit(
            rows, (targets - middle) / spread
        )
        scalars = np.array([middle, spread, float(fitted.intercept_[0]), gamma])
        return Vectors(
            np.ascontiguousarray(fitted.support_vectors_, dtype=np.float64),
            np.ascontiguousarray(fitted.dual_coef_[0], dtype=np.float64),
            scalars,
        )

    def predict(self, rows: Floats) -> Floats:
        """A target a row."""
        parts = [self._block(rows[at : at + BLOCK_ROWS]) for at in range(0, len(rows), BLOCK_ROWS)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def dump(self) -> dict[str, NDArray[Any]]:
        return {"support": self._support, "dual": self._dual, "scalars": self._scalars}

    @staticmethod
    def load(arrays: Arrays, width: int) -> Vectors:
        """Raises `ValueError`."""
        dual, scalars = floats(arrays, "dual", None), floats(arrays, "scalars", 4)
        if scalars[3] <= 0:
            raise ValueError("the model is damaged: its kernel must have a width above 0")
        return Vectors(floats(arrays, "support", len(dual), width), dual, scalars)

    def _block(self, rows: Floats) -> Floats:
        middle, spread, intercept, gamma = self._scalars.tolist()
        distances = np.zeros((len(rows), len(self._dual)))
        for column in range(rows.shape[1]):
            step = rows[:, column, None] - self._support[None, :, column]
            distances += step * step
        weighted = np.exp(-gamma * distances) * self._dual
        result: Floats = (weighted.sum(axis=1) + intercept) * spread + middle
        return result
