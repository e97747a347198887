"""Running statistics of each worker: nothing is kept of a chunk but its share in a few sums."""

from __future__ import annotations

__all__ = ["Rates", "RunningStatistics", "replaced"]

_CANCELLED = 1e-6
"""A sum that shrinks by more than this has lost the digits of what is left in it."""


class RunningStatistics:
    """Mean and variance of one iteration's seconds on one worker, from the times of whole chunks.

    A chunk's mean over k iterations scatters with sigma^2 / k, so that k (mean of the chunk - mu)^2 / (chunks - 1) in sum
    estimates sigma^2 without a time of each iteration. The sums are updated as West does (CACM 22(9), 1979).
    """

    __slots__ = ("_squares", "chunks", "iterations", "mean")

    def __init__(self) -> None:
        self.chunks = 0
        self.iterations = 0
        self.mean = 0.0
        self._squares = 0.0

    def add(self, size: int, seconds: float) -> None:
        """Count a chunk."""
        self.chunks += 1
        self.iterations += size
        distance = seconds / size - self.mean
        self.mean += distance * size / self.iterations
        self._squares += size * distance * (seconds / size - self.mean)

    @property
    def variance(self) -> float:
        """sigma^2; 0 before the second chunk."""
        return max(self._squares, 0.0) / (self.chunks - 1) if self.chunks > 1 else 0.0


class Rates:
    """Speeds of the workers, in iterations a second of weighted time; the later a chunk, the more it counts.

    A worker's weighted average performance after its chunks (or time steps) j = 1..k is pi = sum(j t_j) / sum(j n_j),
    t_j the seconds and n_j the iterations of the j-th. Its weight is P (1 / pi) / sum over all (1 / pi): the faster,
    the heavier, and all weights sum to P (Banicescu, Velusamy and Devaprasad, Cluster Computing 6(3), 2003; Cariño and
    Banicescu, Cluster Computing 11(1), 2008). A worker without a measured chunk has the mean weight, 1.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._seconds = [0.0] * workers
        self._iterations = [0.0] * workers
        self._counts = [0] * workers
        self._rates = [0.0] * workers
        self._sum = 0.0
        self._measured = 0

    def add(self, worker: int, size: int, seconds: float) -> None:
        """Count a chunk, or a time step, of this worker."""
        self._counts[worker] += 1
        self._seconds[worker] += self._counts[worker] * seconds
        self._iterations[worker] += self._counts[worker] * size
        # Below the clock's grain a chunk takes no time: a nanosecond an iteration is a rate that can be divided by.
        pi = max(self._seconds[worker] / self._iterations[worker], 1e-9)
        if not self._rates[worker]:
            self._measured += 1
        self._sum = replaced(self._sum, self._rates, worker, 1 / pi)

    def weight(self, worker: int) -> float:
        """The worker's weight, of P in all."""
        rate = self._rates[worker]
        return rate * self._measured / self._sum if rate else 1.0

    def weights(self) -> list[float]:
        """The weights of all workers."""
        return [self.weight(worker) for worker in range(self.workers)]


def replaced(total: float, values: list[float], at: int, value: float) -> float:
    """Put `value` at its place among values of 0 or more, and return their new sum from the old one.

    A decision then costs the same with any number of workers.
    """
    after = total + (value - values[at])
    values[at] = value
    return after if after > total * _CANCELLED else sum(values)
