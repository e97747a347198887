"""The batch level of a two-level simulation: what plans jobs, and what becomes of cores that applications do not use.

This is the seam between the levels. An application reports idle cores and what it has left to do, and answers requests; the
batch level decides which job gets what, and says it as placements (R-09). Invariant of every batch level: each core is
held by at most one job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from eslurm.core.model.placement import Placement
from eslurm.lab.applications.application import Core
from eslurm.lab.workloads.planner_driver import PlannerDriver
from eslurm.lab.workloads.workload import Job


class Wish(msgspec.Struct, frozen=True):
    """A waiting job that could start with so many more cores, and how long it would have them."""

    job_id: int
    missing: int
    loan_us: int


class Offer(msgspec.Struct, frozen=True):
    """An application's answer to a wish (R-05): the cores it would lend, and the time it has left (R-01)."""

    job_id: int
    cores: int
    left_us: int


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
        """A job that was placed so has ended. It has no borrowed cores any more."""

    def plan(self, now_us: int) -> Iterator[Placement]:
        """Placements of jobs that start now."""

    def wake_us(self, now_us: int) -> int:
        """The next instant at which to plan though nothing comes, ends or is reported."""

    def hears(self, job_id: int, left_us: int) -> bool:
        """Check whether an idle report of an application with so much time left is of use."""

    def idle(self, job_id: int, cores: Sequence[Core]) -> None:
        """An application has reported cores that it uses no more (R-03): others may use them."""

    def find_wish(self) -> Wish | None:
        """The waiting job for which applications are to be asked for cores (R-02)."""

    def choose(self, wish: Wish, offers: Sequence[Offer]) -> list[tuple[int, int]]:
        """The (job, number of cores) that are to be lent; empty: the offers are too few."""

    def lend(self, job_id: int, cores: Sequence[Core]) -> None:
        """An application has lent cores: the wish's job may start on them."""

    def give_back(self, borrower: int, owner: int, cores: Sequence[Core]) -> None:
        """Cores return to their owner; `borrower` 0: the job that was to have them has not started."""


class Exclusive(PlannerDriver):
    """No cooperation: a job's cores are its own until it ends, as in any batch system today."""

    def hears(self, job_id: int, left_us: int) -> bool:
        """No report is heard."""
        return False

    def idle(self, job_id: int, cores: Sequence[Core]) -> None:
        """Never called."""

    def find_wish(self) -> Wish | None:
        """No application is asked."""
        return None

    def choose(self, wish: Wish, offers: Sequence[Offer]) -> list[tuple[int, int]]:
        """Never called."""
        return []

    def lend(self, job_id: int, cores: Sequence[Core]) -> None:
        """Never called."""

    def give_back(self, borrower: int, owner: int, cores: Sequence[Core]) -> None:
        """Never called."""


def positions_of(cores: Iterable[Core]) -> dict[int, int]:
    """Number of cores at each position."""
    found: dict[int, int] = {}
    for position, _ in cores:
        found[position] = found.get(position, 0) + 1
    return found
