"""Techniques whose chunks become smaller by a formula that is known before the loop: GSS, TSS, FAC, FAC2."""

from __future__ import annotations

import math

from eslurm.loops.technique import Technique, TechniqueError, ceil_div, checked_count, checked_seconds

__all__ = ["Factoring", "GuidedSelfScheduling", "PracticalFactoring", "TrapezoidSelfScheduling"]


class GuidedSelfScheduling(Technique):
    """GSS: ceil(R / P) at each step (Polychronopoulos and Kuck, IEEE TC 36(12), 1987; R-16, X-62).

    GSS(k) of the same paper is `smallest=k`.
    """

    NAME = "GSS"

    def _size(self, worker: int) -> int:
        return ceil_div(self.remaining, self.workers)


class TrapezoidSelfScheduling(Technique):
    """TSS: sizes fall in equal steps from `first` to `last` (Tzen and Ni, IEEE TPDS 4(1), 1993).

    There are C = ceil(2 N / (first + last)) chunks, and each is floor((first - last) / (C - 1)) smaller than the one
    before. The paper's own values are the default: first ceil(N / (2 P)), last 1.
    """

    NAME = "TSS"

    def __init__(
        self,
        n: int,
        workers: int,
        *,
        first: int | None = None,
        last: int = 1,
        smallest: int = 1,
        largest: int = 0,
    ) -> None:
        super().__init__(n, workers, smallest=smallest, largest=largest)
        self._next = ceil_div(max(n, 1), 2 * workers) if first is None else first
        checked_count("first", self._next, 1, max(n, 1))
        self._last = min(checked_count("last", last, 1, max(n, 1)), self._next)
        steps = ceil_div(2 * n, self._next + self._last)
        self._step = (self._next - self._last) // (steps - 1) if steps > 1 else 0

    def _size(self, worker: int) -> int:
        size = self._next
        self._next = max(size - self._step, self._last)
        return size


class Batches(Technique):
    """Factoring's frame: P chunks of one size make a batch, and each batch takes a part of what remains at its start."""

    def __init__(self, n: int, workers: int, *, smallest: int = 1, largest: int = 0) -> None:
        super().__init__(n, workers, smallest=smallest, largest=largest)
        self._left_in_batch = 0
        self._of_batch = 0

    def _size(self, worker: int) -> int:
        if not self._left_in_batch:
            self._of_batch = self._batch_size()
            self._left_in_batch = self.workers
        self._left_in_batch -= 1
        return self._of_batch

    def _batch_size(self) -> int:
        """Size of each chunk of the batch that begins now."""
        raise NotImplementedError


class Factoring(Batches):
    """FAC: ceil(R / (x P)) in a batch (Flynn Hummel, Schonberg and Flynn, CACM 35(8), 1992; R-16, X-62).

    With b = P / (2 sqrt(R)) * sigma / mu, x is 1 + b^2 + b sqrt(b^2 + 2) in the first batch and 2 + b^2 + b sqrt(b^2 +
    4) in later ones. A sigma of 0 makes the first batch the whole loop, as the formula says.
    """

    NAME = "FAC"

    def __init__(
        self, n: int, workers: int, *, mu: float, sigma: float, smallest: int = 1, largest: int = 0
    ) -> None:
        super().__init__(n, workers, smallest=smallest, largest=largest)
        if not checked_seconds("mu", mu):
            raise TechniqueError("mu is 0: FAC needs the mean seconds of an iteration, or use FAC2")
        checked_seconds("sigma", sigma)
        self._variation = min(sigma / mu, 1e15)
        self._is_first = True

    def _batch_size(self) -> int:
        b = self.workers / (2 * math.sqrt(self.remaining)) * self._variation
        if self._is_first:
            self._is_first = False
            x = 1 + b * b + b * math.sqrt(b * b + 2)
        else:
            x = 2 + b * b + b * math.sqrt(b * b + 4)
        return math.ceil(self.remaining / (x * self.workers))


class PracticalFactoring(Batches):
    """FAC2: ceil(R / (2 P)) in a batch: factoring without mu and sigma, x = 2 (the same paper; X-62)."""

    NAME = "FAC2"

    def _batch_size(self) -> int:
        return ceil_div(self.remaining, 2 * self.workers)
