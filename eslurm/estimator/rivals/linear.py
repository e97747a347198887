"""Linear regressions on standardised rows: Bayesian ridge, and Tobit for runtimes that a limit cut off.

Both are a coefficient a column, an intercept and the spread of what remains. Invariant: a row's prediction is summed column
by column, the same bits whatever rows are beside it. No library of matrices does the sums: on so few columns its threads
would cost more than they save.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from eslurm.estimator.rivals.arrays import Arrays, Floats, floats

ROUNDS: Final = 50
_TINY: Final = 1e-9
_VAGUE: Final = 1e-6
"""The parameters of both Gamma priors of the Bayesian ridge: next to nothing."""
_DRAWN: Final = 1e-5
"""What keeps the Tobit coefficient of a column that says nothing near 0."""
_SHARPEST: Final = 1e-6
"""Its square root is the least noise, of targets with a spread of 1, that a perfect fit is believed to have."""
_HALF_LOG_2PI: Final = 0.5 * math.log(2 * math.pi)


class Linear:
    """target = intercept + coefficients . row, give or take `spread`."""

    def __init__(self, coefficients: Floats, intercept: float, spread: float) -> None:
        self.coefficients = coefficients
        self.intercept = intercept
        self.spread = spread

    def predict(self, rows: Floats) -> Floats:
        """A target a row."""
        total: Floats = np.full(len(rows), self.intercept)
        for column, coefficient in enumerate(self.coefficients.tolist()):
            total = total + rows[:, column] * coefficient
        return total

    def dump(self) -> dict[str, NDArray[Any]]:
        return {"coefficients": self.coefficients, "scalars": np.array([self.intercept, self.spread])}

    @staticmethod
    def load(arrays: Arrays, width: int) -> Linear:
        """Raises `ValueError`."""
        intercept, spread = floats(arrays, "scalars", 2).tolist()
        if spread < 0:
            raise ValueError("the model is damaged: a spread is below 0")
        return Linear(floats(arrays, "coefficients", width), intercept, spread)


def bayesian_ridge(rows: Floats, targets: Floats) -> Linear:
    """Ridge regression whose noise and drawing to 0 are those of the greatest evidence (MacKay's updates)."""
    count, width = rows.shape
    middle, row_middle = float(targets.mean()), rows.mean(axis=0)
    centred, wanted = rows - row_middle, targets - middle
    variance = float(wanted.var())
    if count < 2 or variance < _TINY:
        return Linear(np.zeros(width), middle, 0.0)
    gram, moments = _products(centred, wanted)
    eigenvalues, vectors = np.linalg.eigh(gram)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    projected = (vectors * moments[:, None]).sum(axis=0)
    noise, drawn = 1.0 / variance, 1.0
    coefficients = np.zeros(width)
    for _ in range(ROUNDS):
        before = coefficients
        coefficients = (vectors * (projected * noise / (drawn + noise * eigenvalues))).sum(axis=1)
        rest = wanted - Linear(coefficients, 0.0, 0.0).predict(centred)
        known = float((noise * eigenvalues / (drawn + noise * eigenvalues)).sum())
        drawn = (known + 2 * _VAGUE) / (float((coefficients * coefficients).sum()) + 2 * _VAGUE)
        noise = (count - known + 2 * _VAGUE) / (float((rest * rest).sum()) + 2 * _VAGUE)
        if float(np.abs(coefficients - before).max()) < _TINY:
            break
    intercept = middle - float((coefficients * row_middle).sum())
    return Linear(coefficients, intercept, float(1 / np.sqrt(noise)))


def tobit(rows: Floats, targets: Floats, censored: NDArray[np.bool_]) -> Linear:
    """The most likely line when the targets of `censored` rows are only known to be at least what is given.

    An exact row counts with the density at its target, a censored one with the probability of lying above it. Solved for
    coefficients / noise and 1 / noise (Olsen 1978): so the likelihood has one summit, and Newton's steps lead there.
    Without a single exact row nothing is known of what lies above: then all are taken as exact.
    """
    count, width = rows.shape
    middle, spread = float(targets.mean()), float(targets.std())
    if count < 2 or spread < _TINY:
        return Linear(np.zeros(width), middle, 0.0)
    if bool(censored.all()):
        censored = np.zeros(count, dtype=np.bool_)
    # u = (target - line) / noise is `lean . guess`; guess is coefficients, intercept and 1, each over the noise.
    lean = np.column_stack([-rows, np.full(count, -1.0), (targets - middle) / spread])
    drawn = np.array([_DRAWN] * width + [0.0, _SHARPEST]) * count
    guess = np.zeros(width + 2)
    guess[-1] = 1.0
    value = _likelihood(lean, censored, drawn, guess)
    for _ in range(ROUNDS):
        step = _newton(lean, censored, drawn, guess)
        share = 1.0
        while share > _TINY:
            tried = guess + share * step
            found = _likelihood(lean, censored, drawn, tried) if tried[-1] > 0 else -np.inf
            if found >= value:
                break
            share /= 2
        else:
            break
        gained, value, guess = found - value, found, tried
        if gained < _TINY * count:
            break
    noise = spread / float(guess[-1])
    return Linear(guess[:width] * noise, float(guess[width]) * noise + middle, noise)


def _likelihood(lean: Floats, censored: NDArray[np.bool_], drawn: Floats, guess: Floats) -> float:
    """The logarithm of the likelihood, less what draws the guess to 0."""
    u = (lean * guess).sum(axis=1)
    each = np.where(censored, log_ndtr(-u), math.log(guess[-1]) - 0.5 * u * u - _HALF_LOG_2PI)
    return float(each.sum()) - 0.5 * float((drawn * guess * guess).sum())


def _newton(lean: Floats, censored: NDArray[np.bool_], drawn: Floats, guess: Floats) -> Floats:
    """The step to the summit of the parabola that fits here."""
    u = (lean * guess).sum(axis=1)
    hazard = np.exp(-0.5 * u * u - _HALF_LOG_2PI - log_ndtr(-u))
    pull = np.where(censored, hazard, u)
    weight = np.where(censored, np.maximum(hazard * (hazard - u), 0.0), 1.0)
    exact = float(len(u) - int(censored.sum()))
    gradient = -(lean * pull[:, None]).sum(axis=0) - drawn * guess
    gradient[-1] += exact / guess[-1]
    curvature, _ = _products(lean * np.sqrt(weight)[:, None], u)
    curvature[np.diag_indices(len(guess))] += drawn + _TINY
    curvature[-1, -1] += exact / (guess[-1] * guess[-1])
    step: Floats = np.linalg.solve(curvature, gradient)
    return step


def _products(rows: Floats, targets: Floats) -> tuple[Floats, Floats]:
    """X'X and X'y, summed in a fixed order."""
    width = rows.shape[1]
    gram = np.empty((width, width))
    for column in range(width):
        gram[column] = (rows * rows[:, column, None]).sum(axis=0)
    moments: Floats = (rows * targets[:, None]).sum(axis=0)
    return gram, moments
