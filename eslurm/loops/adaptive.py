"""Adaptive factoring: AF, which learns the mean and the variance of an iteration on each worker."""

from __future__ import annotations

import math

from eslurm.loops.statistics import RunningStatistics, replaced
from eslurm.loops.technique import Technique, ceil_div, checked_count

__all__ = ["AdaptiveFactoring"]

PILOTS = 2
"""Chunks of a worker before its variance is known."""
_PART_OF_PILOTS = 16
"""Without `pilot`, the pilots of all workers take a sixteenth of the loop in all."""
_MEAN_MIN_S = 1e-9


class AdaptiveFactoring(Technique):
    """AF: (D + 2 T R - sqrt(D^2 + 4 D T R)) / (2 mu_i) with D = sum(sigma_i^2 / mu_i), T = 1 / sum(1 / mu_i).

    Source: Banicescu and Liu, HPC 2000; R-16, X-62. mu_i and sigma_i are what `record` has told of worker i so far, so
    that each size follows the last measurement. A worker's first two chunks measure it: they have `pilot` iterations
    (the paper leaves their size open), and the sums D and T count the workers that are measured.
    """

    NAME = "AF"
    IS_ADAPTIVE = True

    def __init__(
        self, n: int, workers: int, *, pilot: int | None = None, smallest: int = 1, largest: int = 0
    ) -> None:
        super().__init__(n, workers, smallest=smallest, largest=largest)
        chosen = ceil_div(max(n, 1), _PART_OF_PILOTS * PILOTS * workers) if pilot is None else pilot
        self._pilot = checked_count("pilot", chosen, 1, max(n, 1))
        self._of_worker = [RunningStatistics() for _ in range(workers)]
        self._spreads = [0.0] * workers
        self._rates = [0.0] * workers
        self._d = 0.0
        self._rate = 0.0
        self._measured = 0

    def _size(self, worker: int) -> int:
        rate = self._rates[worker]
        if not rate:
            return self._pilot
        # Unmeasured workers compute at the mean rate: T of the measured alone would promise them the whole loop.
        scale = self.workers / self._measured
        d, t = self._d * scale, 1 / (self._rate * scale)
        tr = t * self.remaining
        return math.ceil((d + 2 * tr - math.sqrt(d * d + 4 * d * tr)) * rate / 2)

    def _learn(self, worker: int, size: int, seconds: float, overhead: float) -> None:
        known = self._of_worker[worker]
        known.add(size, seconds)
        if known.chunks < PILOTS:
            return
        mean = max(known.mean, _MEAN_MIN_S)
        if not self._rates[worker]:
            self._measured += 1
        self._d = replaced(self._d, self._spreads, worker, known.variance / mean)
        self._rate = replaced(self._rate, self._rates, worker, 1 / mean)
