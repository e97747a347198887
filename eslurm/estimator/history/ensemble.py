"""The ensemble: networks that point at past runs, trees that judge candidates, and the mean of their log-odds.

Invariant: a distribution depends on its question alone, to the last bit, and never falls along the grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eslurm.estimator.history import candidate_features, network, trees
from eslurm.estimator.history.neighbour_features import Neighbours, neighbours
from eslurm.estimator.history.network import Network
from eslurm.estimator.history.question import Batch, Question, batch
from eslurm.estimator.history.table import Columns, Flags, Floats, Singles
from eslurm.estimator.history.trees import Trees

CHUNK: Final = 128
"""Questions at a time: bounds the memory of a large batch, and fits a processor's cache."""
NETWORK_SHARE: Final = 0.5
CERTAIN: Final = 1e-5
"""No probability comes nearer to 0 or 1."""
STEP: Final = 0.02
GROWTH: Final = 1.35
"""A running job's grid beyond what has passed: the first step, and how each next one is longer (logarithms)."""
POINTS: Final = 8
"""Candidates of each job that the trees learn from."""
SEED: Final = 7


class Distribution(NamedTuple):
    """(jobs, grid): logarithms of whole seconds, and the probability of ending by then.

    The first point of a running job is what has passed already, and it is known to be exceeded.
    """

    grid: Floats
    by: Floats
    running: Flags


class Ensemble(NamedTuple):
    """Both kinds of models."""

    networks: list[Network]
    trees: Trees

    def distribution(self, seen: Batch) -> Distribution:
        """The distribution of each job's run time, before the time that has passed is taken into account."""
        known = candidate_features.relatives(seen)
        grid = _beyond(candidate_features.thinned(candidate_features.candidates(seen, known)), seen)
        own = neighbours(seen)
        weights = self.networks[0].weights(own)
        for other in self.networks[1:]:
            weights = weights + other.weights(own)
        by = np.clip(network.cumulated(own.value, weights, grid), CERTAIN, 1.0 - CERTAIN)
        judged = self.trees.log_odds(
            candidate_features.paired(seen, known, grid), candidate_features.alone(seen, known)
        )
        log_odds = NETWORK_SHARE * np.log(by / (1.0 - by)) + (1.0 - NETWORK_SHARE) * judged
        together = 1.0 / (1.0 + np.exp(-np.maximum.accumulate(log_odds, axis=1)))
        return Distribution(grid, together, seen.running)

    def dump(self) -> dict[str, NDArray[Any]]:
        """Arrays from which `load` makes the same."""
        return {**network.dump(self.networks), **self.trees.dump()}

    @staticmethod
    def load(arrays: Mapping[str, NDArray[Any]]) -> Ensemble:
        """Raises `ValueError` when they cannot be those of an ensemble."""
        return Ensemble(network.load(arrays), Trees.load(arrays, candidate_features.FEATURES))


def rows(seen: Batch, known: candidate_features.Relatives, grid: Floats) -> Singles:
    """Rows (jobs x grid points, features) that the trees learn from."""
    count, points = grid.shape
    both = np.empty((count, points, candidate_features.FEATURES), np.float32)
    both[:, :, : candidate_features.PAIRED] = candidate_features.paired(seen, known, grid).transpose(1, 2, 0)
    both[:, :, candidate_features.PAIRED :] = candidate_features.alone(seen, known).T[:, None, :]
    return both.reshape(count * points, candidate_features.FEATURES)


def learn(columns: Columns, questions: Sequence[Question], former: Ensemble | None) -> Ensemble:
    """From jobs that have ended, as they looked before; the networks go on from the former ones."""
    chunks = [batch(columns, questions[at : at + CHUNK]) for at in range(0, len(questions), CHUNK)]
    target = columns.run[[question.row for question in questions]]
    return Ensemble(_networks(chunks, target, former), _trees(chunks, target))


def _networks(chunks: Sequence[Batch], target: Singles, former: Ensemble | None) -> list[Network]:
    parts = zip(*(neighbours(chunk) for chunk in chunks), strict=True)
    seen = Neighbours(*(np.concatenate(part) for part in parts))
    most, jobs_in_all = network.FIRST_EPOCHS if former is None else network.EPOCHS
    epochs = max(1, min(most, jobs_in_all // len(target)))
    before = (
        former.networks if former else [Network.fresh(SEED + number) for number in range(network.NETWORKS)]
    )
    return [one.learn(seen, target, epochs, SEED + number) for number, one in enumerate(before)]


def _trees(chunks: Sequence[Batch], target: Singles) -> Trees:
    random = np.random.default_rng(SEED)
    features, points = [], []
    edges = np.linspace(0, candidate_features.CANDIDATES, POINTS + 1)
    for seen in chunks:
        known = candidate_features.relatives(seen)
        every = candidate_features.candidates(seen, known)
        place = (edges[:-1] + random.random((len(every), POINTS)) * np.diff(edges)).astype(np.int64)
        grid = np.take_along_axis(every, place, axis=1)
        features.append(rows(seen, known, grid))
        points.append(grid)
    ended = target[:, None] <= np.concatenate(points) + 1e-6
    return trees.learn(np.concatenate(features), ended.reshape(-1))


def _beyond(grid: Floats, seen: Batch) -> Floats:
    """Running jobs: their first point is what has passed, and all others lie beyond it."""
    running = seen.running[:, None]
    passed = np.log(np.maximum(seen.elapsed, 0.5))[:, None]
    ladder = passed + STEP * (GROWTH ** np.arange(grid.shape[1]) - 1.0) / (GROWTH - 1.0)
    ladder = np.log(np.floor(np.exp(np.minimum(ladder, 21.0))) + 1.0)
    ahead = np.sort(np.where(grid > passed, grid, ladder), axis=1)
    ahead[:, 0] = passed[:, 0]
    return np.where(running, ahead, grid)
