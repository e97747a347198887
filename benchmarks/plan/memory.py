"""Memory of a controller's state and plan: `rss_15k_jobs_mb`, measured in a process of its own.

    python -m benchmarks.plan.memory        in this process: its resident memory in MB, and how many jobs have a place

The jobs are submitted to the core, as specs, each with its own name; all of them are planned ahead.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.figures import Figures
from benchmarks.plan.workload import CORES, PARTITION, backlog
from benchmarks.processes import module, rss_mb
from eslurm.core.control.planning import plan_slices
from eslurm.core.control.reactor import Reactor
from eslurm.core.model.config import ClusterConfig, NodeConfig, Partition
from eslurm.core.model.job import JobSpec, Principal
from eslurm.core.model.messages import ConfigLoaded, EpochStarted, Message, Refused, Reports, SubmitJobs
from eslurm.core.model.protocol import Registration, Report
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.state.cluster import State

JOBS: Final = 15_000
NODES: Final = 616
HOURS: Final = 420
JOBS_PER_CALL: Final = 1_000
NOW_US: Final = 1_000 * SECOND_US
MEMORY_MIB: Final = 65_536


class Held(msgspec.Struct):
    """The jobs in memory."""

    rss_mb: float
    jobs: int
    planned: int


class Core:
    """A state that takes messages as the dispatcher gives them."""

    def __init__(self) -> None:
        self.state = State("main")
        self._reactor = Reactor(self.state)

    def tell(self, message: Message) -> None:
        """Raises `ValueError` when it is refused."""
        (answer,) = self._reactor.process((message,), NOW_US).answers
        if isinstance(answer, Refused):
            raise ValueError(str(answer))
        self.state.take_touched()


def cluster() -> Core:
    """All nodes are up, nothing runs."""
    names = tuple(f"n{number}" for number in range(NODES))
    nodes = tuple(NodeConfig(name, (CORES, MEMORY_MIB)) for name in names)
    core = Core()
    core.tell(
        ConfigLoaded(
            ClusterConfig(
                cluster="bench",
                nodes=nodes,
                partitions=(Partition(PARTITION, names, default=True),),
                policy="planned",
            )
        )
    )
    core.tell(EpochStarted(1))
    for number, name in enumerate(names):
        body = Registration(name, f"uid-{name}", "b1", "s1", 1, "host:1", (CORES, MEMORY_MIB), ())
        core.tell(Reports((Report("agent", number + 1, body),)))
    return core


def specs(count: int) -> list[JobSpec]:
    """Jobs of C-53, their ids shuffled."""
    rng = random.Random(count)
    jobs = [job for of_size in backlog(NODES, HOURS, rng).values() for job in of_size]
    return [
        JobSpec(
            f"job-{number}",
            Principal(job.user, 1000, 1000),
            PARTITION,
            (job.request,),
            rng.randbytes(32),
            rng.randbytes(32),
            f"/home/{job.user}/run{number}",
            time_limit_s=job.time_limit_us // SECOND_US,
        )
        for number, job in enumerate(rng.sample(jobs, count))
    ]


def hold(count: int) -> Held:
    """Fills this process."""
    core = cluster()
    waiting = specs(count)
    while waiting:
        core.tell(SubmitJobs(tuple(waiting[:JOBS_PER_CALL])))
        del waiting[:JOBS_PER_CALL]
    schedule = Schedule()
    plan = exhaust(plan_slices(core.state, NOW_US, schedule, PlanLimits()))
    planned = len(plan.bookings) + len(plan.placements)
    return Held(rss_mb(os.getpid()), len(core.state.jobs), planned)


def measure(figures: Figures, _directory: Path, *, quick: bool) -> None:
    """rss_15k_jobs_mb."""
    done = subprocess.run(module("benchmarks.plan.memory"), stdout=subprocess.PIPE, check=True)
    held = msgspec.json.decode(done.stdout, type=Held)
    if held.planned != held.jobs:
        raise AssertionError(f"only {held.planned} of {held.jobs} jobs have a place")
    figures.add("rss_15k_jobs_mb", held.rss_mb, "MB", held.jobs)


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(hold(JOBS)).decode() + "\n")
