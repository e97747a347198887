"""Requests for retries by the server: refused where they would promise what no next attempt can have.

Invariant: a refusal names the option and the way out.
"""

from __future__ import annotations

from eslurm.core.model.job import NO_LIMIT, JobSpec
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.model.retry import RetryRequest
from eslurm.core.model.retry_words import NODE_FAIL, TIMEOUT
from eslurm.core.state.cluster import State


def check_retry(spec: JobSpec, retry: RetryRequest) -> None:
    """Check that a job whose defaults are filled in can have such retries. Raises `Refused`."""
    problem = _problem(spec, retry)
    if problem:
        raise Refused(RefusalCode.INVALID, f"--retry-on: {problem}")


def check_maxima(state: State, spec: JobSpec, retry: RetryRequest) -> None:
    """Check a new job's number of retries and longest time limit; later changes of both count where it is retried."""
    most = state.config.retries_max
    if retry.retries_max > most:
        way_out = f"ask for at most {most}" if most else "leave it out, this site allows none"
        text = f"{retry.retries_max} retries are more than {most} (policy.retries_max): {way_out}"
        raise Refused(RefusalCode.INVALID, f"--retry-on: {text}")
    if 0 < retry.max_time_s < spec.time_limit_s:
        raise Refused(
            RefusalCode.INVALID,
            f"--max-time: {retry.max_time_s} s is less than the time limit of {spec.time_limit_s} s: "
            "give a longer one, or less --time",
        )


def check_in_pack(retry: RetryRequest) -> None:
    """Refuse retries of a pack's job: its jobs are planned with each other's limits, which would grow."""
    raise Refused(
        RefusalCode.INVALID,
        f"--retry-on: {retry}: the jobs of a pack are planned together by their limits, which a retry changes: leave it out",
    )


def _problem(spec: JobSpec, retry: RetryRequest) -> str:
    if TIMEOUT in retry.causes and spec.time_limit_s == NO_LIMIT:
        return "timeout: a job without a time limit never runs into it: give --time, or leave timeout out"
    if NODE_FAIL in retry.causes and not spec.requeue:
        return "node-fail: it would start again, which --no-requeue forbids: leave one of them out"
    if spec.start_at_us:
        return "a fixed start (--start-at) is over when a next attempt could begin: leave one of them out"
    return ""
