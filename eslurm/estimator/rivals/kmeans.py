"""K-means++ (E-44), its centres as arrays, and the elbow: how many clusters are worth having.

Invariant: the same rows and seed give the same centres, bit by bit; a row's cluster does not depend on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from eslurm.estimator.rivals.arrays import Floats, Integers

ROUNDS: Final = 50
STARTS: Final = 2
"""The best of so many starts is taken."""
SEED: Final = 1
ELBOW_MOST: Final = 30
_BLOCK_ROWS: Final = 4_096


class Clusters(NamedTuple):
    """Centres, a row each, and the sum of squared distances to the nearest."""

    centres: Floats
    inertia: float


class Elbow(NamedTuple):
    """The inertia of each number of clusters that was tried, and the number chosen."""

    ks: list[int]
    inertias: list[float]
    k: int


def k_means(rows: Floats, k: int, *, starts: int = STARTS, seed: int = SEED) -> Clusters:
    """At most `k` clusters of at least one row; fewer when the rows have fewer distinct places."""
    best: Clusters | None = None
    random = np.random.default_rng(seed)
    for _ in range(starts):
        found = _settled(rows, _spread_out(rows, k, random))
        if best is None or found.inertia < best.inertia:
            best = found
    assert best is not None, "at least one start"
    return best


def nearest(rows: Floats, centres: Floats) -> Integers:
    """The cluster of each row; the first of several equally near."""
    parts = [
        _squared(rows[at : at + _BLOCK_ROWS], centres).argmin(axis=1)
        for at in range(0, len(rows), _BLOCK_ROWS)
    ]
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, dtype=np.int64)


def elbow(rows: Floats, most: int = ELBOW_MOST, *, starts: int = STARTS, seed: int = SEED) -> Elbow:
    """Tries 1 to `most` clusters of rows, at least one row; chooses where the curve of inertia bends most."""
    ks = list(range(1, max(1, min(most, len(rows))) + 1))
    inertias = [k_means(rows, k, starts=starts, seed=seed).inertia for k in ks]
    return Elbow(ks, inertias, ks[bend(inertias)])


def bend(curve: Sequence[float]) -> int:
    """The place of a falling curve that lies furthest below the straight line between its ends; 0 of a flat one."""
    fall = curve[0] - curve[-1]
    if len(curve) < 3 or fall <= 0:
        return 0
    last = len(curve) - 1
    below = [1 - place / last - (value - curve[-1]) / fall for place, value in enumerate(curve)]
    return max(range(len(curve)), key=below.__getitem__)


def _spread_out(rows: Floats, k: int, random: np.random.Generator) -> Floats:
    """The ++ of K-means++: each centre is drawn with a chance that grows with the square of its distance to the others."""
    chosen = [int(random.integers(len(rows)))]
    distances = _squared(rows, rows[chosen])[:, 0]
    while len(chosen) < k:
        reach = np.cumsum(distances)
        if reach[-1] <= 0:
            break
        chosen.append(
            min(int(np.searchsorted(reach, random.random() * reach[-1], side="right")), len(rows) - 1)
        )
        distances = np.minimum(distances, _squared(rows, rows[chosen[-1:]])[:, 0])
    return rows[chosen]


def _settled(rows: Floats, centres: Floats) -> Clusters:
    """Lloyd's rounds until nothing moves. A cluster that has lost all its rows is left out."""
    before = np.full(len(rows), -1, dtype=np.int64)
    for _ in range(ROUNDS):
        own = nearest(rows, centres)
        if np.array_equal(own, before):
            break
        before = own
        counts = np.bincount(own, minlength=len(centres))
        sums = np.stack(
            [np.bincount(own, column, minlength=len(centres)) for column in rows.T],
            axis=1,
        )
        kept = counts > 0
        centres = sums[kept] / counts[kept, None]
    return Clusters(centres, float(_squared(rows, centres).min(axis=1).sum()))


def _squared(rows: Floats, centres: Floats) -> Floats:
    """The squared distance of each row to each centre, summed column by column."""
    total: Floats = np.zeros((len(rows), len(centres)))
    for column in range(rows.shape[1]):
        step = rows[:, column, None] - centres[None, :, column]
        total += step * step
    return total
