"""Figures as JSON lines, each written as soon as it is known.

Invariant: a figure is printed once, with the number of observations behind it and the machine's load at that moment.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """One measured value. `n` counts what it was measured over; `load1` is the load of the last minute."""

    name: str
    value: float
    unit: str
    n: int
    load1: float


class Figures:
    """Prints figures and keeps them."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self.all: list[Figure] = []

    def add(self, name: str, value: float, unit: str, n: int) -> None:
        """Print one figure."""
        figure = Figure(name, rounded(value), unit, n, round(os.getloadavg()[0], 2))
        self.all.append(figure)
        self._out.write(msgspec.json.encode(figure).decode() + "\n")
        self._out.flush()

    def find(self, name: str) -> float | None:
        """The value of a figure that was printed before."""
        return next((figure.value for figure in self.all if figure.name == name), None)


def rounded(value: float) -> float:
    """Four significant digits: more would pretend."""
    return float(f"{value:.4g}") if abs(value) < 10_000 else float(round(value))


def median(values: Iterable[float]) -> float:
    """The middle of the observations."""
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the observations lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
