"""The batch level of a two-level simulation: what plans jobs, and what becomes of cores that applications do not use.

This is the seam between the levels. An application reports idle cores and what it has left to do, and answers requests; the
batch level decides which job gets what, and says it as placements (R-09). Invariant of every batch level: each core is
used by at most one job.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from eslurm.core.model.placement import Placement
from eslurm.lab.workloads.changes import Change
from eslurm.lab.workloads.planner_driver import PlannerDriver
from eslurm.lab.workloads.workload import Job


class Idle(msgspec.Struct, frozen=True, gc=False):
    """An application's word for the cores of one node (R-01, R-03): so many idle now and before, so much left to do."""

    job_id: int
    position: int
    cores: int
    remaining_us: int


class Asked(msgspec.Struct, frozen=True, gc=False):
    """A request to an application to leave so many more cores to others (R-02), and the node it names."""

    job_id: int
    position: int
    cores: int


class BatchLevel(Protocol):
    """The part of a batch system that the loop of events needs."""

    @property
    def waiting(self) -> int:
        """Number of waiting jobs."""

    @property
    def wants_cycle(self) -> bool:
        """Check whether a planning cycle could do anything."""

    @property
    def cooperates(self) -> bool:
        """Check whether it hears reports."""

    def advance(self, now_us: int) -> None:
        """Time has passed."""

    def arrive(self, job: Job) -> str:
        """A job is submitted; why it is refused, "" if it is not."""

    def leave(self, placement: Placement) -> str:
        """A job that was placed so has ended; what becomes of it."""

    def plan(self, now_us: int) -> Iterator[Change]:
        """Placements of jobs that start now."""

    def wake_us(self, now_us: int) -> int:
        """The next instant at which to plan though nothing comes, ends or is reported."""

    def idle(self, reports: list[Idle]) -> None:
        """An application has reported cores that it uses no more: others may use them."""

    def take_asked(self) -> list[Asked]:
        """Requests to applications since the last call."""

    def refuse(self, asked: Asked) -> None:
        """An application has refused a request (R-05)."""


class Exclusive(PlannerDriver):
    """No cooperation: a job's cores are its own until it ends, as in any batch system today."""

    cooperates = False

    def idle(self, reports: list[Idle]) -> None:
        """Never called."""

    def take_asked(self) -> list[Asked]:
        """No application is asked."""
        return []

    def refuse(self, asked: Asked) -> None:
        """Never called."""
