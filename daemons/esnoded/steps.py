"""The two names of a step: the core's (`StepId`) and the runner's (`StepKey`)."""

from __future__ import annotations

from eslurm.core.agent.actions import StepId
from eslurm.ports.step_runner import StepKey


def step_key(step: StepId) -> StepKey:
    """The runner's name for a step."""
    return StepKey(step.job_id, step.attempt, step.step, step.node)


def step_id(key: StepKey) -> StepId:
    """The core's name for a step."""
    return StepId(key.job_id, key.attempt, key.step, key.node)
