"""`eslurm estimate`: how well running times are predicted.

Only parsing, checking and rendering; the work is `eslurm.estimator`. Results go to standard output; what was odd in a log,
and how far a run is, to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from escli import exits
from escli.errors import unusable
from escli.lab.estimate_inputs import (
    WARM_UP_JOBS,
    made,
    read,
    replayed,
    tell,
    warm_up,
    write,
)
from escli.lab.estimate_report import report as report_on_accounting
from escli.lab.estimate_study import study
from escli.lab.estimate_table import Judged, as_json, as_text
from escli.lab.outputs import check_picture, check_place

if TYPE_CHECKING:
    from eslurm.lab.studies.evaluate import Predictions
    from eslurm.ports.estimator import Estimator, Setting

TARGET_UNDER: Final = 0.10
ALL: Final = "all"
BY_DEFAULT: Final = ("user", "last-2", "history")
_FILE = click.Path(path_type=Path, dir_okay=False)


class Candidate(msgspec.Struct, frozen=True):
    """An estimator with settings, as it was written."""

    text: str
    name: str
    settings: dict[str, Setting]


class Asked(msgspec.Struct, frozen=True):
    """The command line of `evaluate`, read."""

    trace: Path
    candidates: tuple[Candidate, ...]
    first: int
    jobs_max: int
    warm_up_jobs: int | None
    target_under: float
    at: str
    predictions: Path | None
    picture: Path | None
    as_json: bool


@click.group(
    short_help="How well running times can be told in advance.",
    invoke_without_command=True,
    no_args_is_help=False,
    subcommand_metavar="COMMAND [ARGS]...",
)
@click.pass_context
def estimate(context: click.Context) -> int:
    """Judge estimators of running times: on the log of a real machine, or on this cluster's own accounting.

    \b
    eslurm estimate report                   your jobs here: how good limits and forecasts were
    eslurm estimate evaluate site.swf.gz     a log of your machine: which estimator would be best
    eslurm estimate study site.swf.gz        how far limits are off, and how jobs repeat, as pictures
    """
    if context.invoked_subcommand is None:
        sys.stderr.write(context.get_help() + "\n")
        return exits.USAGE
    return exits.OK


@estimate.command(short_help="Replay a log and score what estimators would have said.")
@click.argument("trace", type=_FILE)
@click.option(
    "--estimator",
    "names",
    metavar="NAME[:KEY=VALUE]...",
    multiple=True,
    help="user, last-2, clustered-svr, history, an installed one, or all; settings after colons; "
    f"may be repeated, or separated by commas (default: {','.join(BY_DEFAULT)}).",
)
@click.option(
    "--from",
    "first",
    type=click.IntRange(0),
    default=0,
    metavar="JOB",
    help="Begin with the job at this position of the log (default 0); those before are not looked at.",
)
@click.option(
    "--jobs",
    "jobs_max",
    type=click.IntRange(1),
    metavar="N",
    help="Replay N jobs in all, those of the warm-up included (default: all).",
)
@click.option(
    "--warm-up",
    "warm_up_jobs",
    type=click.IntRange(0),
    metavar="N",
    help=f"The first N of the replayed jobs only teach (default {WARM_UP_JOBS:,}, or half of a short log; 0 scores all).",
)
@click.option(
    "--target-ur",
    "target_under",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=TARGET_UNDER,
    show_default=True,
    metavar="SHARE",
    help="The share of jobs that may be underestimated: history aims at it, the others are scaled to it.",
)
@click.option(
    "--at",
    type=click.Choice(["submit", "start"]),
    default="submit",
    show_default=True,
    help="Which predictions to write: as the job was submitted, or as it started.",
)
@click.option(
    "--predictions",
    metavar="OUT.csv",
    type=_FILE,
    help="Write the prediction of every replayed job, the warm-up first: columns job,issued_at,p10,p50,p90,estimate, "
    "seconds of the log's clock (several estimators: OUT-NAME.csv each).",
)
@click.option(
    "--picture",
    metavar="OUT.png",
    type=_FILE,
    help="Draw accuracy over underestimates (.png or .svg; needs matplotlib).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def evaluate(
    trace: Path,
    names: tuple[str, ...],
    first: int,
    jobs_max: int | None,
    warm_up_jobs: int | None,
    target_under: float,
    at: str,
    predictions: Path | None,
    picture: Path | None,
    as_json: bool,
) -> int:
    """Replay TRACE, a log in the Standard Workload Format (plain or gzip), and score what estimators would have said.

    Each job is asked about when it was submitted and again when it started; an estimator knows only what had happened by
    then, and only jobs that had ended before. Jobs count by their position in the log, without those that cannot be used
    (which are told), and are replayed in order of submission.

    \b
    AEA       mean of min/max of estimate and runtime          UR        share of jobs with estimate < runtime
    MAE       mean error                                       P10-P90   share of jobs that ended within the interval
    AREA_AEA  AEA, each job counted by its processor time
    SCALED    each estimate times the best constant in hindsight that brings UR to --target-ur, and the AEA then

    \b
    eslurm estimate evaluate KTH.swf.gz
    eslurm estimate evaluate KTH.swf.gz --estimator all --picture kth.png
    eslurm estimate evaluate KTH.swf.gz --estimator clustered-svr:gate=0:alpha=1.02
    eslurm estimate evaluate CTC.swf.gz --from 20000 --jobs 30000 --estimator history --predictions ctc.csv
    """
    asked = Asked(
        trace=trace,
        candidates=_candidates(names),
        first=first,
        jobs_max=jobs_max or 0,
        warm_up_jobs=warm_up_jobs,
        target_under=target_under,
        at=at,
        predictions=predictions,
        picture=picture,
        as_json=as_json,
    )
    return _evaluate(asked)


def _evaluate(asked: Asked) -> int:
    from eslurm.lab.studies import pictures, report

    _check_outputs(asked)
    estimators = [(one.text, _made(one, asked.target_under)) for one in asked.candidates]
    log = read(asked.trace, asked.first, asked.jobs_max)
    scored_from = _scored_from(asked.warm_up_jobs, len(log.jobs))
    tell(log.notes)
    found: list[Predictions] = []
    outcomes = []
    for label, estimator in estimators:
        predictions = replayed(log.jobs, estimator, label)
        outcomes.append(report.judge(log.jobs, predictions, scored_from, asked.target_under))
        if asked.predictions is not None:
            path = _table_path(asked.predictions, label, len(estimators))
            rows = report.rows_of(log.jobs, predictions, report.At(asked.at))
            write(path, partial(report.write_predictions, rows=rows))
        if asked.picture is not None:
            found.append(predictions)
    if asked.picture is not None:
        plots = report.frontier_plots(log.jobs, found, scored_from, asked.target_under, asked.trace.name)
        write(asked.picture, partial(pictures.draw, plots=plots))
    judged = Judged(
        asked.trace.name,
        asked.first,
        len(log.jobs),
        scored_from,
        asked.target_under,
        log.notes,
        tuple(outcomes),
    )
    sys.stdout.write(as_json(judged) if asked.as_json else as_text(judged))
    return exits.OK


def _candidates(given: Sequence[str]) -> tuple[Candidate, ...]:
    """The estimators with these names, each once. Raises an error for unknown ones."""
    from eslurm.estimator import registry

    words = [word.strip() for text in given for word in text.split(",")] or list(BY_DEFAULT)
    every = (*registry.names(), *registry.VARIANTS)
    texts = dict.fromkeys(text for word in words for text in (every if word == ALL else (word,)))
    try:
        return tuple(Candidate(text, *registry.parse(text)) for text in texts)
    except registry.UnknownEstimator as error:
        raise unusable(f"--estimator: {error}") from None


def _made(candidate: Candidate, target_under: float) -> Estimator:
    from eslurm.estimator import registry

    aim: dict[str, Setting] = {}
    if candidate.name in registry.AIMING and target_under != TARGET_UNDER:
        aim = {registry.AIM: target_under}
    return made(candidate.name, {**aim, **candidate.settings}, "--target-ur" if aim else "--estimator")


def _scored_from(given: int | None, jobs: int) -> int:
    """The position of the first job that is scored."""
    if given is None:
        return warm_up(jobs)
    if given >= jobs:
        raise unusable(
            f"--warm-up: {given}: only {jobs} jobs are replayed: at least one must be left to score"
        )
    return given


def _table_path(path: Path, label: str, estimators: int) -> Path:
    from eslurm.estimator.registry import slug

    return path if estimators == 1 else path.with_name(f"{path.stem}-{slug(label)}{path.suffix}")


def _check_outputs(asked: Asked) -> None:
    """Check before a run of minutes whether its result can be written."""
    for option, path in (("--predictions", asked.predictions), ("--picture", asked.picture)):
        if path is not None:
            check_place(option, path)
    if asked.predictions is not None and asked.predictions.suffix != ".csv":
        raise unusable(f"--predictions: {asked.predictions}: name it FILE.csv")
    if asked.picture is not None:
        check_picture("--picture", asked.picture)


estimate.add_command(study)
estimate.add_command(report_on_accounting)
