"""Costs of an application's tasks: how long each iteration of its loop computes on a core, in whole microseconds.

A chunk's cost is a difference of two sums, so it takes the same time for one iteration and for a million. Invariant:
the costs of the chunks of any partition of a loop sum exactly to the loop's total.

Costs are stated (constant, uniform, gaussian, exponential), recorded (a file), or an application's own
(`mandelbrot`, `spin_images`). Drawn ones depend on their seed alone, the same on every machine.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final

from eslurm.compat.errors import quoted
from eslurm.core.model.units import SECOND_US

TASKS_MAX: Final = 10_000_000
TASK_MAX_S: Final = 1e6
_TOTAL_MAX_US: Final = 2**62


class CostError(Exception):
    """No costs can be made of what was given; the text says what to give."""


class Costs:
    """The costs of one loop. `ends_us[i]` is what the first `i` tasks cost together."""

    def __init__(self, ends_us: array[int], mean_s: float, sigma_s: float) -> None:
        self._ends_us = ends_us
        self.n = len(ends_us) - 1
        self.total_us = ends_us[-1]
        self.mean_s = mean_s
        """Mean seconds of a task, as FAC knows it beforehand."""
        self.sigma_s = sigma_s
        """Standard deviation of a task's seconds."""

    def to_bytes(self) -> bytes:
        """The sums in microseconds, for another process of this machine."""
        return self._ends_us.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, mean_s: float, sigma_s: float) -> Costs:
        """Costs that `to_bytes` has written."""
        return cls(array("q", data), mean_s, sigma_s)

    def chunk_us(self, start: int, stop: int) -> int:
        """Cost of the tasks `start` to `stop` (without it)."""
        return self._ends_us[stop] - self._ends_us[start]

    def largest_us(self, parts: int) -> int:
        """Cost of the dearest of `parts` equal chunks: a STATIC run's length without overhead."""
        size = -(-self.n // parts)
        return max(
            self.chunk_us(start, min(start + size, self.n))
            for start in range(0, max(self.n, 1), max(size, 1))
        )


def from_seconds(seconds: Any) -> Costs:
    """Costs of tasks of so many seconds each (an array of floats). Raises `CostError`."""
    import numpy

    each: Any = numpy.asarray(seconds, dtype=numpy.float64)
    if not 0 < len(each) <= TASKS_MAX:
        raise CostError(f"a loop has 1 to {TASKS_MAX} tasks, not {len(each)}")
    if not bool(numpy.all((each >= 0) & (each <= TASK_MAX_S))):
        raise CostError(f"a task takes 0 to {TASK_MAX_S:g} seconds")
    # A running sum, not a pairwise one: its rounding is the same on every machine.
    sums: Any = numpy.cumsum(each)
    if float(sums[-1]) * SECOND_US > _TOTAL_MAX_US:
        raise CostError("a loop's tasks take less than 146,000 years together")
    mean = float(sums[-1]) / len(each)
    spread = float(numpy.cumsum((each - mean) ** 2)[-1]) / len(each)
    ends = array("q", [0])
    ends.frombytes(numpy.rint(sums * SECOND_US).astype(numpy.int64).tobytes())
    return Costs(ends, mean, math.sqrt(spread))


def scaled(costs: Sequence[float], total_s: float) -> Costs:
    """The same proportions with another sum in seconds. Raises `CostError`."""
    import numpy

    each: Any = numpy.asarray(costs, dtype=numpy.float64)
    whole = float(numpy.cumsum(each)[-1]) if len(each) else 0.0
    if whole <= 0:
        raise CostError("tasks that take no time cannot be scaled: give one that does")
    return from_seconds(each * (total_s / whole))


def drawn(kind: str, n: int, seed: int) -> list[float]:
    """Seconds of `n` tasks by a distribution as `gaussian:0.01,0.002`. Raises `CostError`."""
    name, _, said = kind.partition(":")
    if name not in DISTRIBUTIONS:
        raise CostError(
            f"{quoted(kind)} is no distribution of task costs: use one of {', '.join(DISTRIBUTIONS)},"
            " e.g. gaussian:0.01,0.002"
        )
    if not 0 < n <= TASKS_MAX:
        raise CostError(f"a loop has 1 to {TASKS_MAX} tasks, not {n}")
    count, make = DISTRIBUTIONS[name]
    try:
        values = [float(word) for word in said.split(",")]
        if len(values) != count or not all(
            math.isfinite(value) and 0 <= value <= TASK_MAX_S for value in values
        ):
            raise ValueError
        return make(_uniform(n, seed), *values)
    except ValueError:
        raise CostError(f"{quoted(kind)}: give {_FORMS[name]}, in seconds of 0 to {TASK_MAX_S:g}") from None


def _constant(draws: Sequence[float], each_s: float) -> list[float]:
    return [each_s] * len(draws)


def _between(draws: Sequence[float], low_s: float, high_s: float) -> list[float]:
    if low_s > high_s:
        raise ValueError
    return [low_s + draw * (high_s - low_s) for draw in draws]


def _gaussian(draws: Sequence[float], mean_s: float, sigma_s: float) -> list[float]:
    if not sigma_s:
        return [mean_s] * len(draws)
    normal = NormalDist(mean_s, sigma_s)
    # What would take less than no time takes none.
    return [max(normal.inv_cdf(draw), 0.0) for draw in draws]


def _exponential(draws: Sequence[float], mean_s: float) -> list[float]:
    return [-mean_s * math.log1p(-draw) for draw in draws]


DISTRIBUTIONS: Final[dict[str, tuple[int, Callable[..., list[float]]]]] = {
    "constant": (1, _constant),
    "uniform": (2, _between),
    "gaussian": (2, _gaussian),
    "exponential": (1, _exponential),
}
_FORMS: Final = {
    "constant": "constant:SECONDS",
    "uniform": "uniform:LOW,HIGH",
    "gaussian": "gaussian:MEAN,SIGMA",
    "exponential": "exponential:MEAN",
}


def _uniform(n: int, seed: int) -> list[float]:
    """Draws above 0 and below 1. The raw numbers of this generator never change, unlike what numpy makes of them."""
    import numpy

    raw: Any = numpy.random.PCG64(seed).random_raw(n)
    draws: list[float] = (((raw >> 11).astype(numpy.float64) + 0.5) * 2.0**-53).tolist()
    return draws


def recorded(path: Path) -> list[float]:
    """Seconds of a loop's tasks, one number a line; lines that begin with # are comments. Raises `CostError`, `OSError`."""
    found: list[float] = []
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            try:
                value = float(text)
            except ValueError:
                value = -1.0
            if not 0 <= value <= TASK_MAX_S:
                raise CostError(
                    f"{path}: line {number}: {quoted(text)} is no time in seconds of 0 to {TASK_MAX_S:g}"
                )
            found.append(value)
            if len(found) > TASKS_MAX:
                raise CostError(f"{path}: has more than {TASKS_MAX} tasks")
    if not found:
        raise CostError(f"{path}: has no task: write the seconds of each on a line of its own")
    return found
