"""One run of ESP (R-24): the jobs on a system, their applications under a technique, with or without cooperation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import msgspec

from eslurm.core.model.lending import LEVELS
from eslurm.core.model.request import Request
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.queue import Pending
from eslurm.lab.applications import esp
from eslurm.lab.applications.application import Program
from eslurm.lab.applications.batch import BatchLevel
from eslurm.lab.applications.core_lending import CoreLending
from eslurm.lab.applications.paper_model import PaperModel
from eslurm.lab.applications.two_level import Course, Item, Overheads, simulate
from eslurm.lab.applications.unreported import PATIENCE_US
from eslurm.lab.workloads.machine import Machine, uniform
from eslurm.lab.workloads.swf import Record
from eslurm.lab.workloads.workload import Job

PAPER: Final = "paper"
COOPERATION: Final = (*LEVELS, PAPER)
"""The core's levels of cooperation (R-06), and the paper's model of it."""
LIMIT: Final = 1.5
MINUTE_S: Final = 60


class Setting(msgspec.Struct, frozen=True):
    """A configuration of the benchmark. `limit` times the run time under STATIC is what a job asks for.

    The last three are the `Overheads` of a cluster, in seconds.
    """

    application: str
    technique: str
    cooperate: str
    policy: str = "easy"
    nodes: int = esp.HOSTS
    seed: int = esp.SEED
    limit: float = LIMIT
    time_scale: float = 1.0
    task_scale: float = 1.0
    launch_s: float = 0.0
    finish_s: float = 0.0
    report_s: float = 0.0

    @property
    def patience_us(self) -> int:
        """Time for which an application's core is idle before it is reported."""
        return round(PATIENCE_US * self.time_scale)

    @property
    def overheads(self) -> Overheads:
        """The times that a cluster takes for launches, ends and reports."""
        seconds = (self.launch_s, self.finish_s, self.report_s)
        return Overheads(*(round(one * SECOND_US) for one in seconds))


def run(
    setting: Setting,
    *,
    jobs: int | None = None,
    traced: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Course:
    """Run the 230 jobs, or the first `jobs`. Raises `Broken`, and `TechniqueError` for a technique that does not exist."""
    machine = uniform(setting.nodes, 1)
    return simulate(
        items_of(setting, machine)[:jobs],
        machine,
        level_of(setting, machine),
        traced=traced,
        patience_us=setting.patience_us,
        overheads=setting.overheads,
        progress=progress,
    )


def level_of(setting: Setting, machine: Machine) -> BatchLevel:
    """The batch level that the setting asks for."""
    if setting.cooperate == PAPER:
        return PaperModel(machine, setting.policy)
    return CoreLending(machine, setting.policy, setting.cooperate, 0)


def items_of(setting: Setting, machine: Machine) -> list[Item]:
    """The benchmark's jobs with their programs, in the order of their submission."""
    found = []
    for number, arrival in enumerate(esp.arrivals(setting.seed, setting.time_scale), 1):
        category = arrival.category
        costs = esp.costs_of(
            setting.application, category.name, setting.nodes, setting.time_scale, setting.task_scale
        )
        hosts = esp.hosts_of(category, setting.nodes)
        static_s = costs.largest_us(hosts) / SECOND_US
        grain_s = max(MINUTE_S * setting.time_scale, 1.0)
        limit_s = math.ceil(math.ceil(static_s * setting.limit / grain_s) * grain_s)
        found.append(
            Item(
                job_of(number, arrival.submit_us, hosts, limit_s, machine),
                Program(costs, setting.technique),
                category.name,
            )
        )
    return found


def job_of(number: int, submit_us: int, hosts: int, limit_s: int, machine: Machine) -> Job:
    """A job of so many one-core tasks."""
    request = Request(tasks=hosts)
    pending = Pending(
        job_id=number,
        request=request,
        partition=machine.partition,
        time_limit_us=limit_s * SECOND_US,
        submitted_us=submit_us,
        estimate_us=0,
    )
    record = Record(
        number, submit_us // SECOND_US, run_s=0, allocated=hosts, requested=hosts, requested_s=limit_s, user=1
    )
    return Job(pending, record, submit_us, 0, hosts)
