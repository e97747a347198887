"""ESP with real jobs, without and with cooperation, beside the predictions of `eslurm simulate esp`.

230 jobs on 256 virtual nodes of one core, times by 1/60, under the default policy. Each job is one process whose tasks are
timed work. The simulator gets the same jobs, and three numbers of the cluster: the times of launches, ends and reports.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.esp.calibration import Overhead, calibrate
from benchmarks.esp.live import OFF, Ran, Site, borrowers, running
from benchmarks.figures import Figures, median
from eslurm.core.model.lending import REPORT
from eslurm.core.model.units import SECOND_US
from eslurm.lab.applications.esp import HOSTS, TABLE
from eslurm.lab.applications.esp_figures import Figures as Predicted
from eslurm.lab.applications.esp_figures import figures_of
from eslurm.lab.applications.esp_run import Setting, items_of, run
from eslurm.lab.applications.two_level import Item
from eslurm.lab.workloads.machine import uniform

LEVELS = (OFF, REPORT)
"""Under STATIC applications refuse each request for more cores, so `full` has nothing to add."""
TIME_SCALE = 1 / 60
TASK_SCALE = 0.05
QUICK_NODES, QUICK_JOBS = 32, 24
JOBS = 230


class Happened(msgspec.Struct, frozen=True):
    """One repetition with real jobs. Times in seconds, `waits_s` are means by category, `load` is the machine's."""

    makespan_s: float
    utilisation: float
    wait_mean_s: float
    waits_s: dict[str, float]
    borrowed_starts: int
    reports: int
    refused: int
    late_ms: float
    launch_ms: float
    load: float


class Compared(msgspec.Struct, frozen=True):
    """Prediction and measurement at one level of cooperation."""

    level: str
    overhead: Overhead
    plain: Predicted
    """The prediction for a cluster that takes no time for anything."""
    predicted: Predicted
    happened: Happened

    @property
    def error(self) -> float:
        """The prediction's makespan over that of the real jobs, less 1."""
        return self.predicted.makespan_s / self.happened.makespan_s - 1


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """esp_LEVEL_makespan_s, ..._predicted_s, ..._error_percent, esp_LEVEL_utilisation, ..._predicted."""
    nodes, jobs = (QUICK_NODES, QUICK_JOBS) if quick else (HOSTS, JOBS)
    found = compare(parent, nodes, jobs)
    for one in found:
        name = f"esp_{one.level}"
        figures.add(f"{name}_makespan_s", one.happened.makespan_s, "s", jobs)
        figures.add(f"{name}_makespan_predicted_s", one.predicted.makespan_s, "s", jobs)
        figures.add(f"{name}_makespan_error_percent", 100 * one.error, "%", 1)
        figures.add(f"{name}_utilisation", one.happened.utilisation, "1", jobs)
        figures.add(f"{name}_utilisation_predicted", one.predicted.utilisation, "1", jobs)
    sys.stderr.write(as_table(found))


def compare(parent: Path, nodes: int, jobs: int, levels: Sequence[str] = LEVELS) -> list[Compared]:
    """Run the first `jobs` on so many nodes, at each level."""
    directory = parent / "esp"
    with running(directory, nodes) as site:
        overhead = calibrate(site)
        return [_compared(site, level, jobs, overhead) for level in levels]


def _compared(site: Site, level: str, jobs: int, overhead: Overhead) -> Compared:
    plain = Setting(
        "mandelbrot", "STATIC", level, nodes=site.nodes, time_scale=TIME_SCALE, task_scale=TASK_SCALE
    )
    setting = msgspec.structs.replace(plain, **msgspec.structs.asdict(overhead))
    items = items_of(plain, uniform(site.nodes, 1))[:jobs]
    unaware, predicted = (figures_of(one, run(one, jobs=jobs)) for one in (plain, setting))
    load = os.getloadavg()[0]
    ran = site.run(items, level, plain.patience_us)
    load = (load + os.getloadavg()[0]) / 2
    return Compared(level, overhead, unaware, predicted, happened(ran, items, site.nodes, load))


def happened(ran: Sequence[Ran], items: Sequence[Item], nodes: int, load: float) -> Happened:
    """The figures of real jobs, as `figures_of` computes those of simulated ones."""
    makespan_us = max(one.ended_us for one in ran) - min(one.started_us for one in ran)
    busy_us = sum(item.program.costs.total_us for item in items)
    waits: dict[str, list[float]] = {}
    for one in ran:
        waits.setdefault(one.kind, []).append((one.started_us - one.submitted_us) / SECOND_US)
    return Happened(
        makespan_us / SECOND_US,
        busy_us / (nodes * makespan_us),
        sum(map(sum, waits.values())) / len(ran),
        {name: sum(some) / len(some) for name, some in waits.items()},
        len(borrowers(ran)),
        sum(one.record.reports for one in ran),
        sum(one.record.refused for one in ran),
        max(one.record.late_us for one in ran) / 1000,
        median((one.record.begin_us - one.started_us) / 1000 for one in ran),
        load,
    )


def as_table(found: Sequence[Compared]) -> str:
    """All figures, predicted beside measured."""
    lines = [time.strftime("%Y-%m-%d %H:%M")]
    for one in found:
        over, real = one.overhead, one.happened
        lines += [
            "",
            f"cooperation {one.level}: load {real.load:.1f}, launch {over.launch_s:.3f} s, finish {over.finish_s:.3f} s, "
            f"report {over.report_s:.3f} s",
            f"{real.borrowed_starts} jobs borrowed, {one.predicted.borrowed_starts} predicted; {real.reports} reports, "
            f"{real.refused} refused; latest end of a task {real.late_ms:.0f} ms late; "
            f"{real.launch_ms:.0f} ms from the start of a script to its first task",
            f"{'':<22}{'measured':>10}{'predicted':>10}{'diff':>9}{'no overheads':>14}{'diff':>9}",
        ]
        rows = [
            ("makespan, s", real.makespan_s, one.predicted.makespan_s, one.plain.makespan_s),
            (
                "utilisation, %",
                100 * real.utilisation,
                100 * one.predicted.utilisation,
                100 * one.plain.utilisation,
            ),
            ("mean wait, s", real.wait_mean_s, one.predicted.wait_mean_s, one.plain.wait_mean_s),
        ]
        kinds = {kind.category: kind.wait_s for kind in one.predicted.kinds}
        plain = {kind.category: kind.wait_s for kind in one.plain.kinds}
        rows += [
            (f"  wait of {kind.name}, s", real.waits_s[kind.name], kinds[kind.name], plain[kind.name])
            for kind in TABLE
            if kind.name in real.waits_s
        ]
        for name, was, predicted, unaware in rows:
            lines.append(
                f"{name:<22}{was:>10.2f}{predicted:>10.2f}{_less(predicted, was)}{unaware:>14.2f}{_less(unaware, was)}"
            )
    return "\n".join(lines) + "\n"


def _less(predicted: float, was: float) -> str:
    return f"{predicted / was - 1:>+9.1%}" if was > 0.005 else f"{'-':>9}"
