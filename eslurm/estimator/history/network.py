"""A small network that points at neighbours: which past run will this one be like, and how closely?

Two hidden layers see each neighbour with its job; a softmax over all neighbours and four widths makes a mixture of Laplace
kernels on the logarithm of time, learnt by maximum likelihood. Invariant: each job is computed by itself, so an answer
depends on that job alone, to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from eslurm.estimator.history.neighbour_features import ALWAYS, CONTEXT, FEATURES, Neighbours
from eslurm.estimator.history.table import Floats, Singles

WIDTHS: Final = np.array([0.004, 0.03, 0.15, 0.7], np.float32)
HIDDEN: Final = 32
NETWORKS: Final = 2
"""Their mixtures are averaged."""
FIRST_EPOCHS: Final = (15, 60_000)
"""So often it goes through the jobs at most, and through so many in all: what a lesson may cost."""
EPOCHS: Final = (6, 40_000)
"""The same when it goes on from a former network."""
BATCH: Final = 256
RATE: Final = 3e-3
DECAY: Final = 0.1
DROPPED: Final = 0.3
"""Of the neighbours, as many are hidden in each step of learning."""
TOP: Final = 40
"""The heaviest (neighbour, width) pairs make the answer."""
FLOOR: Final = np.float32(1e-6)
AWAY: Final = np.float32(-30.0)
_SHAPES: Final = (
    (FEATURES, HIDDEN),
    (CONTEXT, HIDDEN),
    (HIDDEN,),
    (HIDDEN, HIDDEN),
    (HIDDEN,),
    (HIDDEN, len(WIDTHS)),
    (len(WIDTHS),),
)
_WEIGHTS: Final = (0, 1, 3, 5)


class Network:
    """One of them: `parameters` in the order of `_SHAPES`."""

    def __init__(self, parameters: list[Singles]) -> None:
        self.parameters = parameters

    @staticmethod
    def fresh(seed: int) -> Network:
        """Random weights."""
        random = np.random.default_rng(seed)
        last = len(_SHAPES) - 2
        parameters = []
        for position, shape in enumerate(_SHAPES):
            scale = (0.3 if position == last else 1.0) / np.sqrt(shape[0])
            drawn = random.normal(0.0, scale, shape) if len(shape) == 2 else np.zeros(shape)
            parameters.append(drawn.astype(np.float32))
        return Network(parameters)

    def weights(self, seen: Neighbours) -> Singles:
        """(jobs, neighbours, widths): how much each counts; they sum to 1."""
        return _softmax(_logits(self.parameters, seen)[0])

    def learn(self, seen: Neighbours, target: Singles, epochs: int, seed: int) -> Network:
        """Another one that has gone through these jobs."""
        random = np.random.default_rng(seed)
        learner = _Learner([parameter.copy() for parameter in self.parameters])
        for epoch in range(epochs):
            order = random.permutation(len(target))
            rate = RATE * (1.0 - 0.9 * epoch / epochs)
            for begin in range(0, len(order), BATCH):
                some = order[begin : begin + BATCH]
                there = seen.there[some] & (random.random(seen.there[some].shape) > DROPPED)
                there[:, -ALWAYS:] = True
                part = Neighbours(seen.value[some], seen.features[some], seen.context[some], there)
                learner.step(part, target[some], rate)
        return Network(learner.parameters)


class _Learner:
    """Adam, with weights that decay."""

    def __init__(self, parameters: list[Singles]) -> None:
        self.parameters = parameters
        self._mean = [np.zeros_like(parameter) for parameter in parameters]
        self._square = [np.zeros_like(parameter) for parameter in parameters]
        self._steps = 0

    def step(self, seen: Neighbours, target: Singles, rate: float) -> None:
        self._steps += 1
        for position, slope in enumerate(_slopes(self.parameters, seen, target)):
            mean, square = self._mean[position], self._square[position]
            mean += 0.1 * (slope - mean)
            square += 0.01 * (slope * slope - square)
            change = mean / (1.0 - 0.9**self._steps) / (np.sqrt(square / (1.0 - 0.99**self._steps)) + 1e-8)
            parameter = self.parameters[position]
            parameter -= np.float32(rate) * change
            if position in _WEIGHTS:
                parameter *= np.float32(1.0 - rate * DECAY)


def cumulated(value: Singles, weights: Singles, grid: Floats) -> Floats:
    """The probability that a mixture gives to each grid point and all below."""
    jobs = len(value)
    flat = weights.reshape(jobs, -1)
    top = np.argpartition(-flat, TOP, axis=1)[:, :TOP]
    share = np.take_along_axis(flat, top, axis=1)
    middle = np.take_along_axis(value, top // len(WIDTHS), axis=1)
    width = WIDTHS[top % len(WIDTHS)]
    # A grid point counts itself: run times are whole seconds, and many are equal.
    away = ((grid + 1e-6)[:, :, None].astype(np.float32) - middle[:, None, :]) / width[:, None, :]
    tail = 0.5 * np.exp(-np.abs(away))
    reached = np.where(away < 0, tail, 1.0 - tail)
    result: Floats = (reached * share[:, None, :]).sum(axis=2, dtype=np.float64) / share.sum(
        axis=1, dtype=np.float64
    )[:, None]
    return result


def dump(networks: list[Network]) -> dict[str, NDArray[Any]]:
    """Arrays from which `load` makes the same."""
    return {
        f"net{number}_{position}": parameter
        for number, network in enumerate(networks)
        for position, parameter in enumerate(network.parameters)
    }


def load(arrays: Mapping[str, NDArray[Any]]) -> list[Network]:
    """Raises `ValueError` where arrays are missing or cannot be."""
    networks = []
    for number in range(NETWORKS):
        parameters = []
        for position, shape in enumerate(_SHAPES):
            found = arrays.get(f"net{number}_{position}")
            if (
                found is None
                or found.shape != shape
                or found.dtype != np.float32
                or not np.isfinite(found).all()
            ):
                raise ValueError(
                    f"the model is damaged: array net{number}_{position} must hold {shape} numbers"
                )
            parameters.append(found)
        networks.append(Network(parameters))
    return networks


def _logits(parameters: list[Singles], seen: Neighbours) -> tuple[Singles, Singles, Singles]:
    """Values before the softmax, and the two hidden layers. Products are made job by job, whatever the batch."""
    to_first, from_job, first_bias, to_second, second_bias, to_last, last_bias = parameters
    about_job = np.matmul(seen.context[:, None, :], from_job) + first_bias
    first = np.maximum(np.matmul(seen.features, to_first) + about_job, np.float32(0.0))
    second = np.maximum(np.matmul(first, to_second) + second_bias, np.float32(0.0))
    logits = np.matmul(second, to_last) + last_bias
    return np.where(seen.there[:, :, None], logits, AWAY), first, second


def _softmax(logits: Singles) -> Singles:
    jobs, neighbours, widths = logits.shape
    flat = logits.reshape(jobs, neighbours * widths)
    powers = np.exp(flat - flat.max(axis=1, keepdims=True))
    result: Singles = (powers / powers.sum(axis=1, keepdims=True)).reshape(jobs, neighbours, widths)
    return result


def _slopes(parameters: list[Singles], seen: Neighbours, target: Singles) -> list[Singles]:
    """Of the mean negative log-likelihood, by parameter."""
    logits, first, second = _logits(parameters, seen)
    share = _softmax(logits)
    away = np.abs(seen.value - target[:, None])[:, :, None]
    blame = share * (np.exp(-away / WIDTHS) / (2.0 * WIDTHS) + FLOOR)
    blame /= blame.sum(axis=(1, 2), keepdims=True)
    slope = ((share - blame) * seen.there[:, :, None] / np.float32(len(target))).reshape(-1, len(WIDTHS))
    flat_first, flat_second = first.reshape(-1, HIDDEN), second.reshape(-1, HIDDEN)
    at_second = (slope @ parameters[5].T) * (flat_second > 0)
    at_first = (at_second @ parameters[3].T) * (flat_first > 0)
    by_job = at_first.reshape(first.shape).sum(axis=1)
    return [
        seen.features.reshape(-1, FEATURES).T @ at_first,
        seen.context.T @ by_job,
        by_job.sum(axis=0),
        flat_first.T @ at_second,
        at_second.sum(axis=0),
        flat_second.T @ slope,
        slope.sum(axis=0),
    ]
