"""Common rules of all ways to end an attempt: the nodes waited for, the grace, and the job's next state."""

from __future__ import annotations

from eslurm.core.model.job import Job, Stop
from eslurm.core.model.job_states import FINAL, JobState, StopCause
from eslurm.core.state.cluster import State

MAKING_ROOM = frozenset({StopCause.PREEMPT, StopCause.EVICT})
"""Causes for which another job waits for the nodes."""


def requeue_or_fail(job: Job) -> JobState:
    """State of a job that lost its attempt through no fault of its own."""
    return JobState.PENDING if job.spec.requeue else JobState.NODE_FAIL


def settled_outcome(job: Job) -> JobState | None:
    """The final state of a job as soon as it is known."""
    if job.state in FINAL:
        return job.state
    if job.state is JobState.COMPLETING and job.outcome is not JobState.PENDING:
        return job.outcome
    return None


def grace_s(state: State, stop: Stop) -> float:
    """Seconds between the signal that asks an attempt to end and the kill; the same for all ways to end it."""
    return stop.grace_s if stop.grace_s >= 0 else state.config.kill_grace_s
