"""The worth of estimates to a plan: public logs under EASY and full planning, with the estimates of each estimator.

    TRACES=DIR python -m benchmarks.estimator.plans                      every log: many minutes each
    TRACES=DIR JOBS=8000 POLICIES=easy python -m benchmarks.estimator.plans KTH
    TRACES=DIR PREDICTIONS=DIR python -m benchmarks.estimator.plans      tables of predictions are kept there, and used again

A row is what `eslurm simulate LOG --policy NAME --estimates FILE.csv` prints, FILE.csv being what `eslurm estimate evaluate`
writes: estimates made at the submission, never changed after it, from what the log says was over by then. `user` plans with
the time limits, `perfect` with the run times. Bold figures are worse than with `user`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.estimator.comparators import make
from benchmarks.plan.policies import LOGS
from eslurm.core.model.forecast import Forecast
from eslurm.estimator.registry import slug
from eslurm.lab.studies.evaluate import replay as evaluated
from eslurm.lab.studies.report import At, rows_of, write_predictions
from eslurm.lab.studies.workload import read_log
from eslurm.lab.workloads.loop import replay
from eslurm.lab.workloads.machine import from_header
from eslurm.lab.workloads.metrics import Metrics, measure
from eslurm.lab.workloads.swf import SwfFile
from eslurm.lab.workloads.workload import Choices, build, read_estimates

POLICIES: Final = ("easy", "planned")
USER: Final = "user"
PERFECT: Final = "perfect"
LEARNT: Final = ("last-2", "clustered-svr", "history")
HEAD: Final = (
    "| log | policy | estimates | slowdown | mean wait | wait by work | longest wait | gap closed | CPU |\n"
    "|---|---|---|---|---|---|---|---|---|"
)
GAP_MIN: Final = 0.03
"""A replay scatters by about as much as that."""
SPARE_JOBS: Final = 1_000
"""So many more jobs are predicted than replayed: a replay may leave out some that an estimator counts, or the other way."""


def simulated(path: Path, policy: str, estimates: str | Mapping[int, Forecast], jobs_max: int) -> Metrics:
    """The figures of one replay."""
    with SwfFile(path) as log:
        machine = from_header(log.header)
        workload = build(log, log.header, machine, Choices(estimates=estimates, jobs_max=jobs_max))
    return measure(replay(workload, machine, policy))


def predicted(path: Path, name: str, jobs_max: int, table: Path) -> dict[int, Forecast]:
    """Estimates by job number, as an estimator would have made them at each submission; kept in `table`."""
    if not table.exists():
        jobs = read_log(path, jobs_max + SPARE_JOBS if jobs_max else 0).jobs
        found = evaluated(jobs, make(name))
        write_predictions(table, rows_of(jobs, found, At.SUBMIT))
    return read_estimates(table)


def row(log: str, name: str, found: Metrics, known: Mapping[str, Metrics], spent_s: float) -> str:
    """One line of the table; waits in hours. `gap closed`: of what perfect estimates gain in slowdown over the user's."""
    user = known[USER]
    figures = (
        (found.slowdown_mean, user.slowdown_mean, ".1f", ""),
        (found.wait_mean_s / 3600, user.wait_mean_s / 3600, ".2f", " h"),
        (found.wait_weighted_s / 3600, user.wait_weighted_s / 3600, ".2f", " h"),
        (found.wait_max_s / 3600, user.wait_max_s / 3600, ".1f", " h"),
    )
    cells = [_told(f"{value:{form}}{unit}", is_worse=value > limit) for value, limit, form, unit in figures]
    closed = "" if name in (USER, PERFECT) else _share_closed(found, user, known[PERFECT])
    return f"| {' | '.join([log, found.policy, name, *cells, closed, f'{spent_s:.0f} s'])} |"


def _told(text: str, *, is_worse: bool) -> str:
    return f"**{text}**" if is_worse else text


def _share_closed(found: Metrics, user: Metrics, perfect: Metrics) -> str:
    gap = user.slowdown_mean - perfect.slowdown_mean
    if gap < GAP_MIN * user.slowdown_mean:
        return "no gap"
    return f"{(user.slowdown_mean - found.slowdown_mean) / gap:.0%}"


def table(log: str, policy: str, names: tuple[str, ...], tables: Path) -> None:
    """The rows of one log and policy, each as soon as it is known."""
    path = Path(os.environ["TRACES"]) / LOGS[log]
    jobs_max = int(os.environ.get("JOBS", "0"))
    known: dict[str, Metrics] = {}
    for name in (USER, PERFECT, *names):
        estimates: str | Mapping[int, Forecast] = name
        if name not in (USER, PERFECT):
            estimates = predicted(path, name, jobs_max, tables / f"{log}-{jobs_max}-{slug(name)}.csv")
        began = time.process_time()
        known[name] = simulated(path, policy, estimates, jobs_max)
        print(row(log, name, known[name], known, time.process_time() - began), flush=True)


def main(logs: list[str]) -> int:
    """Prints the table; returns the exit code."""
    if not os.environ.get("TRACES") or any(log not in LOGS for log in logs):
        sys.stderr.write(f"plans: use TRACES=DIR python -m benchmarks.estimator.plans [{' | '.join(LOGS)}]\n")
        return 2
    policies = os.environ.get("POLICIES", "").split() or POLICIES
    names = tuple(os.environ.get("ESTIMATORS", "").split()) or LEARNT
    with TemporaryDirectory() as scratch:
        tables = Path(os.environ.get("PREDICTIONS") or scratch)
        print(HEAD, flush=True)
        for log in logs or LOGS:
            for policy in policies:
                table(log, policy, names, tables)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
