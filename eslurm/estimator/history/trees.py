"""Boosted symmetric trees: a probability from rows of features, with arrays of numbers as its only state.

All nodes of a level ask the same question, so a row's leaf is a few comparisons of whole columns, and a tree is a handful of
numbers. Invariant: a row's answer depends on that row alone, to the last bit; the same rows give the same trees.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from eslurm.estimator.history.table import Flags, Floats, Indices, Singles

TREES: Final = 100
DEPTH: Final = 5
BINS: Final = 64
RATE: Final = 0.12
FEATURE_SHARE: Final = 0.2
"""Of the features, as many are tried in a tree."""
ROW_SHARE: Final = 0.25
"""Of the rows, as many choose a tree's questions; all of them fill its leaves."""
LEAF_WEIGHT: Final = 20.0
"""Leaves are drawn towards 0 as if they held so much more weight."""
ROWS_FOR_BINS: Final = 20_000
MISSING: Final = np.float32(-1e30)
NEVER: Final = np.float32(3e38)
SEED: Final = 1


class Trees:
    """`feature` and `threshold` (trees, depth), `leaf` (trees, 2 ** depth): log-odds of ending, summed over the trees."""

    def __init__(self, base: float, feature: Indices, threshold: Singles, leaf: Floats) -> None:
        self._base = base
        self._feature = feature
        self._threshold = threshold
        self._leaf = leaf
        self._asked = [
            [(int(column), limit) for column, limit in zip(columns, limits, strict=True)]
            for columns, limits in zip(feature, threshold, strict=True)
        ]

    def log_odds(self, paired: Singles, alone: Singles) -> Floats:
        """(jobs, points) from features of each point, (features, jobs, points), and of each job, (features, jobs).

        Missing features are NaN, which no comparison finds larger: they go where `filled` sends them.
        """
        columns = [*paired, *alone[:, :, None]]
        shape = paired.shape[1:]
        total = np.full(shape, self._base)
        at = np.empty(shape, np.uint8)
        for questions, leaf in zip(self._asked, self._leaf, strict=True):
            at[:] = 0
            for column, limit in questions:
                np.left_shift(at, 1, out=at)
                at |= columns[column] > limit
            total += leaf.take(at)
        return total

    def dump(self) -> dict[str, NDArray[Any]]:
        """Arrays from which `load` makes the same."""
        return {
            "tree_base": np.array([self._base]),
            "tree_feature": self._feature,
            "tree_threshold": self._threshold,
            "tree_leaf": self._leaf,
        }

    @staticmethod
    def load(arrays: Mapping[str, NDArray[Any]], width: int) -> Trees:
        """Raises `ValueError` where arrays are missing or cannot be."""
        try:
            base, feature = arrays["tree_base"], arrays["tree_feature"]
            threshold, leaf = arrays["tree_threshold"], arrays["tree_leaf"]
        except KeyError as error:
            raise ValueError(f"the model is damaged: it has no array {error.args[0]!r}") from error
        trees = len(feature)
        sound = (
            base.shape == (1,)
            and feature.shape == threshold.shape == (trees, DEPTH)
            and leaf.shape == (trees, 1 << DEPTH)
            and feature.dtype == np.int64
            and threshold.dtype == np.float32
            and base.dtype == leaf.dtype == np.float64
            and bool(((feature >= 0) & (feature < width)).all())
            and bool(np.isfinite(base).all() and np.isfinite(threshold).all() and np.isfinite(leaf).all())
        )
        if not sound:
            raise ValueError("the model is damaged: its trees do not fit their features")
        return Trees(float(base[0]), feature, threshold, leaf)


def filled(rows: Singles) -> Singles:
    """Missing values go where the smallest go."""
    return np.where(np.isnan(rows), MISSING, rows)


def learn(rows: Singles, ended: Flags) -> Trees:
    """Newton boosting of the logistic loss; questions are chosen on a part of the rows and of the features."""
    random = np.random.default_rng(SEED)
    codes, limits = _binned(filled(rows), random)
    width, count = codes.shape
    target = ended.astype(np.float64)
    mean = min(max(float(target.mean()), 1e-3), 1 - 1e-3)
    base = float(np.log(mean / (1 - mean)))
    score = np.full(count, base)
    tried, chosen_rows = max(1, int(width * FEATURE_SHARE)), max(1, int(count * ROW_SHARE))
    feature, threshold, leaves = [], [], []
    for _ in range(TREES):
        probability = 1.0 / (1.0 + np.exp(-score))
        gradient, weight = probability - target, probability * (1.0 - probability)
        some = np.sort(random.permutation(count)[:chosen_rows])
        columns = np.sort(random.permutation(width)[:tried])
        asked = _questions(codes[columns][:, some], gradient[some], weight[some])
        questions = [(int(columns[position]), bin_) for position, bin_ in asked]
        at = np.zeros(count, np.int64)
        for column, bin_ in questions:
            at = (at << 1) | (codes[column] > bin_)
        pull = np.bincount(at, gradient, 1 << DEPTH)
        leaf = -RATE * pull / (np.bincount(at, weight, 1 << DEPTH) + LEAF_WEIGHT)
        score += leaf[at]
        feature.append([column for column, _ in questions])
        threshold.append(
            [limits[column][bin_] if bin_ < len(limits[column]) else NEVER for column, bin_ in questions]
        )
        leaves.append(leaf)
    return Trees(base, np.array(feature, np.int64), np.array(threshold, np.float32), np.array(leaves))


def _binned(rows: Singles, random: np.random.Generator) -> tuple[NDArray[np.uint8], list[Singles]]:
    """Each feature's values as the number of limits below, and those limits."""
    count, width = rows.shape
    sample = rows[random.permutation(count)[:ROWS_FOR_BINS]]
    shares = np.arange(1, BINS) / BINS
    codes = np.empty((width, count), np.uint8)
    limits: list[Singles] = []
    for column in range(width):
        own = np.unique(np.quantile(sample[:, column], shares, method="lower")).astype(np.float32)
        codes[column] = np.searchsorted(own, rows[:, column], side="left")
        limits.append(own)
    return codes, limits


def _questions(codes: NDArray[np.uint8], gradient: Floats, weight: Floats) -> list[tuple[int, int]]:
    """The question of each level, as (feature, bin): a row goes right when its bin is higher."""
    wide = codes.astype(np.int64)
    at = np.zeros(codes.shape[1], np.int64)
    asked: list[tuple[int, int]] = []
    for level in range(DEPTH):
        shape = (1 << level, BINS)
        offset = at * BINS
        top, question = -1.0, (0, 0)
        for position, column in enumerate(wide):
            place = offset + column
            pull = np.bincount(place, gradient, shape[0] * BINS).reshape(shape).cumsum(axis=1)
            held = np.bincount(place, weight, shape[0] * BINS).reshape(shape).cumsum(axis=1)
            other = (pull[:, -1:] - pull) ** 2 / (held[:, -1:] - held + LEAF_WEIGHT)
            gain = (pull * pull / (held + LEAF_WEIGHT) + other).sum(axis=0)[:-1]
            bin_ = int(gain.argmax())
            if gain[bin_] > top:
                top, question = float(gain[bin_]), (position, bin_)
        asked.append(question)
        at = (at << 1) | (wide[question[0]] > question[1])
    return asked
