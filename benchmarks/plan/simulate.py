"""Duration of a whole public log: `eslurm simulate` of KTH-SP2 under EASY, without its pictures.

    TRACES=DIR python -m benchmarks.plan.simulate

DIR holds KTH-SP2-1996-2.1-cln.swf.gz from the Parallel Workloads Archive; the log is not part of this repository. Times are
of the processor.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.figures import Figures
from eslurm.lab.workloads.loop import replay
from eslurm.lab.workloads.machine import from_header
from eslurm.lab.workloads.metrics import measure as figures_of
from eslurm.lab.workloads.swf import SwfFile
from eslurm.lab.workloads.workload import Choices, build

LOG: Final = "KTH-SP2-1996-2.1-cln.swf.gz"
QUICK_JOBS: Final = 5_000


def measure(figures: Figures, _directory: Path, *, quick: bool) -> None:
    """simulate_kth_easy_s: reading the log, replaying all its jobs, and the figures of the run."""
    directory = os.environ.get("TRACES", "")
    if not directory:
        sys.stderr.write(f"bench: simulate: no TRACES=DIR with {LOG}: left out\n")
        return
    began = time.process_time()
    with SwfFile(Path(directory) / LOG) as log:
        machine = from_header(log.header)
        workload = build(log, log.header, machine, Choices(jobs_max=QUICK_JOBS if quick else 0))
    found = figures_of(replay(workload, machine, "easy"))
    spent_s = time.process_time() - began
    name = f"simulate_kth_easy_{QUICK_JOBS}_s" if quick else "simulate_kth_easy_s"
    figures.add(name, spent_s, "s", found.jobs)
    figures.add("simulate_cycle_us", spent_s / max(found.cycles, 1) * 1e6, "us", found.cycles)


if __name__ == "__main__":
    measure(Figures(), Path(), quick=bool(os.environ.get("QUICK")))
