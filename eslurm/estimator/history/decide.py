"""From a distribution to one number and an interval.

A distribution is given on a grid: seconds as ascending logarithms, and the probability of ending by then; between grid
points it is straight in the logarithm. Invariant: a row's result depends on nothing but that row.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from eslurm.estimator.history.table import Flags, Floats, Indices

BELOW: Final = 1.0
"""The distribution begins so far below the grid's first point (logarithm), ..."""
ABOVE: Final = 0.5
"""... and ends so far above its last."""


def padded(grid: Floats, by: Floats) -> tuple[Floats, Floats]:
    """Grid and probabilities with their two ends."""
    count = len(grid)
    edges = np.concatenate((grid[:, :1] - BELOW, grid, grid[:, -1:] + ABOVE), axis=1)
    return edges, np.concatenate((np.zeros((count, 1)), by, np.ones((count, 1))), axis=1)


def expected_accuracy(grid: Floats, by: Floats) -> Floats:
    """The mean of min(p, t) / max(p, t) for an estimate p at each grid point."""
    edges, probability = padded(grid, by)
    mass = np.diff(probability, axis=1)
    width = np.maximum(np.diff(edges, axis=1), 1e-9)
    # The means of t and of 1 / t within each piece, t being log-uniform there.
    share = -np.expm1(-width) / width
    mean = np.exp(edges[:, 1:]) * share
    inverse = np.exp(-edges[:, :-1]) * share
    below = np.cumsum(mass * mean, axis=1)[:, :-1]
    above = np.cumsum((mass * inverse)[:, ::-1], axis=1)[:, ::-1][:, 1:]
    point = np.exp(grid)
    result: Floats = below / point + above * point
    return result


def best(accuracy: Floats, by: Floats, penalty: float) -> Indices:
    """The grid point with the highest accuracy minus `penalty` times the probability of running longer."""
    result: Indices = (accuracy - penalty * (1.0 - by)).argmax(axis=1)
    return result


def after(by: Floats, running: Flags) -> Floats:
    """The same distribution, knowing for some rows that their first grid point has passed."""
    passed = np.where(running, by[:, 0], 0.0)[:, None]
    result: Floats = np.clip((by - passed) / np.maximum(1.0 - passed, 1e-9), 0.0, 1.0)
    return result


def probability_at(grid: Floats, by: Floats, point: Floats) -> Floats:
    """The probability of ending by a point (logarithm), one a row."""
    edges, probability = padded(grid, by)
    right = np.clip((edges < point[:, None]).sum(axis=1), 1, edges.shape[1] - 1)
    row = np.arange(len(grid))
    low, high = edges[row, right - 1], edges[row, right]
    share = np.clip((point - low) / np.maximum(high - low, 1e-9), 0.0, 1.0)
    result: Floats = probability[row, right - 1] + share * (
        probability[row, right] - probability[row, right - 1]
    )
    return result


def quantile(grid: Floats, by: Floats, share: float) -> Floats:
    """The point (logarithm) by which that share has ended, one a row."""
    edges, probability = padded(grid, by)
    right = np.clip((probability < share).sum(axis=1), 1, edges.shape[1] - 1)
    row = np.arange(len(grid))
    low, high = probability[row, right - 1], probability[row, right]
    part = np.clip((share - low) / np.maximum(high - low, 1e-9), 0.0, 1.0)
    result: Floats = edges[row, right - 1] + part * (edges[row, right] - edges[row, right - 1])
    return result
