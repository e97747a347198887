"""Coupled workflows on public logs (D-08): the table of docs/results/workflows.md, and its pictures.

    TRACES=DIR python -m benchmarks.plan.workflows KTH                             one log, minutes
    TRACES=DIR JOBS=5000 PICTURES=docs/results python -m benchmarks.plan.workflows

DIR holds the logs as for `benchmarks.plan.policies`. A row is what `eslurm simulate LOG --workflows PERCENT` prints, as the
mean over SEEDS drawings of the jobs that become workflows (default: 3).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.plan.policies import LOGS
from benchmarks.plot import Plot, Series, write
from eslurm.lab.workloads.loop import replay
from eslurm.lab.workloads.machine import from_header
from eslurm.lab.workloads.rules import Rules, plain_config
from eslurm.lab.workloads.swf import SwfFile
from eslurm.lab.workloads.workflow_metrics import WorkflowMetrics, measure_workflows
from eslurm.lab.workloads.workflows import MODES, Mode, couple
from eslurm.lab.workloads.workload import Choices, build

POLICY: Final = "conservative"
PERCENTS: Final = (10, 30, 50)
HEAD: Final = (
    "| log | share | coupled | workflows | response | wait | makespan | stretch | overlap | late | held idle | used "
    "| others wait | their slowdown |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)
DRAWN: Final[tuple[tuple[str, str, float], ...]] = (
    ("stretch", "makespan / length with each stage as early as it can begin", 1.0),
    ("response_s", "hours from submission to the end of the last stage", 3600.0),
    ("idle_share", "% of the workflows' processor time held idle", 0.01),
    ("other_wait_s", "hours that the other jobs wait", 3600.0),
)
"""(figure, axis, what one unit of the axis is)."""


def mean_of(found: Sequence[WorkflowMetrics]) -> WorkflowMetrics:
    """The mean of each figure over several drawings."""
    names = [one.name for one in msgspec.structs.fields(WorkflowMetrics) if one.type is float]
    means = {name: sum(getattr(one, name) for one in found) / len(found) for name in names}
    count = round(sum(one.workflows for one in found) / len(found))
    return msgspec.structs.replace(found[0], workflows=count, **means)


def row(log: str, percent: int, found: WorkflowMetrics) -> str:
    """One line of the table; times in hours."""
    hours = [f"{time_s / 3600:.2f} h" for time_s in (found.response_s, found.wait_s, found.makespan_s)]
    cells = [
        log,
        f"{percent} %",
        found.mode,
        str(found.workflows),
        *hours,
        *(f"{found.stretch:.2f}", f"{found.overlapped:.0%}", f"{found.late_s / 3600:.2f} h"),
        *(f"{found.idle_share:.1%}", f"{found.used:.1%}"),
        *(f"{found.other_wait_s / 3600:.2f} h", f"{found.other_slowdown:.1f}"),
    ]
    return f"| {' | '.join(cells)} |"


def measured(path: Path, percent: int, mode: Mode, seeds: int) -> WorkflowMetrics:
    """The mean figures of a log with this share of its work in workflows."""
    with SwfFile(path) as log:
        machine = from_header(log.header)
        choices = Choices(jobs_max=int(os.environ.get("JOBS", "0")), kill_at_limit=True)
        workload = build(log, log.header, machine, choices)
    rules = Rules(plain_config(machine))
    found = []
    for seed in range(1, seeds + 1):
        mixed = couple(workload, percent / 100, mode, seed)
        result = replay(mixed.workload, machine, POLICY, rules=rules, workflows=mixed.workflows)
        found.append(measure_workflows(result, mixed.workflows, mode))
    return mean_of(found)


def draw(directory: Path, log: str, found: Sequence[tuple[int, WorkflowMetrics]]) -> None:
    """One picture for each figure: a line for each way to couple stages."""
    for name, axis, unit in DRAWN:
        series = [
            Series(mode, [(percent, getattr(one, name) / unit) for percent, one in found if one.mode == mode])
            for mode in MODES
        ]
        plot = Plot(
            title=f"Workflows of coupled stages, {log}",
            note=f"policy {POLICY}; mean over drawings of the workflows",
            x_label="% of the log's work in workflows",
            y_label=axis,
            series=series,
            y_min=0.0,
        )
        write(plot, directory / f"workflows-{log.lower()}-{name.removesuffix('_s')}.svg")


def main(names: list[str]) -> int:
    """Print the table, each row as soon as it is known; returns the exit code."""
    directory = os.environ.get("TRACES", "")
    if not directory or any(name not in LOGS for name in names):
        sys.stderr.write(
            f"workflows: use TRACES=DIR python -m benchmarks.plan.workflows [{' | '.join(LOGS)}]\n"
        )
        return 2
    seeds = int(os.environ.get("SEEDS", "3"))
    print(HEAD, flush=True)
    for name in names or LOGS:
        found: list[tuple[int, WorkflowMetrics]] = []
        for percent in PERCENTS:
            for mode in MODES:
                one = measured(Path(directory) / LOGS[name], percent, mode, seeds)
                found.append((percent, one))
                print(row(name, percent, one), flush=True)
        if os.environ.get("PICTURES"):
            draw(Path(os.environ["PICTURES"]), name, found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
