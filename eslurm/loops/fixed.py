"""Techniques whose chunks have one size: STATIC, SS, FSC, mFSC."""

from __future__ import annotations

import math

from eslurm.loops.technique import Technique, TechniqueError, ceil_div, checked_seconds

__all__ = ["FixedSizeChunking", "ModifiedFixedSizeChunking", "SelfScheduling", "Static"]


class Static(Technique):
    """STATIC: ceil(N / P), a chunk for each worker (R-16). No overhead, and no cure for imbalance."""

    NAME = "STATIC"

    def _size(self, worker: int) -> int:
        return ceil_div(self.n, self.workers)


class SelfScheduling(Technique):
    """SS: one iteration at a time (Tang and Yew, ICPP 1986). Nearly no imbalance, the most overhead."""

    NAME = "SS"

    def _size(self, worker: int) -> int:
        return 1


class FixedSizeChunking(Technique):
    """FSC: ((sqrt(2) N h) / (sigma P sqrt(ln P)))^(2/3), rounded up (Kruskal and Weiss, IEEE TSE 11(10), 1985).

    The size balances the overhead of small chunks and the imbalance of large ones for iterations of independent times.
    One worker, and a sigma of 0, have no imbalance: then the size is that of STATIC.
    """

    NAME = "FSC"

    def __init__(
        self, n: int, workers: int, *, sigma: float, h: float, smallest: int = 1, largest: int = 0
    ) -> None:
        super().__init__(n, workers, smallest=smallest, largest=largest)
        checked_seconds("sigma", sigma)
        if not checked_seconds("h", h):
            raise TechniqueError("h is 0: FSC needs the seconds that one chunk costs, e.g. 0.001")
        self._fixed = ceil_div(n, workers)
        if workers > 1 and sigma > 0:
            spread = sigma * workers * math.sqrt(math.log(workers))
            size = (math.sqrt(2) * n * h / spread) ** (2 / 3) if spread else math.inf
            self._fixed = math.ceil(min(size, self._fixed))

    def _size(self, worker: int) -> int:
        return self._fixed


class ModifiedFixedSizeChunking(Technique):
    """mFSC: the fixed size with which there are as many chunks as with FAC2, so that it needs neither sigma nor h.

    Source: Banicescu, Ciorba and Srivastava, in Scalable Computing (2013); X-61. The chunks of FAC2 are counted by its
    own rule, not by an approximation with log2(N / P).
    """

    NAME = "mFSC"

    def __init__(self, n: int, workers: int, *, smallest: int = 1, largest: int = 0) -> None:
        super().__init__(n, workers, smallest=smallest, largest=largest)
        self._fixed = ceil_div(n, max(chunks_of_fac2(n, workers), 1))

    def _size(self, worker: int) -> int:
        return self._fixed


def chunks_of_fac2(n: int, workers: int) -> int:
    """Count the chunks of FAC2 without making them: a step for each of its batches."""
    count = 0
    while n > 0:
        size = ceil_div(n, 2 * workers)
        in_batch = min(workers, ceil_div(n, size))
        count += in_batch
        n -= in_batch * size
    return count
