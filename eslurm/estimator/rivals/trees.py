"""A random forest: grown by scikit-learn, kept as arrays, walked by all rows at once.

Invariant: every child comes after its parent in the arrays, so a walk ends; a row's prediction is the mean over the trees in
one fixed order, whatever rows are beside it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor

from eslurm.estimator.rivals.arrays import Arrays, Floats, Integers, floats, integers

TREES: Final = 60
LEAF_JOBS: Final = 3
SEED: Final = 1
BLOCK_ROWS: Final = 1_024
"""Rows at a time: bounds the memory of a large batch."""


class Trees:
    """All trees in one row of nodes: a row goes left where its feature is at most the threshold; a leaf is its own child."""

    def __init__(
        self,
        roots: Integers,
        feature: Integers,
        threshold: Floats,
        left: Integers,
        right: Integers,
        value: Floats,
    ) -> None:
        self._roots = roots
        self._feature = feature
        self._threshold = threshold
        self._left = left
        self._right = right
        self._value = value

    @staticmethod
    def learn(rows: Floats, targets: Floats, *, trees: int = TREES, leaf_jobs: int = LEAF_JOBS) -> Trees:
        """From rows of features; the same rows give the same forest."""
        forest = RandomForestRegressor(
            trees, min_samples_leaf=leaf_jobs, max_features=0.5, random_state=SEED, n_jobs=1
        ).fit(rows, targets)
        grown = [estimator.tree_ for estimator in forest.estimators_]
        sizes = [tree.node_count for tree in grown]
        roots = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64)
        lefts, rights = [], []
        for root, tree in zip(roots.tolist(), grown, strict=True):
            itself = np.arange(tree.node_count)
            leaf = tree.children_left < 0
            lefts.append(root + np.where(leaf, itself, tree.children_left))
            rights.append(root + np.where(leaf, itself, tree.children_right))
        return Trees(
            roots,
            np.concatenate([np.maximum(tree.feature, 0) for tree in grown]).astype(np.int64),
            np.concatenate([tree.threshold for tree in grown]).astype(np.float64),
            np.concatenate(lefts).astype(np.int64),
            np.concatenate(rights).astype(np.int64),
            np.concatenate([tree.value[:, 0, 0] for tree in grown]).astype(np.float64),
        )

    def predict(self, rows: Floats) -> Floats:
        """A target a row."""
        parts = [self._block(rows[at : at + BLOCK_ROWS]) for at in range(0, len(rows), BLOCK_ROWS)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def dump(self) -> dict[str, NDArray[Any]]:
        return {
            "roots": self._roots,
            "feature": self._feature,
            "threshold": self._threshold,
            "left": self._left,
            "right": self._right,
            "value": self._value,
        }

    @staticmethod
    def load(arrays: Arrays, width: int) -> Trees:
        """Raises `ValueError`."""
        threshold = floats(arrays, "threshold", None)
        count = len(threshold)
        roots = integers(arrays, "roots", 0, count - 1, None)
        left, right = (integers(arrays, side, 0, count - 1, count) for side in ("left", "right"))
        itself = np.arange(count)
        onward = ((left > itself) & (right > itself)) | ((left == itself) & (right == itself))
        if not len(roots) or not bool(onward.all()):
            raise ValueError("the model is damaged: its trees must lead from roots to leaves")
        feature = integers(arrays, "feature", 0, width - 1, count)
        return Trees(roots, feature, threshold, left, right, floats(arrays, "value", count))

    def _block(self, rows: Floats) -> Floats:
        # The forest was grown on single precision: thresholds lie between such numbers.
        seen = rows.astype(np.float32).astype(np.float64)
        at = np.repeat(self._roots[None, :], len(rows), axis=0)
        row = np.arange(len(rows))[:, None]
        while True:
            goes_left = seen[row, self._feature[at]] <= self._threshold[at]
            onward = np.where(goes_left, self._left[at], self._right[at])
            if np.array_equal(onward, at):
                break
            at = onward
        result: Floats = self._value[at].sum(axis=1) / len(self._roots)
        return result
