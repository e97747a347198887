"""The batch level of a two-level simulation: what plans jobs, and what becomes of cores that applications do not use.

This is the seam between the levels. The application level reports (`idle`); the batch level decides who gets what, and
says it as placements. Invariant of every batch level: a core is in one placement, or idle in one report, never both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from eslurm.core.model.placement import Placement
from eslurm.lab.applications.application import Core
from eslurm.lab.workloads.planner_driver import PlannerDriver
from eslurm.lab.workloads.workload import Job


class BatchLevel(Protocol):
    """What the loop of events needs of the batch system."""

    @property
    def waiting(self) -> int:
        """Number of waiting jobs."""

    @property
    def wants_cycle(self) -> bool:
        """Check whether a planning cycle could do anything."""

    def advance(self, now_us: int) -> None:
        """Time has passed."""

    def arrive(self, job: Job) -> str:
        """A job is submitted; why it is refused, "" if it is not."""

    def leave(self, placement: Placement) -> str:
        """A job that was placed so has ended."""

    def plan(self, now_us: int) -> Iterator[Placement]:
        """Placements of jobs that start now."""

    def wake_us(self, now_us: int) -> int:
        """The next instant at which to plan though nothing comes, ends or is reported."""

    def idle(self, job_id: int, cores: Sequence[Core]) -> bool:
        """An application reports cores that it uses no more (R-03); whether others may use them now."""


class Exclusive(PlannerDriver):
    """No cooperation: a job's cores are its own until it ends, as in any batch system today."""

    def idle(self, job_id: int, cores: Sequence[Core]) -> bool:
        """The report is not heard."""
        return False


def positions_of(cores: Iterable[Core]) -> dict[int, int]:
    """Number of cores at each position."""
    found: dict[int, int] = {}
    for position, _ in cores:
        found[position] = found.get(position, 0) + 1
    return found
