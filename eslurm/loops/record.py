"""The record of a loop: which worker computed which chunk when, and the measures that follow from it.

Bound: single chunks are kept up to `CHUNKS_KEPT`; the sums go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from eslurm.loops.imbalance import max_over_mean

__all__ = ["CHUNKS_KEPT", "DONE", "FAILED", "LOST", "Chunk", "Record"]

CHUNKS_KEPT = 100_000
DONE, FAILED, LOST = "done", "failed", "lost"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Iterations `start` to `stop` (without it) on one worker. Times are seconds from the loop's start.

    `seconds` is the time in the function alone, as the worker measured it; 0 unless the chunk was done.
    """

    worker: int
    start: int
    stop: int
    granted: float
    ended: float
    seconds: float
    attempt: int
    outcome: str


@dataclass(slots=True)
class Record:
    """A loop's course. `labels` names each worker that ever joined; `left` are those that were lost."""

    technique: str
    n: int
    labels: dict[int, str] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)
    chunks: list[Chunk] = field(default_factory=list)
    handed_out: int = 0
    done: int = 0
    """Iterations with a result."""
    busy_s: float = 0.0
    """Seconds in the function, over all chunks that were done."""
    finished: dict[int, float] = field(default_factory=dict)
    """The end of each worker's last chunk."""

    def joined(self, worker: int, label: str) -> None:
        """Count a worker."""
        self.labels[worker] = label
        self.finished[worker] = 0.0

    def add(self, chunk: Chunk) -> None:
        """Count a chunk that has come to an end of any kind."""
        self.handed_out += 1
        if chunk.outcome == DONE:
            self.done += chunk.stop - chunk.start
            self.busy_s += chunk.seconds
            self.finished[chunk.worker] = chunk.ended
        if len(self.chunks) < CHUNKS_KEPT:
            self.chunks.append(chunk)

    @property
    def makespan(self) -> float:
        """Seconds to the end of the last chunk."""
        return max(self.finished.values(), default=0.0)

    def finishing_times(self) -> list[float]:
        """Ends of the workers that were there to the end; one that never got a chunk has finished at 0."""
        return [at for worker, at in self.finished.items() if worker not in self.left]

    @property
    def imbalance(self) -> float:
        """max / mean of the finishing times (R-22)."""
        return max_over_mean(self.finishing_times())

    @property
    def efficiency(self) -> float:
        """Share of the workers' time up to the last end that was spent in the function, 0 to 1."""
        workers = len(self.labels) - len(self.left)
        return self.busy_s / (workers * self.makespan) if workers and self.makespan else 0.0
