"""`eslurm estimate study`: what a log says about users' estimates and repeated jobs, as curves, tables and pictures."""

from __future__ import annotations

import csv
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from escli import exits
from escli.errors import ClusterError, unusable
from escli.lab.estimate_inputs import made, read, replayed, tell, warm_up, write
from escli.lab.outputs import NO_MATPLOTLIB
from escli.lab.progress import Progress

if TYPE_CHECKING:
    from eslurm.lab.studies.pictures import Plot
    from eslurm.lab.studies.study import Study
    from eslurm.lab.studies.workload import Log

PARTS: Final = ("cdf", "correlation", "alpha", "elbow")


@click.command(short_help="Study a log: users' estimates, repeated jobs, slack, clusters.")
@click.argument("trace", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--out",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the tables (.csv), figures (.json) and pictures (.png, with matplotlib) go; made if it is not there.",
)
@click.option(
    "--part",
    "parts",
    type=click.Choice(PARTS),
    multiple=True,
    help="Only this study; may be repeated (default: all).",
)
@click.option(
    "--from",
    "first",
    type=click.IntRange(0),
    default=0,
    metavar="JOB",
    help="Begin with the job at this position of the log (default 0).",
)
@click.option(
    "--jobs", "jobs_max", type=click.IntRange(1), metavar="N", help="Only N jobs of the log (default: all)."
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as one JSON object.")
def study(
    trace: Path, out: Path, parts: tuple[str, ...], first: int, jobs_max: int | None, as_json: bool
) -> int:
    """Make the studies that led to the published estimator on TRACE, a log in the Standard Workload Format.

    \b
    cdf          how much users overestimate: distribution of P = requested time / runtime
    correlation  share of job pairs alike in name, size and runtime, over the hours and the jobs between them
    alpha        accuracy and underestimates of the published estimator over its slack
    elbow        how many clusters of jobs there are: inertia over K

    \b
    eslurm estimate study KTH.swf.gz --out study
    eslurm estimate study CTC.swf.gz --out study --part cdf --part correlation
    """
    from eslurm.lab import drawing
    from eslurm.lab.studies import pictures
    from eslurm.lab.studies.study import habits

    _make_directory(out)
    log = read(trace, first, jobs_max or 0)
    tell(log.notes)
    draws = drawing.available()
    if not draws:
        tell([f"no pictures: {NO_MATPLOTLIB}"])
    stem = trace.name.removesuffix(".gz").removesuffix(".swf")
    figures: dict[str, Any] = {"trace": trace.name, "first": first, "notes": log.notes}
    figures["log"] = habits(log.jobs, log.begins_s)
    for part in dict.fromkeys(parts or PARTS):
        studies, plots = _PARTS[part](log, stem)
        for one in studies:
            figures[one.name] = {**one.facts, "columns": one.columns, "rows": one.rows}
            write(out / f"{stem}-{one.name}.csv", partial(_write_table, one))
        if draws and plots:
            write(out / f"{stem}-{part}.png", partial(pictures.draw, plots=plots))
    text = msgspec.json.format(msgspec.json.encode(figures), indent=1).decode() + "\n"
    write(out / f"{stem}.json", partial(_write_text, text))
    sys.stdout.write(text if as_json else _as_text(figures, out))
    return exits.OK


def _make_directory(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise unusable(f"--out: {out}: is no directory") from None
    except OSError as error:
        raise ClusterError(f"--out: {out}: cannot be made: {error.strerror or error}") from None


def _cdf(log: Log, stem: str) -> tuple[list[Study], list[Plot]]:
    from eslurm.lab.studies.pictures import Line, Plot
    from eslurm.lab.studies.study import overestimates

    found = overestimates(log.jobs)
    if not found.rows:
        tell(["cdf: no job of the log has a requested time: nothing to draw"])
        return [found], []
    plot = Plot(
        title=f"{stem}: users' estimates",
        note=f"{found.facts['over']:.1%} of {found.facts['jobs']:,} jobs are overestimated",
        x_label="P = requested time / runtime",
        y_label="share of jobs with at most this P",
        lines=[Line(stem, [(p, share) for p, share in found.rows])],
        x_log=True,
        guides=(1.0,),
    )
    return [found], [plot]


def _correlation(log: Log, stem: str) -> tuple[list[Study], list[Plot]]:
    from eslurm.lab.studies.pictures import Line, Plot
    from eslurm.lab.studies.study import JobPairs

    pairs = JobPairs(log.jobs)
    with Progress("correlation", "hours between jobs") as progress:
        by_interval, by_gap = pairs.by_interval(progress.show), pairs.by_gap()
    note = f"alike in {pairs.by}, size and runtime"
    plots = [
        Plot(
            title=f"{stem}: correlated pairs",
            note=note,
            x_label=label,
            y_label="share of pairs",
            lines=[Line(stem, [(row[0], row[1]) for row in one.rows], marks=True)],
        )
        for one, label in (
            (by_interval, "hours between the submissions"),
            (by_gap, "jobs between the two in the log"),
        )
        if one.rows
    ]
    return [by_interval, by_gap], plots


def _alpha(log: Log, stem: str) -> tuple[list[Study], list[Plot]]:
    from eslurm.lab.studies.pictures import Line, Plot
    from eslurm.lab.studies.study import SWEPT, alpha_sweep

    name, settings = SWEPT
    forecasts = replayed(log.jobs, made(name, settings), "alpha").at_submission
    first = warm_up(len(log.jobs))
    found = alpha_sweep(log.jobs[first:], forecasts[first:])
    plot = Plot(
        title=f"{stem}: {name} over its slack",
        x_label="alpha",
        y_label="share",
        lines=[
            Line("AEA", [(row[0], row[1]) for row in found.rows], marks=True),
            Line("UR", [(row[0], row[2]) for row in found.rows], marks=True),
        ],
        guides=(1.05,),
    )
    return [found], [plot]


def _elbow(log: Log, stem: str) -> tuple[list[Study], list[Plot]]:
    from eslurm.lab.studies.pictures import Line, Plot
    from eslurm.lab.studies.study import elbow_curve

    with Progress("elbow", "windows") as progress:
        found = elbow_curve(log.jobs, progress.show)
    plot = Plot(
        title=f"{stem}: clusters of jobs",
        note=f"mean of {len(found.facts['by_window'])} windows; the elbow is at K = {found.facts['k']}",
        x_label="K",
        y_label="inertia, of that of one cluster",
        lines=[Line(stem, [(row[0], row[1]) for row in found.rows], marks=True)],
        guides=(float(found.facts["k"]),),
    )
    return [found], [plot]


_PARTS: Final = {"cdf": _cdf, "correlation": _correlation, "alpha": _alpha, "elbow": _elbow}


def _write_text(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")


def _write_table(found: Study, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(found.columns)
        writer.writerows([f"{value:.6g}" for value in row] for row in found.rows)


def _as_text(figures: dict[str, Any], out: Path) -> str:
    """The important figures, a line each; unknown ones are left out."""
    log = figures["log"]
    lines = [f"{figures['trace']}: {log['jobs']:,} jobs of {log['users']:,} users over {log['days']:g} days"]
    if log["long_jobs_18_to_24"] is not None:
        lines.append(
            f"{log['long_jobs_18_to_24']:.1%} of {log['long_jobs']:,} jobs over 6 h came from 18 to 24 h"
        )
    if log["same_as_within_24_h"] is not None:
        lines.append(f"{log['same_as_within_24_h']:.1%} of jobs repeat one of the same user's last 24 h")
    if figures.get("cdf", {}).get("jobs"):
        cdf = figures["cdf"]
        lines.append(
            f"{cdf['over']:.1%} of {cdf['jobs']:,} jobs are overestimated, {cdf['more_than_twice']:.1%} more than "
            f"twofold (median P {cdf['median_p']:.2f})"
        )
    for name, near, far in (
        ("interval", "submitted within an hour of each other", "{:g} hours apart"),
        ("gap", "next to each other", "{:g} jobs apart"),
    ):
        rows = figures.get(name, {}).get("rows", ())
        if rows:
            distance, share, _ = rows[-1]
            lines.append(f"correlated pairs: {rows[0][1]:.3f} {near}, {share:.3f} {far.format(distance)}")
    for alpha, aea, under in figures.get("alpha", {}).get("rows", ()):
        lines.append(f"alpha {alpha:.2f}: AEA {aea:.3f}, UR {under:.3f}")
    if figures.get("elbow", {}).get("rows"):
        elbow = figures["elbow"]
        each = ", ".join(str(k) for k in elbow["by_window"])
        lines.append(f"the elbow is at K = {elbow['k']} (window by window: {each})")
    lines.append(f"tables and pictures: {out}")
    return "\n".join(lines) + "\n"
