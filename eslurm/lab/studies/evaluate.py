"""Evaluation of an estimator on a log: a replay in the order of time, without a look ahead.

A job is asked about when it is submitted and again when it starts. At one instant submissions come first, then starts,
then ends: a question sees only jobs that ended strictly before. Invariant: a prediction depends only on what came before
it in this order; no later job of the log, and no way of batching, changes a bit of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

import msgspec

from eslurm.core.model.forecast import Forecast
from eslurm.estimator.session import BATCH_MAX, Session, Spent
from eslurm.lab.studies.workload import LoggedJob
from eslurm.ports.estimator import Estimator

PROGRESS_EVERY: Final = 256
"""Events between two calls of `progress`."""


class _Kind(IntEnum):
    """Kinds of events, in their order at one instant."""

    SUBMITTED = 0
    STARTED = 1
    ENDED = 2


class _Question(NamedTuple):
    position: int
    at_start: bool


Progress: TypeAlias = Callable[[int, int], None]
"""Told how many of how many jobs have been submitted."""


class EstimatorFailed(Exception):
    """The estimator raised, or broke its contract: the text says where in the log."""


class Predictions(msgspec.Struct, frozen=True):
    """The forecasts of each job of a log, by position, and their cost."""

    estimator: str
    at_submission: tuple[Forecast, ...]
    at_start: tuple[Forecast, ...]
    spent: Spent
    cpu_s: float
    """All of the replay: telling and learning, too."""


def replay(
    jobs: Sequence[LoggedJob],
    estimator: Estimator,
    *,
    label: str = "",
    progress: Progress | None = None,
    batch_max: int = BATCH_MAX,
) -> Predictions:
    """Tells the whole log, in the order of submission, and keeps the answers under a label (default: the estimator's name).

    Raises `EstimatorFailed`.
    """
    at_submission: list[Forecast | None] = [None] * len(jobs)
    at_start: list[Forecast | None] = [None] * len(jobs)

    def deliver(answers: list[tuple[_Question, Forecast]]) -> None:
        for question, forecast in answers:
            (at_start if question.at_start else at_submission)[question.position] = forecast

    session = Session(estimator, deliver, batch_max=batch_max)
    began = time.process_time()
    at_s, job_id, seen = 0, 0, 0
    try:
        for count, (at_s, kind, position) in enumerate(_events(jobs)):
            job = jobs[position]
            job_id = job.submitted.job_id
            if kind == _Kind.SUBMITTED:
                seen += 1
                session.submitted(job.submitted)
                session.ask(_Question(position, False), job_id, at_s)
            elif kind == _Kind.STARTED:
                session.started(job_id, at_s)
                session.ask(_Question(position, True), job_id, at_s)
            else:
                session.ended(job_id, at_s, job.runtime_s)
            if progress is not None and count % PROGRESS_EVERY == 0:
                progress(seen, len(jobs))
        session.flush()
    except Exception as error:
        where = f"at job {job_id}, second {at_s} of the log"
        raise EstimatorFailed(f"estimator {estimator.name}: {where}: {error!r}") from error
    return Predictions(
        label or estimator.name,
        _complete(at_submission),
        _complete(at_start),
        session.spent,
        time.process_time() - began,
    )


def _events(jobs: Sequence[LoggedJob]) -> Iterator[tuple[int, int, int]]:
    """Instant, kind and position, in order."""
    events = [(job.submitted.at_s, int(_Kind.SUBMITTED), position) for position, job in enumerate(jobs)]
    events += [(job.start_s, int(_Kind.STARTED), position) for position, job in enumerate(jobs)]
    events += [(job.end_s, int(_Kind.ENDED), position) for position, job in enumerate(jobs)]
    events.sort()
    return iter(events)


def _complete(found: Sequence[Forecast | None]) -> tuple[Forecast, ...]:
    complete = tuple(one for one in found if one is not None)
    assert len(complete) == len(found)
    return complete
