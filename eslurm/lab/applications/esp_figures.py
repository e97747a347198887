"""The figures of one run of ESP (R-23, R-24)."""

from __future__ import annotations

import msgspec

from eslurm.core.model.units import SECOND_US
from eslurm.lab.applications.esp import TABLE
from eslurm.lab.applications.esp_run import Setting
from eslurm.lab.applications.two_level import Course, Lived


class OfKind(msgspec.Struct, frozen=True):
    """The jobs of one category. Times are means in seconds; `imbalance` is the mean of max / mean (R-22)."""

    category: str
    jobs: int
    wait_s: float
    run_s: float
    imbalance: float


class Figures(msgspec.Struct, frozen=True):
    """Of one run. Times in seconds, shares from 0 to 1."""

    application: str
    technique: str
    cooperate: str
    policy: str
    nodes: int
    seed: int
    jobs: int
    makespan_s: float
    """From the first job's start to the last job's end."""
    utilisation: float
    """Time that cores computed tasks, of all cores' time in the makespan (R-23)."""
    held: float
    """Time that cores were jobs' own or borrowed, each counted once for one job: what a batch system sees."""
    wait_mean_s: float
    wait_max_s: float
    response_mean_s: float
    imbalance: float
    """Mean of the jobs' max / mean."""
    lent_share: float
    """Of the time in tasks: that on cores which another running job owned."""
    borrowed_starts: int
    """Jobs that started on such cores."""
    reports: int
    requests: int
    granted: int
    chunks: int
    cycles: int
    digest: str
    kinds: list[OfKind]


def figures_of(setting: Setting, course: Course) -> Figures:
    """The figures of a run."""
    lived = course.lived
    begin_us = min(one.start_us for one in lived)
    makespan_us = max(one.end_us for one in lived) - begin_us
    capacity_us = course.machine.processors * makespan_us
    return Figures(
        application=setting.application,
        technique=setting.technique,
        cooperate=setting.cooperate,
        policy=setting.policy,
        nodes=setting.nodes,
        seed=setting.seed,
        jobs=len(lived),
        makespan_s=makespan_us / SECOND_US,
        utilisation=course.busy_us / capacity_us,
        held=course.used_us / capacity_us,
        wait_mean_s=sum(one.wait_us for one in lived) / len(lived) / SECOND_US,
        wait_max_s=max(one.wait_us for one in lived) / SECOND_US,
        response_mean_s=sum(one.end_us - one.job.submit_us for one in lived) / len(lived) / SECOND_US,
        imbalance=sum(one.imbalance for one in lived) / len(lived),
        lent_share=course.lent_us / course.busy_us,
        borrowed_starts=sum(one.borrowed > 0 for one in lived),
        reports=course.reports,
        requests=course.requests,
        granted=course.granted,
        chunks=sum(one.chunks for one in lived),
        cycles=course.cycles,
        digest=course.digest,
        kinds=[
            _kind(name, found)
            for name in (category.name for category in TABLE)
            if (found := [one for one in lived if one.kind == name])
        ],
    )


def _kind(name: str, lived: list[Lived]) -> OfKind:
    jobs = len(lived)
    return OfKind(
        name,
        jobs,
        sum(one.wait_us for one in lived) / jobs / SECOND_US,
        sum(one.end_us - one.start_us for one in lived) / jobs / SECOND_US,
        sum(one.imbalance for one in lived) / jobs,
    )
