"""The base of every technique: it owns what remains of a loop, and no technique takes more or less than that.

Invariant: the sizes that `next_chunk` returns are at least 1 and sum to the loop's iterations; then it returns 0. The
same calls in the same order give the same sizes: no technique reads a clock or draws a number.

Names in the formulas: N iterations in all, R of them not yet handed out, P workers; mu and sigma the mean and the
standard deviation of one iteration's seconds, h the seconds that the handing out of one chunk costs.
"""

from __future__ import annotations

import math

__all__ = ["ITERATIONS_MAX", "WORKERS_MAX", "Technique", "TechniqueError"]

ITERATIONS_MAX = 1 << 53
"""Up to here a float counts every iteration."""
WORKERS_MAX = 1 << 20


class TechniqueError(ValueError):
    """A technique that does not exist, or a value that its formula cannot use."""


class Technique:
    """Chunk sizes for one loop of `n` iterations on `workers` workers, numbered from 0.

    `smallest` and `largest` bound each size (the last chunk takes what is left); `largest` 0 is no bound.
    """

    NAME = ""
    IS_ADAPTIVE = False
    """Its sizes depend on what `record` was told."""

    def __init__(self, n: int, workers: int, *, smallest: int = 1, largest: int = 0) -> None:
        self.n = checked_count("n", n, 0, ITERATIONS_MAX)
        self.workers = checked_count("workers", workers, 1, WORKERS_MAX)
        self.smallest = checked_count("smallest", smallest, 1, ITERATIONS_MAX)
        self.largest = checked_count("largest", largest, 0, ITERATIONS_MAX) or ITERATIONS_MAX
        if self.largest < self.smallest:
            raise TechniqueError(f"largest {largest} is below smallest {smallest}: leave one of them out")
        self.remaining = self.n

    def next_chunk(self, worker: int) -> int:
        """Size of the chunk that this worker takes now; 0 when nothing remains."""
        if not self.remaining:
            return 0
        size = min(max(self._size(worker), self.smallest), self.largest, self.remaining)
        self.remaining -= size
        return size

    def record(self, worker: int, size: int, seconds: float, overhead: float = 0.0) -> None:
        """Learn that this worker has done a chunk of `size` iterations in `seconds`; `overhead` came on top of them.

        Raises TechniqueError for values that no chunk can have.
        """
        checked_count("worker", worker, 0, self.workers - 1)
        checked_count("size", size, 1, ITERATIONS_MAX)
        checked_seconds("seconds", seconds)
        checked_seconds("overhead", overhead)
        self._learn(worker, size, seconds, overhead)

    def end_loop(self) -> None:
        """Learn that all chunks of the loop have been recorded."""

    def _size(self, worker: int) -> int:
        """The formula: at least one iteration remains. Values outside the bounds are cut to them."""
        raise NotImplementedError

    def _learn(self, worker: int, size: int, seconds: float, overhead: float) -> None:
        """Most techniques learn nothing."""


def checked_count(name: str, value: int, low: int, high: int) -> int:
    """Return the whole number. Raises TechniqueError outside `low` to `high`."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise TechniqueError(f"{name} is {value!r}: give a whole number from {low} to {high}")
    return value


def checked_seconds(name: str, value: float) -> float:
    """Return the number of seconds. Raises TechniqueError below 0, and for what is no finite number."""
    if not isinstance(value, (int, float)) or not math.isfinite(value) or not 0 <= value <= 1e15:
        raise TechniqueError(f"{name} is {value!r}: give seconds of 0 or more")
    return float(value)


def ceil_div(dividend: int, divisor: int) -> int:
    """The quotient of whole numbers, rounded up."""
    return -(-dividend // divisor)
