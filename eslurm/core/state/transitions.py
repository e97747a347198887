"""Moves of a job and of its attempt that the tables of their states allow."""

from __future__ import annotations

from eslurm.core.model.controller_phases import TRANSITIONS as STAGES
from eslurm.core.model.controller_phases import ControllerPhase, PhaseStage
from eslurm.core.model.job import Attempt, Job
from eslurm.core.model.job_states import (
    ATTEMPT_TRANSITIONS,
    TRANSITIONS,
    AttemptPhase,
    IllegalTransition,
    JobState,
)


def moved(job: Job, state: JobState) -> JobState:
    """`state`, if the table allows the transition."""
    if state is not job.state and state not in TRANSITIONS[job.state]:
        raise IllegalTransition(f"job {job.job_id}: {job.state.value} -> {state.value}")
    return state


def phased(job: Job, attempt: Attempt, phase: AttemptPhase) -> AttemptPhase:
    """`phase`, if the table allows the transition."""
    if phase is not attempt.phase and phase not in ATTEMPT_TRANSITIONS[attempt.phase]:
        raise IllegalTransition(
            f"job {job.job_id} attempt {attempt.number}: {attempt.phase.value} -> {phase.value}"
        )
    return phase


def staged(job: Job, phase: ControllerPhase, stage: PhaseStage) -> PhaseStage:
    """`stage`, if the table allows the transition."""
    if stage not in STAGES[phase.stage]:
        raise IllegalTransition(
            f"job {job.job_id}: controller {phase.name}: {phase.stage.value} -> {stage.value}"
        )
    return stage
