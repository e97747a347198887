"""Calibration: the penalty that gives the wanted share of underestimates, and the width of intervals.

Each underestimate makes the penalty for the next ones a little higher, each other answer a little lower: as the penalty
has bounds, the share cannot stay away from its target, however jobs change. A job that runs longer than its estimate is an
underestimate at once, and undecided answers count with the model's probability: short jobs end first, and would make long
ones look rare. Invariant: a `settle` uses only what has been reported by then.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from eslurm.estimator.history import decide
from eslurm.estimator.history.ensemble import Distribution
from eslurm.estimator.history.table import Columns, Flags, Floats, Indices

FIRST_PENALTY: Final = 0.07
"""Divided by the share of underestimates that is wanted."""
LEAST_PENALTY: Final = 0.02
MOST_PENALTY: Final = 20.0
GAIN: Final = 0.03
"""An underestimate raises the logarithm of the penalty by so much."""
MARGIN: Final = 0.0025
"""The share aimed at stays so far below the one wanted."""
WINDOW: Final = 1_000
"""Number of last answers that set the width of intervals."""
LEAST: Final = 150
LOW_SHARES: Final = (0.02, 0.2)
HIGH_SHARES: Final = (0.8, 0.995)
LOW_HIGH: Final = (0.1, 0.9)
SAME: Final = 1e-6
"""Logarithms of whole seconds that differ by less are equal."""


class Asked(NamedTuple):
    """Answers to be checked, a row each."""

    row: Indices
    point: Floats
    """The estimates given: logarithms of seconds."""
    grid: Floats
    by: Floats


class Calibration:
    """Calibration of one kind of answers. `penalty`, `low`, `high` are for the next ones."""

    def __init__(self, target: float) -> None:
        self.penalty = self._first = FIRST_PENALTY / target
        self.low, self.high = LOW_HIGH
        self._aim = target - MARGIN
        self._asked: Asked | None = None
        self._debt = 0.0
        """Underestimates beyond those aimed at, among the answers that are followed up no more."""

    def begin(self, penalty: float) -> None:
        """Start from a penalty that has proved right elsewhere, unless answers have been given already."""
        if self._asked is None:
            self.penalty = self._first = float(np.clip(penalty, LEAST_PENALTY, MOST_PENALTY))

    def add(self, rows: Indices, distribution: Distribution, place: Indices) -> None:
        """Add given answers, in the order of their questions: `place` is the estimate's index on the grid."""
        if not len(rows):
            return
        grid, by, _ = distribution
        point = grid[np.arange(len(rows)), place]
        new = Asked(rows, point, grid.astype(np.float32), by.astype(np.float32))
        old = self._asked
        self._asked = (
            new if old is None else Asked._make(np.concatenate(pair) for pair in zip(old, new, strict=True))
        )

    def settle(self, columns: Columns, at_s: int) -> None:
        """Update from the outcomes known by now."""
        asked = self._asked
        if asked is None:
            return
        ran, over, counts = _outcome(columns, asked.row, at_s)
        excess = np.where(counts, _under(asked, ran, over) - self._aim, 0.0)
        debt = self._debt + float(excess.sum())
        self.penalty = float(np.clip(self._first * np.exp(GAIN * debt), LEAST_PENALTY, MOST_PENALTY))
        self._widen(asked, ran, over & counts)
        # The oldest are no longer followed, unless they are not decided yet.
        stays = ~over & (asked.point >= ran - SAME)
        stays[-WINDOW:] = True
        self._debt += float(excess[~stays].sum())
        self._asked = Asked._make(part[stays] for part in asked)

    def renumber(self, renumbered: Indices) -> None:
        """After rows have been renumbered."""
        if self._asked is not None:
            row = renumbered[self._asked.row]
            self._asked = Asked._make(part[row >= 0] for part in self._asked._replace(row=row))

    def _widen(self, asked: Asked, ran: Floats, over: Flags) -> None:
        if over.sum() < LEAST:
            return
        low, high = np.quantile(_at(asked, ran)[over][-WINDOW:], LOW_HIGH)
        self.low = float(np.clip(low, *LOW_SHARES))
        self.high = float(np.clip(high, *HIGH_SHARES))


def _outcome(columns: Columns, row: Indices, at_s: int) -> tuple[Floats, Flags, Flags]:
    """Each job's run time so far (logarithm), whether it is final, and whether it counts (it was not cancelled)."""
    over = columns.ended[row] >= 0
    runs = columns.started[row] >= 0
    elapsed = np.where(runs, np.log(np.maximum(at_s - columns.started[row], 0.5)), -50.0)
    ran = np.where(over, columns.run[row].astype(np.float64), elapsed)
    return ran, over, ~over | (columns.run[row] >= 0)


def _under(asked: Asked, ran: Floats, over: Flags) -> Floats:
    """1 where an estimate was too low, 0 where not, else the probability that it is."""
    longer = (1.0 - _at(asked, asked.point)) / np.maximum(1.0 - _at(asked, ran), 1e-3)
    under = asked.point < ran - SAME
    result: Floats = np.where(under | over, under, np.minimum(longer, 1.0))
    return result


def _at(asked: Asked, point: Floats) -> Floats:
    return decide.probability_at(asked.grid.astype(np.float64), asked.by.astype(np.float64), point)
