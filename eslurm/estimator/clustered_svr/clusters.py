"""Clusters of jobs by scikit-learn's K-means++ (E-44), and the elbow: how many clusters are worth having.

Invariant: the same rows give the same centres; a row's cluster does not depend on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

STARTS: Final = 2
"""K-means keeps the best of so many starts."""
SEED: Final = 1
ELBOW_MOST: Final = 30


class Clusters(NamedTuple):
    """`centres` (clusters, features), and the sum of squared distances of rows to the nearest."""

    centres: Floats
    inertia: float


class Elbow(NamedTuple):
    """The inertia of each number of clusters that was tried, and the number chosen."""

    ks: list[int]
    inertias: list[float]
    k: int


def k_means(rows: Floats, k: int) -> Clusters:
    """Find at most `k` clusters in rows (jobs, features), each the nearest of at least one row."""
    distinct = len(np.unique(rows, axis=0))
    found = KMeans(min(k, distinct), n_init=STARTS, random_state=SEED).fit(rows)
    centres = np.asarray(found.cluster_centers_, dtype=np.float64)
    return Clusters(centres[np.unique(nearest(rows, centres))], float(found.inertia_))


def nearest(rows: Floats, centres: Floats) -> Integers:
    """The cluster of each row; the first of several equally near."""
    found: Integers = cdist(rows, centres, "sqeuclidean").argmin(axis=1).astype(np.int64)
    return found


def elbow(rows: Floats, most: int = ELBOW_MOST) -> Elbow:
    """Try 1 to `most` clusters of rows, at least one row; choose where the curve of inertia bends most."""
    ks = list(range(1, max(1, min(most, len(rows))) + 1))
    inertias = [k_means(rows, k).inertia for k in ks]
    return Elbow(ks, inertias, ks[bend(inertias)])


def bend(curve: Sequence[float]) -> int:
    """The place of a falling curve that lies furthest below the straight line between its ends; 0 of a flat one."""
    fall = curve[0] - curve[-1]
    if len(curve) < 3 or fall <= 0:
        return 0
    last = len(curve) - 1
    below = [1 - place / last - (value - curve[-1]) / fall for place, value in enumerate(curve)]
    return max(range(len(curve)), key=below.__getitem__)
