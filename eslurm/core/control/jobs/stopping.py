"""Ends of attempts: stopped on request, ended by themselves, or lost with a node.

Each function is pure: it examines one job and returns the facts that follow.
"""

from __future__ import annotations

from eslurm.core.control.jobs.cron_times import again_us
from eslurm.core.control.jobs.growing import failed as growth_failed
from eslurm.core.control.jobs.retries import judged, unchanged
from eslurm.core.control.jobs.step_ends import without
from eslurm.core.control.jobs.times import retry_at_us
from eslurm.core.model import facts
from eslurm.core.model.job import Attempt, Job, StepEnd, Stop
from eslurm.core.model.job_states import FINAL, AttemptPhase, JobState, StopCause
from eslurm.core.model.retry import Retried
from eslurm.core.model.retry_words import OOM
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State
from eslurm.core.state.endings import MAKING_ROOM, requeue_or_fail

AVOID_FIRST_S = 15
AVOID_MAX_S = 600
"""Time for which another attempt avoids the nodes of a failed launch: initial, doubled with each failure, at most this."""
AGAIN_OR_LOST = frozenset({JobState.PENDING, JobState.NODE_FAIL})
_REPEATED = FINAL - {JobState.CANCELLED}
"""Outcomes after which a job of a crontab waits for its next time."""
WEIGHT = {
    StopCause.NODE_LOST: 0,
    StopCause.LAUNCH_FAILED: 0,
    StopCause.PREEMPT: 1,
    StopCause.EVICT: 1,
    StopCause.REQUEUE: 1,
    StopCause.RELEASE: 2,
    StopCause.CANCEL: 2,
}
"""Precedence of causes when an attempt is stopped twice: users over machines, an end over a requeue."""


def stopped_outcome(job: Job, cause: StopCause, exit_code: int = 0) -> JobState:
    """The outcome of an attempt that was stopped; of a release by the exit code of its command."""
    if cause is StopCause.CANCEL:
        return JobState.CANCELLED
    if cause is StopCause.RELEASE:
        return JobState.FAILED if exit_code else JobState.COMPLETED
    if cause is StopCause.NODE_LOST:
        return requeue_or_fail(job)
    if cause is StopCause.EVICT or (cause is StopCause.PREEMPT and not job.spec.requeue):
        return JobState.PREEMPTED
    return JobState.PENDING


def ended_by(job: Job, stop: Stop) -> JobState:
    """The outcome of an attempt by its stop."""
    return stopped_outcome(job, stop.cause, stop.exit_code)


def stop_text(cause: StopCause, by: str) -> str:
    """The cause of a stop, for users: `cancel by alice`, `preempted to make room for job 17`; of a release there is none."""
    if cause is StopCause.RELEASE:
        return ""
    return f"preempted {by}" if cause in MAKING_ROOM else f"{cause.value} by {by}"


def outcome_of(job: Job, attempt: Attempt, end: StepEnd) -> JobState:
    """The outcome of an attempt with this end of its batch script."""
    if end.cause == "time_limit":
        return JobState.TIMEOUT
    if attempt.stop is not None:
        return ended_by(job, attempt.stop)
    if end.cause == OOM:
        return JobState.OUT_OF_MEMORY
    if end.cause in ("orphaned", "lost"):
        return requeue_or_fail(job)
    return JobState.COMPLETED if end.exit_code == 0 and end.signal == 0 else JobState.FAILED


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
    blamed: tuple[int, ...] = (),
    not_before_us: int = 0,
    retry: Retried | None = None,
) -> facts.AttemptEnded:
    """End the attempt; a job that returns to the queue waits for its retry delay, and avoids nodes for a longer one.

    `not_before_us` is when it may start again instead; gateway daemons of it may run, so every node must confirm its end.
    """
    repeats_us = again_us(state, job, attempt, now_us) if outcome in _REPEATED else 0
    if repeats_us:
        outcome, not_before_us = JobState.PENDING, repeats_us
    if outcome is JobState.PENDING:
        not_before_us = not_before_us or retry_at_us(state, job, now_us)
    phase = attempt.controller
    # The next prolog on the controller's host does not overtake the last epilog.
    residue = residue and attempt.gateway is None and (phase is None or not phase.owes_epilog)
    return facts.AttemptEnded(
        job.job_id,
        attempt.number,
        outcome,
        end,
        released,
        avoid,
        not_before_us,
        text,
        residue,
        avoid_until_us=_avoid_until_us(job, now_us) if avoid else 0,
        blamed=blamed,
        retry=retry,
    )


def _avoid_until_us(job: Job, now_us: int) -> int:
    pause_s = min(AVOID_FIRST_S << min(job.launch_failures, 16), AVOID_MAX_S)
    return now_us + pause_s * SECOND_US


def stop(
    state: State,
    job: Job,
    cause: StopCause,
    now_us: int,
    by: str,
    grace_s: float = -1.0,
    exit_code: int = 0,
) -> list[facts.Fact]:
    """End the job's attempt: SIGTERM (resumed if suspended), `grace_s` later SIGKILL (-1: the site's).

    `exit_code` is that of a release.
    """
    attempt = job.attempt
    if attempt is None:
        return []
    if attempt.phase in (AttemptPhase.RELEASING, AttemptPhase.SETTLING):
        if cause is StopCause.CANCEL and job.outcome is JobState.PENDING:
            return [facts.JobFinished(job.job_id, JobState.CANCELLED, f"cancelled by {by}")]
        return []
    if attempt.awaits_prolog:
        text = stop_text(cause, by)
        return [withdrawn(state, job, attempt, now_us, stopped_outcome(job, cause), text)]
    if attempt.phase is AttemptPhase.PREPARING and attempt.prepares_first:
        # The script cannot have run: nothing to wait for but the nodes' release.
        outcome = stopped_outcome(job, cause)
        residue = outcome is JobState.PENDING
        text = stop_text(cause, by)
        return [ended(state, job, attempt, now_us, outcome=outcome, text=text, residue=residue)]
    if attempt.stop is not None and WEIGHT[attempt.stop.cause] >= WEIGHT[cause]:
        return []
    if attempt.stop is not None and attempt.stop.is_final and stopped_outcome(job, cause) is JobState.PENDING:
        return []
    return _told(job, attempt, cause, now_us, by, grace_s, exit_code=exit_code)


def withdrawn(
    state: State,
    job: Job,
    attempt: Attempt,
    now_us: int,
    outcome: JobState,
    text: str,
    avoid: tuple[int, ...] = (),
) -> facts.AttemptEnded:
    """End an attempt of which no node has heard: all of them are free at once."""
    nodes = tuple(attempt.nodes)
    return ended(state, job, attempt, now_us, outcome=outcome, released=nodes, text=text, avoid=avoid)


def _told(
    job: Job,
    attempt: Attempt,
    cause: StopCause,
    now_us: int,
    by: str,
    grace_s: float = -1.0,
    *,
    is_final: bool = False,
    exit_code: int = 0,
) -> list[facts.Fact]:
    told = Stop(cause, now_us, by, grace_s=grace_s, is_final=is_final, exit_code=exit_code)
    return [facts.StopRequested(job.job_id, attempt.number, told)]


def node_gone(
    state: State, job: Job, attempt: Attempt, number: int, now_us: int, why: str, *, is_silent: bool = False
) -> list[facts.Fact]:
    """End the attempt's part on this node without a report of its end.

    A node that `is_silent` ends only requeueable attempts by itself: a job that is not requeueable never starts again
    after that, even on request. A job with `no_kill` goes on without any node but its first.
    """
    if number not in attempt.held:
        return []
    may_run_on = is_silent and not job.spec.requeue
    if attempt.phase is AttemptPhase.RELEASING or attempt is not job.attempt:
        gone = facts.NodesReleased(job.job_id, attempt.number, (number,))
        if may_run_on and attempt is job.attempt and job.outcome is JobState.PENDING:
            # Its script has ended, but steps of it may run here.
            return [facts.JobFinished(job.job_id, JobState.NODE_FAIL, why), gone]
        return [gone]
    if attempt.awaits_prolog:
        return [withdrawn(state, job, attempt, now_us, JobState.PENDING, why, (number,))]
    if attempt.phase is AttemptPhase.PREPARING and attempt.prepares_first:
        outcome = JobState.PENDING if attempt.stop is None else ended_by(job, attempt.stop)
        if may_run_on and outcome is JobState.PENDING and attempt.gateway is not None:
            # Its script has not begun, but its gateways, or the program that writes their routes, may run there.
            outcome = JobState.NODE_FAIL
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
    if number in attempt.joining and attempt.stop is None:
        # None of its steps is there: the job goes on, and its growth is tried elsewhere.
        gone = facts.NodesReleased(job.job_id, attempt.number, (number,))
        return [*growth_failed(state, job, attempt, now_us, (), why), gone]
    if number == attempt.first:
        outcome = requeue_or_fail(job) if attempt.stop is None else ended_by(job, attempt.stop)
        if may_run_on and outcome is JobState.PENDING:
            outcome = JobState.NODE_FAIL
        verdict = judged(state, job, attempt, None, outcome, now_us, unchanged)
        why = "; ".join(filter(None, (why, verdict.why)))
        outcome, retry = verdict.outcome, verdict.retry
        return [
            ended(state, job, attempt, now_us, outcome=outcome, released=(number,), text=why, retry=retry)
        ]
    released = facts.NodesReleased(job.job_id, attempt.number, (number,))
    if number in attempt.leaving:
        # The job has given it back: it only waited for what was left there.
        lost = facts.NodesLost(job.job_id, attempt.number, (number,), why)
        return [released, *([lost] if may_run_on else ()), *without(state, job, number, why)]
    if job.spec.no_kill and attempt.stop is None:
        lost = facts.NodesLost(job.job_id, attempt.number, (number,), why)
        return [released, lost, *without(state, job, number, why)]
    if may_run_on and (attempt.stop is None or ended_by(job, attempt.stop) in AGAIN_OR_LOST):
        return [released, *_told(job, attempt, StopCause.NODE_LOST, now_us, why, is_final=True)]
    return [released, *stop(state, job, StopCause.NODE_LOST, now_us, why)]
