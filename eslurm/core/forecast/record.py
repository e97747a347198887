"""The record module: accuracy of the model of each cluster (E-49), updated when a job ends.

Invariant: a returned `aeas` never changes; it is the record of that moment.
"""

from __future__ import annotations

from collections.abc import Iterable

from eslurm.core.forecast.accuracy import Tally


class Record:
    """A tally per cluster of one model."""

    def __init__(self, clusters: int) -> None:
        self._tallies = [Tally() for _ in range(clusters)]
        self._aeas = (0.0,) * clusters

    @property
    def aeas(self) -> tuple[float, ...]:
        """The average accuracy of each cluster, 0..1; 0 before its first job."""
        return self._aeas

    @property
    def jobs(self) -> tuple[int, ...]:
        """Number of jobs by which each cluster was judged."""
        return tuple(tally.jobs for tally in self._tallies)

    def add(self, cluster: int, estimate_s: float, runtime_s: float) -> None:
        """Add an ended job of this cluster: the model's estimate (used or not) and the runtime, in seconds."""
        self._tallies[cluster].add(estimate_s, runtime_s)
        aeas = list(self._aeas)
        aeas[cluster] = self._tallies[cluster].aea
        self._aeas = tuple(aeas)

    def add_all(self, ended: Iterable[tuple[int, float, float]]) -> None:
        """Many at once: clusters, estimates and runtimes."""
        for cluster, estimate_s, runtime_s in ended:
            self._tallies[cluster].add(estimate_s, runtime_s)
        self._aeas = tuple(tally.aea for tally in self._tallies)
