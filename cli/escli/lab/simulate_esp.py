"""`eslurm simulate esp`: the ESP benchmark with applications that balance their own loops, in virtual time.

Only parsing and rendering; the run itself is `eslurm.lab.applications`. The result goes to standard output and is the same
for the same options; how far a run is goes to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from escli import exits
from escli.console import to_json
from escli.errors import ClusterError, unusable
from escli.lab.outputs import check_picture, check_place
from escli.lab.progress import Progress

if TYPE_CHECKING:
    from eslurm.lab.applications.esp_figures import Figures
    from eslurm.lab.applications.esp_run import Setting
    from eslurm.lab.applications.two_level import Course

LEVELS = {
    "off": ("off",),
    "report": ("report",),
    "full": ("full",),
    "paper": ("paper",),
    "both": ("off", "full"),
}
_FILE = click.Path(path_type=Path, dir_okay=False)
_OVERHEAD = click.FloatRange(0.0, 3600.0)


@click.command("esp", short_help="The ESP benchmark, with applications that lend the cores they do not use.")
@click.option(
    "--application",
    metavar="WHAT",
    default="mandelbrot",
    show_default=True,
    help="What the jobs compute: psia (spin images, which are even), mandelbrot (which is not), tasks whose costs have a "
    "distribution (constant:1, uniform:1,3, gaussian:1,0.2, exponential:1), or a file with the seconds of each task.",
)
@click.option(
    "--technique",
    metavar="NAME",
    default="STATIC",
    show_default=True,
    help="How an application shares out its loop: STATIC, GSS, FAC, AF or another one of eslurm.loops.",
)
@click.option(
    "--cooperate",
    type=click.Choice(list(LEVELS)),
    default="both",
    show_default=True,
    help="off, report (idle cores are lent), full (applications are asked for cores, too), both (off and full), or paper: "
    "the model of the paper instead of the controller's core.",
)
@click.option("--policy", metavar="NAME", default="easy", show_default=True, help="The planner's policy.")
@click.option(
    "--nodes",
    type=click.IntRange(32, 1024),
    default=256,
    show_default=True,
    metavar="N",
    help="Nodes of one core; jobs take the same shares of them.",
)
@click.option("--seed", type=int, default=20, show_default=True, help="Of the order in which the jobs come.")
@click.option(
    "--limit",
    type=click.FloatRange(1.0, 100.0),
    default=1.5,
    show_default=True,
    metavar="X",
    help="Time limit of a job: so many times its run time under STATIC, in whole minutes.",
)
@click.option(
    "--time-scale",
    type=click.FloatRange(0.01, 1.0),
    default=1.0,
    show_default=True,
    metavar="X",
    help="All run times and arrivals times this.",
)
@click.option(
    "--task-scale",
    type=click.FloatRange(0.001, 1.0),
    default=1.0,
    show_default=True,
    metavar="X",
    help="So many of the tasks, each as much longer: coarser, and faster to simulate.",
)
@click.option(
    "--launch-time",
    type=_OVERHEAD,
    default=0.0,
    metavar="SECONDS",
    help="From a job's placement to its first task on a real cluster (default: none).",
)
@click.option(
    "--finish-time",
    type=_OVERHEAD,
    default=0.0,
    metavar="SECONDS",
    help="From a job's last task until its cores are free.",
)
@click.option(
    "--report-time",
    type=_OVERHEAD,
    default=0.0,
    metavar="SECONDS",
    help="From a report of idle cores until other jobs may use them.",
)
@click.option(
    "--trace", "perfetto", metavar="FILE", type=_FILE, help="Write jobs and tasks for ui.perfetto.dev (JSON)."
)
@click.option(
    "--otf2",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write them as an OTF2 archive, for Vampir.",
)
@click.option(
    "--picture", metavar="FILE", type=_FILE, help="Draw cores over time (.svg or .png; needs matplotlib)."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def simulate_esp(
    application: str,
    technique: str,
    cooperate: str,
    policy: str,
    nodes: int,
    seed: int,
    limit: float,
    time_scale: float,
    task_scale: float,
    launch_time: float,
    finish_time: float,
    report_time: float,
    perfetto: Path | None,
    otf2: Path | None,
    picture: Path | None,
    as_json: bool,
) -> int:
    """Run the 230 jobs of ESP in virtual time: the controller's core, and in each job an application with its own scheduler.

    Without cooperation a job's cores are its own until it ends. With it, applications report cores for which they have no
    tasks left, and the core lends them to waiting jobs. The same options print the same bytes; `digest` covers every event.

    \b
    eslurm simulate esp                                        Mandelbrot under STATIC, without and with cooperation
    eslurm simulate esp --application psia --technique AF --json
    eslurm simulate esp --application exponential:1 --technique FAC --task-scale 0.1
    eslurm simulate esp --nodes 32 --time-scale 0.1 --task-scale 0.01      coarser, in a second
    eslurm simulate esp --cooperate full --trace esp.json --picture esp.svg
    eslurm simulate esp --launch-time 2 --finish-time 1        on a cluster that takes time for it
    """
    from eslurm.config.policies import PolicyError, load_policy
    from eslurm.lab.applications.esp_run import Setting
    from eslurm.loops import TECHNIQUES

    if technique.upper() not in {name.upper() for name in TECHNIQUES}:
        raise unusable(f"--technique: {technique}: no such technique; there are {', '.join(TECHNIQUES)}")
    try:
        load_policy(policy)
    except PolicyError as error:
        raise unusable(f"--policy: {error}") from None
    _check_application(application)
    levels = LEVELS[cooperate]
    files = {"--trace": perfetto, "--otf2": otf2, "--picture": picture}
    _check_outputs(files, levels)
    found = []
    for level in levels:
        setting = Setting(
            application=application,
            technique=technique,
            cooperate=level,
            policy=policy,
            nodes=nodes,
            seed=seed,
            limit=limit,
            time_scale=time_scale,
            task_scale=task_scale,
            launch_s=launch_time,
            finish_s=finish_time,
            report_s=report_time,
        )
        course, figures = _run(setting, traced=any(files.values()))
        _write(files, course, setting)
        found.append(figures)
    sys.stdout.write(
        to_json({"runs": [msgspec.to_builtins(one) for one in found]}) if as_json else as_table(found)
    )
    return exits.OK


def _run(setting: Setting, *, traced: bool) -> tuple[Course, Figures]:
    from eslurm.lab.applications.esp_figures import figures_of
    from eslurm.lab.applications.esp_run import run
    from eslurm.lab.workloads.account import Broken

    with Progress(
        f"{setting.application}, {setting.technique}, {setting.cooperate}", "jobs ended"
    ) as progress:
        try:
            course = run(setting, traced=traced, progress=progress.show)
        except Broken as error:
            raise ClusterError(f"esp: {error}") from None
    return course, figures_of(setting, course)


def _check_application(application: str) -> None:
    from eslurm.lab.applications.costs import CostError
    from eslurm.lab.applications.esp import APPLICATIONS, proportions

    if application not in APPLICATIONS:
        try:
            proportions(application, 1)
        except (CostError, OSError) as error:
            raise unusable(f"--application: {error}") from None


def _check_outputs(files: dict[str, Path | None], levels: Sequence[str]) -> None:
    from eslurm.lab.applications import otf2

    for option, path in files.items():
        if path is None:
            continue
        if len(levels) > 1:
            raise unusable(f"{option}: shows one run: give --cooperate off or --cooperate full")
        check_place(option, path)
    drawn = files["--picture"]
    if drawn is not None:
        check_picture("--picture", drawn)
    if files["--otf2"] is not None and not otf2.available():
        raise unusable(
            "--otf2: this Python has no bindings of the OTF2 library (Debian: python3-otf2): use --trace"
        )


def _write(files: dict[str, Path | None], course: Course, setting: Setting) -> None:
    from eslurm.lab.applications import otf2, picture, trace

    title = f"ESP-{setting.application}, {setting.technique}, cooperation {setting.cooperate}"
    for option, write in (("--trace", trace.write), ("--otf2", otf2.write), ("--picture", picture.draw)):
        path = files[option]
        if path is not None:
            try:
                write(path, course, title)
            except OSError as error:
                raise ClusterError(f"{path}: cannot be written: {error.strerror or error}") from None


def as_table(found: Sequence[Figures]) -> str:
    """One line a run."""
    from escli.tables import columns_of, render

    heads = "APPLICATION TECHNIQUE COOPERATE >MAKESPAN >UTILISATION >HELD >WAIT >WAIT_MAX >IMBALANCE >LENT >REPORTS >GRANTED"
    rows = [
        [
            one.application,
            one.technique,
            one.cooperate,
            *(f"{one.makespan_s:.1f}s", f"{one.utilisation:.2%}", f"{one.held:.2%}"),
            *(f"{one.wait_mean_s:.1f}s", f"{one.wait_max_s:.1f}s"),
            *(
                f"{one.imbalance:.3f}",
                f"{one.lent_share:.2%}",
                str(one.reports),
                f"{one.granted}/{one.requests}",
            ),
        ]
        for one in found
    ]
    return render(columns_of(heads), rows, gap="  ")
