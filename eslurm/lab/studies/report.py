"""The outcome of an evaluation: figures at submission and at start, what they cost, predictions as a table, the frontier.

Invariant: the rows of a table of predictions are all jobs that were replayed, in the order of their submission. Those after
the warm-up are the jobs that were scored, so that anyone can find every figure again from the table and the log.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from eslurm.lab.studies.evaluate import Predictions
from eslurm.lab.studies.pictures import Line, Plot
from eslurm.lab.studies.scores import Scores, frontier, score
from eslurm.lab.studies.workload import LoggedJob

Row: TypeAlias = tuple[int, int, int, int, int, int]

COLUMNS: Final = ("job", "issued_at", "p10", "p50", "p90", "estimate")


class At(Enum):
    """Instant of a question about a job."""

    SUBMIT = "submit"
    START = "start"


class Cost(msgspec.Struct, frozen=True):
    """CPU of one replay."""

    trainings: int
    train_s: float
    """Mean of a training; 0 without any."""
    train_max_s: float
    predict_ms: float
    """Mean of a prediction, in batches."""
    cpu_s: float
    """All of it."""


class Outcome(msgspec.Struct, frozen=True):
    """The figures of one estimator."""

    estimator: str
    at_submission: Scores
    at_start: Scores
    cost: Cost


def judge(
    jobs: Sequence[LoggedJob], predictions: Predictions, scored_from: int, target_under: float
) -> Outcome:
    """The figures of the jobs from position `scored_from` on."""
    spent = predictions.spent
    scored = jobs[scored_from:]
    return Outcome(
        predictions.estimator,
        score(scored, predictions.at_submission[scored_from:], target_under),
        score(scored, predictions.at_start[scored_from:], target_under),
        Cost(spent.lessons, spent.per_lesson_s, spent.learn_max_s, spent.per_answer_ms, predictions.cpu_s),
    )


def rows_of(jobs: Sequence[LoggedJob], predictions: Predictions, at: At) -> Iterator[Row]:
    """One row a job, in order of submission: seconds of the log's clock."""
    forecasts = predictions.at_submission if at is At.SUBMIT else predictions.at_start
    for job, forecast in zip(jobs, forecasts, strict=True):
        submitted = job.submitted
        issued_s = submitted.at_s if at is At.SUBMIT else job.start_s
        yield (
            submitted.job_id,
            issued_s,
            forecast.p10_s,
            forecast.p50_s,
            forecast.p90_s,
            forecast.estimate_s,
        )


def write_predictions(path: Path, rows: Iterable[Row]) -> None:
    """A table with the columns `COLUMNS`. Raises `OSError`."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)


def frontier_plots(
    jobs: Sequence[LoggedJob],
    found: Sequence[Predictions],
    scored_from: int,
    target_under: float,
    title: str,
) -> list[Plot]:
    """Accuracy over underestimates under scaling, and where each estimator itself stands: at submission, at start."""
    scored = jobs[scored_from:]
    plots = []
    for name, at in (("at submission", At.SUBMIT), ("at start", At.START)):
        lines = []
        for one in found:
            forecasts = (one.at_submission if at is At.SUBMIT else one.at_start)[scored_from:]
            own = score(scored, forecasts, target_under)
            curve = frontier(scored, forecasts)
            lines.append(Line(one.estimator, [(at.under, at.aea) for at in curve], (own.under, own.aea)))
        plots.append(
            Plot(
                title=f"{title}, {name}",
                note="spots: as estimated; lines: every estimate times one constant",
                x_label="UR: share of jobs underestimated",
                y_label="AEA: mean of min/max of estimate and runtime",
                lines=lines,
                x_range=(0.0, 0.62),
                guides=(target_under,),
            )
        )
    return plots
