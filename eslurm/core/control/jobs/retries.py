"""Ends of attempts that the server answers with another attempt, as the job asked (`--retry-on`).

Pure, as `stopping`. The growth of limits is checked as a submission is (`grown_retries`), so it comes as a parameter.
Invariant: an attempt that was cancelled, or that never ran its script, is not retried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from eslurm.core.control.accounts.associations import check_times
from eslurm.core.model.accounts import Reservation
from eslurm.core.model.job import Attempt, Job, JobSpec, StepEnd
from eslurm.core.model.job_states import JobState, StopCause
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.model.retry import Retried
from eslurm.core.model.retry_words import NODE_FAIL, OOM, TIMEOUT
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.boundaries import windows_ahead
from eslurm.core.state.cluster import State

FINALS: Final = {
    TIMEOUT: JobState.TIMEOUT,
    NODE_FAIL: JobState.NODE_FAIL,
    OOM: JobState.OUT_OF_MEMORY,
}
"""Final states of jobs that are not retried any more."""
_FOR_GOOD: Final = frozenset((StopCause.CANCEL, StopCause.EVICT, StopCause.RELEASE))

Growth: TypeAlias = Callable[[State, Job, Attempt, str, int], Retried]
"""The limits of the next attempt after this cause. Raises `Refused` when it may not have them."""


class Verdict(NamedTuple):
    """The fate of a job at the end of an attempt; `why` is for users, empty where its retries have no part in it."""

    outcome: JobState
    why: str = ""
    retry: Retried | None = None


def cause_of(attempt: Attempt, end: StepEnd | None) -> str:
    """The cause of this end of a started attempt, in the words of `--retry-on`; empty: none of them.

    Without an `end` its first node was lost.
    """
    stop = attempt.stop
    if stop is not None and (stop.is_final or stop.cause in _FOR_GOOD):
        return ""
    if end is not None and end.cause == "time_limit":
        return TIMEOUT
    if end is not None and end.cause == OOM:
        return OOM
    if stop is not None:
        return NODE_FAIL if stop.cause is StopCause.NODE_LOST else ""
    return NODE_FAIL if end is None or end.cause in ("orphaned", "lost") else ""


def judged(
    state: State,
    job: Job,
    attempt: Attempt,
    end: StepEnd | None,
    outcome: JobState,
    now_us: int,
    growth: Growth,
) -> Verdict:
    """The verdict on an attempt that would end with this outcome."""
    wish = job.spec.retry
    cause = cause_of(attempt, end) if wish is not None else ""
    if wish is None or cause not in wish.causes:
        return Verdict(outcome)
    used, most = retries_of(job), min(wish.retries_max, state.config.retries_max)
    if used >= most:
        return Verdict(FINALS[cause], f"{cause}: not retried again: {used} of {most} retries are used")
    try:
        retry = growth(state, job, attempt, cause, now_us)
    except Refused as refused:
        return Verdict(FINALS[cause], f"{cause}: not retried: {refused.text}")
    words = f"{cause}: retried ({used + 1} of {most}){_asked(retry)}"
    return Verdict(JobState.PENDING, words, retry)


def unchanged(state: State, job: Job, attempt: Attempt, cause: str, now_us: int) -> Retried:
    """The next attempt after a failure of its nodes, which was no fault of its limits: it asks for the same."""
    check_still_possible(state, job.spec, now_us)
    return Retried(cause)


def check_still_possible(state: State, spec: JobSpec, now_us: int) -> None:
    """Check that a next attempt can end before the job's deadline and in its reservation. Raises `Refused`."""
    check_times(state, spec, now_us)
    found = state.policies["reservation"].get(spec.reservation)
    if not isinstance(found, Reservation):
        return
    limit_us = spec.time_limit_s * SECOND_US
    ahead = windows_ahead(state.calendar, found.validity, now_us)
    if not any(until_us - max(from_us, now_us) >= limit_us for from_us, until_us in ahead):
        raise Refused(
            RefusalCode.INFEASIBLE,
            f"--reservation: '{found.name}' is not open for {spec.time_limit_s} s any more",
        )


def retries_of(job: Job) -> int:
    """Number of retries that the job had."""
    return job.retry.count if job.retry is not None else 0


def _asked(retry: Retried) -> str:
    words = ""
    if retry.time_limit_s:
        by = " by its estimate" if retry.is_estimated else ""
        words = f", with a time limit of {retry.time_limit_s} s{by}"
    return f"{words}, with more memory" if retry.memory_mib else words
