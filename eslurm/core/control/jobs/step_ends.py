"""Ends of a job's steps on nodes that do not tell of them: nodes that are lost, or that the job has given back."""

from __future__ import annotations

from collections.abc import Collection

from eslurm.core.model import facts
from eslurm.core.model.job import Job
from eslurm.core.state.cluster import State


def without(state: State, job: Job, number: int, why: str) -> list[facts.Fact]:
    """End the job's steps on a lost node. One that waits for it to start its tasks fails there; one that runs there loses
    its connection.
    """
    steps = [state.steps[job.job_id, one] for one in sorted(state.steps_of.get(job.job_id, ()))]
    failed: list[facts.Fact] = [
        facts.StepAnswered(job.job_id, step.step, (), ((number, why),))
        for step in steps
        if number in step.waiting
    ]
    ended = [
        facts.TasksEnded(job.job_id, step.step, (number,), 1)
        for step in steps
        if number in step.holding and number not in step.waiting
    ]
    return [*failed, *ended]


def left(state: State, job_id: int, nodes: Collection[int]) -> list[facts.Fact]:
    """Nothing of the job is left on these nodes, and so nothing of its steps."""
    if job_id not in state.step_use.taken:
        return []
    steps = [state.steps[job_id, number] for number in sorted(state.steps_of.get(job_id, ()))]
    return [
        facts.TasksEnded(job_id, step.step, gone)
        for step in steps
        if (gone := tuple(sorted(step.holding.intersection(nodes))))
    ]
