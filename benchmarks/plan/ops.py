"""Plan operations: unbook a job, ask limits and FreePools, search its first start and nodes, book it there (C-55).

    python -m benchmarks.plan.ops        the figures, as JSON lines; QUICK=1 for fewer of them

Invariant: before an operation is timed, answers to some of them were equal to those of the oracle. Times are of the
processor.
"""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.figures import Figures
from benchmarks.plan.desk import Desk
from benchmarks.plan.oracle import Dense
from benchmarks.plan.workload import POLICIES, SIZES, backlog, views
from eslurm.core.model.accounts import Policy
from eslurm.core.plan.cycle.queue import Pending
from eslurm.core.plan.profile.search import RESOURCES

ENDED_SHARE: Final = 0.05
"""Of the planned jobs, taken out again: jobs that ended early leave holes to move into."""
MACHINES: Final = {"plan_ops_616": (616, 390), "plan_ops_62": (62, 440)}
"""Figure -> nodes, and for how many hours there is work."""


class Plan:
    """A machine whose time is planned, jobs by size."""

    def __init__(self, nodes: int, hours: int, policies: Mapping[str, Mapping[str, Policy]]) -> None:
        rng = self.rng = random.Random(nodes)
        self.policies = policies
        self.by_size = backlog(nodes, hours, rng)
        jobs = sorted(
            (job for of_size in self.by_size.values() for job in of_size), key=lambda job: job.job_id
        )
        self.desk = Desk(views(nodes), jobs, policies)
        for job in jobs:
            self.desk.put(job)
        for of_size in self.by_size.values():
            for _ in range(int(len(of_size) * ENDED_SHARE)):
                self.desk.take_out(of_size.pop(self.rng.randrange(len(of_size))))

    @property
    def jobs(self) -> int:
        """The number of jobs with a place."""
        return len(self.desk.schedule.bookings)

    def drawn(self, count: int) -> list[Pending]:
        """Jobs of a size as often as such jobs come."""
        counts = [jobs for cores, jobs, *_ in SIZES if cores in self.by_size]
        sizes = [cores for cores, *_ in SIZES if cores in self.by_size]
        return [self.rng.choice(self.by_size[cores]) for cores in self.rng.choices(sizes, counts, k=count)]

    def verify(self, samples: int) -> None:
        """Raises `AssertionError` when an answer is not the oracle's; one job of each size per sample."""
        desk = self.desk
        for _ in range(samples):
            for of_size in self.by_size.values():
                job = self.rng.choice(of_size)
                entry, moves = desk.entries[job.job_id], desk.schedule.moves[job.job_id]
                (booking,) = desk.schedule.remove(job.job_id)
                booked = [
                    (desk.schedule.entries[job_id].job, one)
                    for job_id, (one,) in desk.schedule.bookings.items()
                ]
                query, found = desk.search(job)
                expected = Dense(desk.snapshot.ledger.topology, booked).earliest(
                    job, query.need, self.policies
                )
                if (found.at_us, found.chosen) != expected:
                    raise AssertionError(f"{job}: {found} instead of {expected}")
                desk.schedule.add(entry, booking, moves)


def operations(figures: Figures, name: str, plan: Plan, count: int) -> None:
    """Plan operations a second."""
    desk = plan.desk
    drawn = plan.drawn(count)
    earlier = ruled = 0
    gc.collect()
    began = time.thread_time()
    for job in drawn:
        before_us = desk.take_out(job)
        found = desk.put(job)
        earlier += found.at_us < before_us
        ruled += any(move.kind != RESOURCES for move in found.moves)
    figures.add(name, count / (time.thread_time() - began), "1/s", count)
    figures.add(f"{name}_slots", desk.schedule.book.slots, "slots", plan.jobs)
    figures.add(f"{name}_earlier", earlier, "jobs", count)
    figures.add(f"{name}_moved_by_rules", ruled, "jobs", count)


def measure(figures: Figures, _directory: Path, *, quick: bool) -> None:
    """plan_ops_616, plan_ops_62."""
    for name, (nodes, hours) in MACHINES.items():
        plan = Plan(nodes, hours, POLICIES)
        plan.verify(1 if quick else 3)
        operations(figures, name, plan, 2_000 if quick else 10_000)
        if not quick:
            operations(figures, f"{name}_without_rules", Plan(nodes, hours, {}), 10_000)


if __name__ == "__main__":
    measure(Figures(), Path(), quick=bool(os.environ.get("QUICK")))
