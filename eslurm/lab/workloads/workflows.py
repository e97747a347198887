"""Workflows in a log: a share of its work becomes coupled stages, in one of five forms (D-08).

A job of p processors that ran for r becomes two or three stages that share the p processors: the work stays the same. Each
stage runs for r. Stage i can use its first input `after_us` after the start of stage 0: that is the overlap which the
workflow wants. Its user knows this delay as badly as the run time: the delay that is asked for is longer by the factor
between the time that the job asked for and the time that it ran.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from eslurm.core.model.units import SECOND_US
from eslurm.lab.workloads.workload import Job, Workload, WorkloadError

Mode: TypeAlias = Literal["none", "chain", "changed", "pack", "moved", "het"]
"""Couplings of the stages.

none: the jobs of the log, as they were. chain: each stage waits for the end of the one before. changed: so, until stage 0
lets them start beside it. pack: each starts its delay after stage 0. moved: so, until stage 0 asks for earlier starts.
het: one job of several parts.
"""
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
SAYS_WHEN: Final[frozenset[Mode]] = frozenset({"changed", "moved"})
"""Modes in which stage 0 says when the others can begin."""
PROCESSORS_MIN: Final = 4
RUN_MIN_US: Final = 600 * SECOND_US
"""Smaller and shorter jobs stay as they are."""
SHARES: Final[Mapping[int, tuple[float, ...]]] = MappingProxyType({1: (), 2: (2 / 3,), 3: (1 / 2, 1 / 4)})
"""Share of the processors of each stage but the last, which has the rest."""


class Stage(msgspec.Struct, frozen=True, gc=False):
    """`job` is the number of its job: each stage's own, or the same of all where the workflow is one job.

    `after_us` and `delay_us` count from the start of stage 0: when it can begin, and when its user says that it can.
    """

    job: int
    processors: int
    run_us: int
    after_us: int
    delay_us: int


class Workflow(msgspec.Struct, frozen=True, gc=False):
    """Stages in their order."""

    mode: Mode
    stages: tuple[Stage, ...]

    @property
    def jobs(self) -> tuple[int, ...]:
        """The numbers of its jobs."""
        return tuple(dict.fromkeys([stage.job for stage in self.stages]))

    @property
    def wanted_us(self) -> int:
        """Its length where each stage starts as soon as it can begin."""
        return max(stage.after_us + stage.run_us for stage in self.stages)


class Mixed(msgspec.Struct, frozen=True):
    """A log with workflows. Its jobs have new numbers; `share` of its work is in the workflows."""

    workload: Workload
    workflows: tuple[Workflow, ...]
    share: float


def couple(workload: Workload, share: float, mode: Mode, seed: int = 1) -> Mixed:
    """The log with this share (0 to 1) of its work in workflows; the same jobs for each mode.

    Raises `WorkloadError` when too few of its jobs are large and long enough.
    """
    chosen = _chosen(workload, share, random.Random(seed))
    jobs: list[Job] = []
    workflows: list[Workflow] = []
    coupled = 0
    for job in workload.jobs:
        count = chosen.get(job.pending.job_id, 0)
        if not count:
            jobs.append(_numbered(job, len(jobs) + 1))
            continue
        coupled += _work(job)
        count = 1 if mode == "none" else count
        stages = _stages(job, count, len(jobs) + 1, is_one_job=mode == "het")
        jobs += _jobs_of(job, stages, mode)
        workflows.append(Workflow(mode, stages))
    mixed = Workload(tuple(jobs), workload.notes, workload.kill_at_limit)
    return Mixed(mixed, tuple(workflows), coupled / sum(map(_work, workload.jobs)))


def _chosen(workload: Workload, share: float, random_of: random.Random) -> dict[int, int]:
    """The numbers of the jobs that become workflows, and of how many stages."""
    fit = [job for job in workload.jobs if job.processors >= PROCESSORS_MIN and job.run_us >= RUN_MIN_US]
    random_of.shuffle(fit)
    wanted = share * sum(map(_work, workload.jobs))
    found: dict[int, int] = {}
    done = 0
    for job in fit:
        if done >= wanted:
            return found
        found[job.pending.job_id] = 2 + len(found) % 2
        done += _work(job)
    if done < wanted:
        raise WorkloadError(
            f"--workflows: {share:.0%} of the work is more than its jobs of at least {PROCESSORS_MIN} processors and "
            f"{RUN_MIN_US // SECOND_US} s have ({done / wanted * share:.0%}): ask for less"
        )
    return found


def _work(job: Job) -> int:
    return job.processors * job.run_us


def _stages(job: Job, count: int, number: int, *, is_one_job: bool) -> tuple[Stage, ...]:
    """Its stages, whose jobs are numbered from `number`."""
    # The user's factor: at least 1, for a job that was let run on beyond its limit.
    factor = max(1.0, job.pending.time_limit_us / job.run_us)
    stages: list[Stage] = []
    for at, processors in enumerate(_split(job.processors, count)):
        after_us = job.run_us * at // count // SECOND_US * SECOND_US
        delay_us = int(after_us * factor) // SECOND_US * SECOND_US
        stages.append(
            Stage(number if is_one_job else number + at, processors, job.run_us, after_us, delay_us)
        )
    return tuple(stages)


def _split(processors: int, count: int) -> Iterator[int]:
    left = processors
    for share in SHARES[count]:
        part = max(1, int(processors * share))
        left -= part
        yield part
    yield left


def _jobs_of(job: Job, stages: tuple[Stage, ...], mode: Mode) -> Iterator[Job]:
    if mode != "het":
        for stage in stages:
            request = msgspec.structs.replace(job.pending.request, tasks=stage.processors)
            pending = msgspec.structs.replace(job.pending, job_id=stage.job, request=request)
            yield msgspec.structs.replace(job, pending=pending, processors=stage.processors)
        return
    requests = tuple(
        [msgspec.structs.replace(job.pending.request, tasks=stage.processors) for stage in stages]
    )
    limit_us = stages[-1].delay_us + job.pending.time_limit_us
    pending = msgspec.structs.replace(
        job.pending, job_id=stages[0].job, request=requests[0], time_limit_us=limit_us
    )
    run_us = stages[-1].after_us + job.run_us
    yield msgspec.structs.replace(job, pending=pending, run_us=run_us, requests=requests)


def _numbered(job: Job, number: int) -> Job:
    pending = msgspec.structs.replace(job.pending, job_id=number)
    return msgspec.structs.replace(job, pending=pending)
