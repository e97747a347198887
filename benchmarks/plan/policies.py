"""The policies on public logs: the table of docs/results/planner.md, and its pictures.

    TRACES=DIR python -m benchmarks.plan.policies              every log, every policy: some minutes each
    TRACES=DIR python -m benchmarks.plan.policies KTH          one log
    TRACES=DIR JOBS=5000 python -m benchmarks.plan.policies    the first jobs of each
    TRACES=DIR PICTURES=docs/results python -m benchmarks.plan.policies KTH

DIR holds the logs of the Parallel Workloads Archive under the names below; they are not part of this repository. A row is
what `eslurm simulate LOG --policy NAME` prints.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Final

from eslurm.core.plan.cycle.policies import BUILT_IN
from eslurm.lab.workloads import gantt
from eslurm.lab.workloads.loop import Result, replay
from eslurm.lab.workloads.machine import from_header
from eslurm.lab.workloads.metrics import Metrics, measure
from eslurm.lab.workloads.swf import SwfFile
from eslurm.lab.workloads.workload import Choices, build

LOGS: Final = {
    "KTH": "KTH-SP2-1996-2.1-cln.swf.gz",
    "CTC": "CTC-SP2-1996-3.1-cln.swf.gz",
    "HPC2N": "HPC2N-2002-2.2-cln.swf.gz",
}
HEAD: Final = (
    "| log | policy | utilisation | mean wait | slowdown | p95 wait | longest wait | wait by work | lost | makespan "
    "| CPU |\n|---|---|---|---|---|---|---|---|---|---|---|"
)
PICTURE_DAYS: Final = (60, 74)
"""The part that the pictures show, in days from the first submission."""
DAY_S: Final = 86_400


def row(log: str, found: Metrics, spent_s: float) -> str:
    """One line of the table; waits in hours, makespan in days."""
    waits = (found.wait_p95_s, found.wait_max_s, found.wait_weighted_s)
    cells = [
        log,
        found.policy,
        f"{found.utilisation:.1%}",
        f"{found.wait_mean_s / 3600:.2f} h",
        f"{found.slowdown_mean:.1f}",
        *(f"{wait_s / 3600:.1f} h" for wait_s in waits),
        f"{found.loss_of_capacity:.1%}",
        f"{found.makespan_s / DAY_S:.1f} d",
        f"{spent_s:.0f} s",
    ]
    return f"| {' | '.join(cells)} |"


def picture(directory: str, log: str, result: Result) -> None:
    """Some days of a run, the same for each policy."""
    first, last = PICTURE_DAYS
    window = gantt.window_of(result, first * DAY_S, last * DAY_S)
    gantt.draw(Path(directory) / f"planner-{log.lower()}-{result.policy}.png", result, window)


def main(names: list[str]) -> int:
    """Prints the table, each row as soon as it is known; returns the exit code."""
    directory = os.environ.get("TRACES", "")
    unknown = [name for name in names if name not in LOGS]
    if unknown or not directory:
        sys.stderr.write(
            f"policies: use TRACES=DIR python -m benchmarks.plan.policies [{' | '.join(LOGS)}]\n"
        )
        return 2
    print(HEAD, flush=True)
    for name in names or LOGS:
        for policy in BUILT_IN:
            began = time.process_time()
            with SwfFile(Path(directory) / LOGS[name]) as log:
                machine = from_header(log.header)
                choices = Choices(jobs_max=int(os.environ.get("JOBS", "0")))
                workload = build(log, log.header, machine, choices)
            result = replay(workload, machine, policy)
            print(row(name, measure(result), time.process_time() - began), flush=True)
            if os.environ.get("PICTURES"):
                picture(os.environ["PICTURES"], name, result)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
