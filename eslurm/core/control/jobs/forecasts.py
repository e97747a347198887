"""Forecasts of an estimator, checked and turned into a fact: advice to plans, never a limit.

Invariant: nothing here starts, ends or delays a job; an estimator that is dead, slow or wrong changes plans and nothing
else, except, within bounds that a job has set, the limit of its next attempt (`grown_retries`). A forecast of a waiting
array is its tasks' too, from their starts on.
"""

from __future__ import annotations

from typing import Final

from eslurm.core.control.rights import is_operator
from eslurm.core.model import facts
from eslurm.core.model.forecast import LONGEST_S, Forecast
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.messages import Changed, RefusalCode, Refused, SetForecasts
from eslurm.core.state.cluster import State

FORECASTS_MAX: Final = 500
"""Forecasts in one message: each changes a record and a row, and holds the loop meanwhile."""
MODEL_NAME_MAX: Final = 64


def on_forecasts(state: State, message: SetForecasts) -> tuple[list[facts.Fact], Changed]:
    """Store expected runtimes; the answer counts the jobs with a new one.

    Unknown and ended jobs are skipped: the estimator will hear of their ends. Raises `Refused` for all of them when one
    forecast is invalid, and for callers that are no operators.
    """
    if not is_operator(state, message.by) and message.by.scope != "estimator":
        raise Refused(
            RefusalCode.DENIED, f"{message.by.name} is no operator: only they say how long jobs will run"
        )
    if len(message.forecasts) > FORECASTS_MAX:
        raise Refused(
            RefusalCode.INVALID,
            f"forecasts: {len(message.forecasts)} in one message are more than {FORECASTS_MAX}: send them in parts",
        )
    if len(message.model) > MODEL_NAME_MAX:
        raise Refused(
            RefusalCode.INVALID,
            f"model: its name has {len(message.model)} characters, at most {MODEL_NAME_MAX} are possible",
        )
    for job_id, forecast in message.forecasts:
        _check(job_id, forecast)
    # Of two about the same job the later one counts.
    new = tuple(
        (job_id, forecast)
        for job_id, forecast in dict(message.forecasts).items()
        if (job := state.find_job(job_id)) is not None and _is_open(job) and job.forecast != forecast
    )
    return [facts.JobsForecast(new, message.model)] if new else [], Changed(len(new))


def _is_open(job: Job) -> bool:
    """Check whether the runtime is still unknown."""
    return job.state not in FINAL and job.outcome in (None, JobState.PENDING)


def _check(job_id: int, forecast: Forecast) -> None:
    if not 1 <= forecast.p10_s <= forecast.p50_s <= forecast.p90_s <= LONGEST_S:
        raise Refused(
            RefusalCode.INVALID,
            f"forecast of job {job_id}: P10 {forecast.p10_s} s, P50 {forecast.p50_s} s, P90 {forecast.p90_s} s: "
            f"give three that do not fall, within 1..{LONGEST_S}",
        )
    if not 1 <= forecast.estimate_s <= LONGEST_S:
        raise Refused(
            RefusalCode.INVALID,
            f"forecast of job {job_id}: an estimate of {forecast.estimate_s} s is not within 1..{LONGEST_S}",
        )
