"""How attempts come to their end: stopped on request, ended by themselves, or lost with a node.

Each function is pure: it looks at one job and returns the facts that follow.
"""

from __future__ import annotations

from eslurm.core import facts
from eslurm.core.cluster import SECOND_US, State
from eslurm.core.job.model import Attempt, Job, StepEnd, Stop
from eslurm.core.job.states import AttemptPhase, JobState, StopCause

BACKOFF_MAX_S = 60.0
WEIGHT = {
    StopCause.NODE_LOST: 0,
    StopCause.LAUNCH_FAILED: 0,
    StopCause.PREEMPT: 1,
    StopCause.REQUEUE: 1,
    StopCause.CANCEL: 2,
}
"""Which cause decides the outcome when an attempt is told to end twice: people over machines, an end over a requeue."""


def requeue_or_fail(job: Job) -> JobState:
    """What a job becomes that lost its attempt through no fault of its own."""
    return JobState.PENDING if job.spec.requeue else JobState.NODE_FAIL


def stopped_outcome(job: Job, cause: StopCause) -> JobState:
    """The outcome of an attempt that was told to end."""
    if cause is StopCause.CANCEL:
        return JobState.CANCELLED
    if cause is StopCause.NODE_LOST:
        return requeue_or_fail(job)
    return JobState.PENDING


def outcome_of(job: Job, attempt: Attempt, end: StepEnd) -> JobState:
    """The outcome of an attempt whose batch script ended so."""
    if end.cause == "time_limit":
        return JobState.TIMEOUT
    if attempt.stop is not None:
        return stopped_outcome(job, attempt.stop.cause)
    if end.cause in ("orphaned", "lost"):
        return requeue_or_fail(job)
    return JobState.COMPLETED if end.exit_code == 0 and end.signal == 0 else JobState.FAILED


def retry_at_us(state: State, job: Job, now_us: int) -> int:
    """Not before this may the job be launched again: the delay doubles with each failed launch."""
    delay_s = min(state.config.requeue_delay_s * (2.0 ** min(job.launch_failures, 16)), BACKOFF_MAX_S)
    return now_us + int(delay_s * SECOND_US)


def ended(
    state: State,
    job: Job,
    attempt: Attempt,
    now_us: int,
    *,
    outcome: JobState,
    end: StepEnd | None = None,
    released: tuple[int, ...] = (),
    text: str = "",
    avoid: tuple[int, ...] = (),
    residue: bool = False,
) -> facts.AttemptEnded:
    """The attempt is over; a job that waits again does so for its retry delay."""
    not_before_us = retry_at_us(state, job, now_us) if outcome is JobState.PENDING else 0
    return facts.AttemptEnded(
        job.job_id, attempt.number, outcome, end, released, avoid, not_before_us, text, residue
    )


def stop(state: State, job: Job, cause: StopCause, now_us: int, by: str) -> list[facts.Fact]:
    """Tell the job's attempt to end."""
    attempt = job.attempt
    if attempt is None:
        return []
    if attempt.phase is AttemptPhase.RELEASING:
        if cause is StopCause.CANCEL and job.outcome is JobState.PENDING:
            return [facts.JobFinished(job.job_id, JobState.CANCELLED, f"cancelled by {by}")]
        return []
    if attempt.phase is AttemptPhase.PREPARING and len(attempt.spans) > 1:
        # The script cannot have run: nothing to wait for but the nodes' release.
        outcome = stopped_outcome(job, cause)
        residue = outcome is JobState.PENDING
        return [
            ended(
                state, job, attempt, now_us, outcome=outcome, text=f"{cause.value} by {by}", residue=residue
            )
        ]
    if attempt.stop is not None and WEIGHT[attempt.stop.cause] >= WEIGHT[cause]:
        return []
    return [facts.StopRequested(job.job_id, attempt.number, Stop(cause, now_us, by))]


def node_gone(
    state: State, job: Job, attempt: Attempt, number: int, now_us: int, why: str
) -> list[facts.Fact]:
    """The attempt's part on this node is certainly over, though nobody reported how it ended."""
    if number not in attempt.held:
        return []
    if attempt.phase is AttemptPhase.RELEASING or attempt is not job.attempt:
        return [facts.NodesReleased(job.job_id, attempt.number, (number,))]
    if attempt.phase is AttemptPhase.PREPARING and len(attempt.spans) > 1:
        outcome = JobState.PENDING if attempt.stop is None else stopped_outcome(job, attempt.stop.cause)
        return [
            ended(
                state,
                job,
                attempt,
                now_us,
                outcome=outcome,
                released=(number,),
                text=why,
                avoid=(number,),
                residue=outcome is JobState.PENDING,
            )
        ]
    if number == attempt.first:
        outcome = requeue_or_fail(job) if attempt.stop is None else stopped_outcome(job, attempt.stop.cause)
        return [ended(state, job, attempt, now_us, outcome=outcome, released=(number,), text=why)]
    released = facts.NodesReleased(job.job_id, attempt.number, (number,))
    return [released, *stop(state, job, StopCause.NODE_LOST, now_us, why)]
