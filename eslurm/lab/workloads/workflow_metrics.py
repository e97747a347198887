"""Figures of the workflows in a run, and of the jobs beside them (D-08)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from eslurm.core.model.units import SECOND_US
from eslurm.lab.workloads.loop import Ran, Result
from eslurm.lab.workloads.metrics import area_us, percentile, slowdown
from eslurm.lab.workloads.workflows import Mode, Stage, Workflow


class WorkflowMetrics(msgspec.Struct, frozen=True):
    """Of one run in one mode. Times in seconds, means over workflows; shares from 0 to 1."""

    mode: Mode
    policy: str
    workflows: int
    response_s: float
    """From the submission to the end of the last stage."""
    wait_s: float
    """From the submission to the start of the first stage."""
    makespan_s: float
    """From the start of the first stage to the end of the last."""
    stretch: float
    """Mean of makespan / length with each stage at the instant at which it can begin."""
    overlapped: float
    """Share of the later stages that started before the first had ended."""
    late_s: float
    """Mean time between the instant at which a later stage could begin and its start."""
    late_p95_s: float
    exact: float
    """Share of the later stages that started the delay that was asked for after the first (D-04); 1 without delays."""
    idle_share: float
    """Processor time held by workflows without use, of all that they held."""
    used: float
    """Processor time used by all jobs, of all from the first submission to the last end."""
    other_wait_s: float
    """Mean wait of the jobs beside the workflows."""
    other_slowdown: float
    """Their mean bounded slowdown."""


def measure_workflows(result: Result, workflows: Sequence[Workflow], mode: Mode) -> WorkflowMetrics:
    """The figures of a run; workflows of which a job never ran are left out."""
    ran = {one.job.pending.job_id: one for one in result.ran}
    done = [one for one in workflows if all(number in ran for number in one.jobs)]
    inside = {number for one in workflows for number in one.jobs}
    others = [one for one in result.ran if one.job.pending.job_id not in inside]
    begin_us = min(one.job.submit_us for one in result.ran)
    capacity_us = result.machine.processors * (max(one.end_us for one in result.ran) - begin_us)
    held_us = sum(area_us(ran[number]) for one in done for number in one.jobs)
    idle_us = sum(_idle_us(one, ran) for one in done)
    lates_us = sorted(late_us for one in done for late_us in _lates_us(one, ran))
    waits_us = [ran[one.jobs[0]].wait_us for one in done]
    spans_us = [_end_us(one, ran) - ran[one.jobs[0]].start_us for one in done]
    return WorkflowMetrics(
        mode=mode,
        policy=result.policy,
        workflows=len(done),
        response_s=_mean_s([wait + span for wait, span in zip(waits_us, spans_us, strict=True)]),
        wait_s=_mean_s(waits_us),
        makespan_s=_mean_s(spans_us),
        stretch=_mean([span / one.wanted_us for span, one in zip(spans_us, done, strict=True)]),
        overlapped=_mean([_overlaps(one, stage, ran) for one in done for stage in one.stages[1:]]),
        late_s=_mean_s(lates_us),
        late_p95_s=percentile(lates_us, 0.95) / SECOND_US if lates_us else 0.0,
        exact=_mean([is_exact for one in done for is_exact in _exact(one, ran)]),
        idle_share=idle_us / held_us if held_us else 0.0,
        used=(sum(map(area_us, result.ran)) - idle_us) / capacity_us,
        other_wait_s=_mean_s([one.wait_us for one in others]),
        other_slowdown=_mean([slowdown(one) for one in others]),
    )


def _starts_us(workflow: Workflow, ran: Mapping[int, Ran]) -> list[int]:
    """The start of work of each stage: in one job a stage begins when it can."""
    first_us = ran[workflow.jobs[0]].start_us
    if workflow.mode == "het":
        return [first_us + stage.after_us for stage in workflow.stages]
    return [ran[stage.job].start_us for stage in workflow.stages]


def _end_us(workflow: Workflow, ran: Mapping[int, Ran]) -> int:
    return max(ran[number].end_us for number in workflow.jobs)


def _lates_us(workflow: Workflow, ran: Mapping[int, Ran]) -> list[int]:
    """Of each later stage: its start, against the instant at which it could begin."""
    starts_us = _starts_us(workflow, ran)
    return [
        start_us - starts_us[0] - stage.after_us
        for stage, start_us in zip(workflow.stages[1:], starts_us[1:], strict=True)
    ]


def _exact(workflow: Workflow, ran: Mapping[int, Ran]) -> list[bool]:
    if workflow.mode != "pack":
        return [True for _ in workflow.stages[1:]]
    first_us, *later_us = _starts_us(workflow, ran)
    stages = workflow.stages[1:]
    return [at_us - first_us == stage.delay_us for at_us, stage in zip(later_us, stages, strict=True)]


def _overlaps(workflow: Workflow, stage: Stage, ran: Mapping[int, Ran]) -> bool:
    at = workflow.stages.index(stage)
    first = ran[workflow.jobs[0]]
    first_end_us = first.start_us + workflow.stages[0].run_us if workflow.mode == "het" else first.end_us
    return _starts_us(workflow, ran)[at] < first_end_us


def _idle_us(workflow: Workflow, ran: Mapping[int, Ran]) -> int:
    """Processor time that its stages hold beyond their runs."""
    if workflow.mode != "het":
        return 0
    stay_us = ran[workflow.jobs[0]].run_us
    return sum(stage.processors * max(0, stay_us - stage.run_us) for stage in workflow.stages)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _mean_s(values: Sequence[int]) -> float:
    return _mean(values) / SECOND_US
