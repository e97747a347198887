"""Weighted factoring: a worker's chunk is FAC2's, times its weight: WF, AWF, AWF-B, AWF-C, AWF-D, AWF-E.

Weights sum to P; a worker of weight 1 is as fast as the mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from eslurm.loops.decreasing import Batches
from eslurm.loops.statistics import Rates
from eslurm.loops.technique import Technique, TechniqueError, ceil_div, checked_count, checked_seconds

__all__ = [
    "AdaptiveWeightedFactoring",
    "AwfBatch",
    "AwfBatchTotal",
    "AwfChunk",
    "AwfChunkTotal",
    "History",
    "WeightedFactoring",
]


class WeightedFactoring(Batches):
    """WF: ceil(w_i R / (2 P)), R as at the start of the batch (Flynn Hummel, Schmidt, Uma and Wein, SPAA 1996).

    `weights` are the workers' relative speeds, in any unit. Without them all are equal, and WF is FAC2.
    """

    NAME = "WF"

    def __init__(
        self,
        n: int,
        workers: int,
        *,
        weights: Sequence[float] | None = None,
        smallest: int = 1,
        largest: int = 0,
    ) -> None:
        super().__init__(n, workers, smallest=smallest, largest=largest)
        self._weights = normalised(weights, workers)
        self._at_start = 0

    def _size(self, worker: int) -> int:
        size = super()._size(worker)
        # Equal weights are whole numbers' work: no float rounds what FAC2 would not.
        weight = self._weights[worker]
        return size if weight == 1.0 else math.ceil(weight * self._at_start / (2 * self.workers))

    def _batch_size(self) -> int:
        self._at_start = self.remaining
        return ceil_div(self.remaining, 2 * self.workers)


class History:
    """Performance of the workers over the time steps of an application, each of which runs the loop once: AWF's
    memory.
    """

    def __init__(self, workers: int) -> None:
        self.workers = checked_count("workers", workers, 1, 1 << 20)
        self._rates = Rates(workers)
        self._sizes = [0] * workers
        self._seconds = [0.0] * workers

    def record(self, worker: int, size: int, seconds: float) -> None:
        """Count a chunk of the current step."""
        checked_count("worker", worker, 0, self.workers - 1)
        self._sizes[worker] += checked_count("size", size, 1, 1 << 53)
        self._seconds[worker] += checked_seconds("seconds", seconds)

    def end_step(self) -> None:
        """Let the step's chunks count: the next loop has new weights."""
        for worker in range(self.workers):
            if self._sizes[worker]:
                self._rates.add(worker, self._sizes[worker], self._seconds[worker])
        self._sizes = [0] * self.workers
        self._seconds = [0.0] * self.workers

    def weights(self) -> list[float]:
        """Weights after the steps that have ended."""
        return self._rates.weights()


class AdaptiveWeightedFactoring(WeightedFactoring):
    """AWF: WF with weights that change from one time step to the next (Banicescu, Velusamy and Devaprasad, 2003).

    Within a step the weights stand. `history` carries what was measured to the next loop; without it the step is WF with
    equal weights.
    """

    NAME = "AWF"
    IS_ADAPTIVE = True

    def __init__(
        self,
        n: int,
        workers: int,
        *,
        history: History | None = None,
        smallest: int = 1,
        largest: int = 0,
    ) -> None:
        if history is not None and history.workers != workers:
            raise TechniqueError(
                f"the history is of {history.workers} workers and the loop has {workers}: begin another one"
            )
        self.history = history or History(checked_count("workers", workers, 1, 1 << 20))
        super().__init__(n, workers, weights=self.history.weights(), smallest=smallest, largest=largest)

    def _learn(self, worker: int, size: int, seconds: float, overhead: float) -> None:
        self.history.record(worker, size, seconds)

    def end_loop(self) -> None:
        """End the time step."""
        self.history.end_step()


class AwfBatch(WeightedFactoring):
    """AWF-B: WF whose weights are computed anew at the start of each batch (Cariño and Banicescu, 2008)."""

    NAME = "AWF-B"
    IS_ADAPTIVE = True
    _COUNTS_OVERHEAD = False

    def __init__(self, n: int, workers: int, *, smallest: int = 1, largest: int = 0) -> None:
        super().__init__(n, workers, smallest=smallest, largest=largest)
        self._rates = Rates(workers)

    def _batch_size(self) -> int:
        self._weights = self._rates.weights()
        return super()._batch_size()

    def _learn(self, worker: int, size: int, seconds: float, overhead: float) -> None:
        self._rates.add(worker, size, seconds + overhead if self._COUNTS_OVERHEAD else seconds)


class AwfBatchTotal(AwfBatch):
    """AWF-D: AWF-B on the whole time of a chunk, its overhead included (Cariño and Banicescu, 2008)."""

    NAME = "AWF-D"
    _COUNTS_OVERHEAD = True


class AwfChunk(Technique):
    """AWF-C: ceil(w_i R / (2 P)) with weights and R as they are at each request (Cariño and Banicescu, 2008).

    A fast worker need not wait for the next batch until its weight counts.
    """

    NAME = "AWF-C"
    IS_ADAPTIVE = True
    _COUNTS_OVERHEAD = False

    def __init__(self, n: int, workers: int, *, smallest: int = 1, largest: int = 0) -> None:
        super().__init__(n, workers, smallest=smallest, largest=largest)
        self._rates = Rates(workers)

    def _size(self, worker: int) -> int:
        return math.ceil(self._rates.weight(worker) * self.remaining / (2 * self.workers))

    def _learn(self, worker: int, size: int, seconds: float, overhead: float) -> None:
        self._rates.add(worker, size, seconds + overhead if self._COUNTS_OVERHEAD else seconds)


class AwfChunkTotal(AwfChunk):
    """AWF-E: AWF-C on the whole time of a chunk, its overhead included (Cariño and Banicescu, 2008)."""

    NAME = "AWF-E"
    _COUNTS_OVERHEAD = True


def normalised(weights: Sequence[float] | None, workers: int) -> list[float]:
    """The weights with a sum of P; equal ones are exactly 1. Raises TechniqueError."""
    if weights is None:
        return [1.0] * workers
    if len(weights) != workers:
        raise TechniqueError(f"{len(weights)} weights for {workers} workers: give one for each")
    values = [checked_seconds("a weight", weight) for weight in weights]
    if min(values) <= 0:
        raise TechniqueError("a weight is 0: give relative speeds above 0")
    total = sum(values)
    if max(values) == min(values):
        return [1.0] * workers
    return [value * workers / total for value in values]
