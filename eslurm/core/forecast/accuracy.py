"""Accuracy of estimates: the published accuracy (E-49), the share of underestimates, the mean error."""

from __future__ import annotations


def accuracy(estimate_s: float, runtime_s: float) -> float:
    """Equation 4: min / max of both, 1 for an exact estimate. Both must be above 0."""
    return min(estimate_s, runtime_s) / max(estimate_s, runtime_s)


class Tally:
    """A running mean over finished jobs (Equation 5)."""

    __slots__ = ("_error_s", "_sum", "_under", "jobs")

    def __init__(self) -> None:
        self.jobs = 0
        self._sum = 0.0
        self._under = 0
        self._error_s = 0.0

    def add(self, estimate_s: float, runtime_s: float) -> None:
        """Add an ended job. Both above 0."""
        self.jobs += 1
        self._sum += accuracy(estimate_s, runtime_s)
        self._under += estimate_s < runtime_s
        self._error_s += abs(estimate_s - runtime_s)

    @property
    def aea(self) -> float:
        """Average estimation accuracy, 0..1; 0 before the first job."""
        return self._sum / self.jobs if self.jobs else 0.0

    @property
    def under(self) -> float:
        """Underestimation rate: the share of jobs that ran strictly longer than their estimate; 0 before the first."""
        return self._under / self.jobs if self.jobs else 0.0

    @property
    def mae_s(self) -> float:
        """Mean absolute error in seconds."""
        return self._error_s / self.jobs if self.jobs else 0.0
