"""Growth of the controller's memory while jobs come and go for ten minutes. Not part of a quick run."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.cluster import Shape, running
from benchmarks.figures import Figures
from benchmarks.load import Plan, run

SHAPE = Shape(nodes=64, cores=8)
WARM_UP_S = 120.0
RUN_S = 600.0
JOBS_PER_WAVE = 200
END_S = 120.0


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """esctld_growth_mb: resident memory after ten minutes of jobs, less that after the warm-up."""
    if quick:
        return
    with running(parent, SHAPE) as cluster:
        began = time.monotonic()
        at_first = 0.0
        jobs = 0
        while (elapsed_s := time.monotonic() - began) < WARM_UP_S + RUN_S:
            if not at_first and elapsed_s >= WARM_UP_S:
                at_first = cluster.controller.rss_mb()
            run(
                Plan(
                    "submit",
                    socket=str(cluster.socket),
                    first=jobs,
                    jobs=JOBS_PER_WAVE,
                    jobs_per_call=20,
                    work_dir="/tmp",
                    output="/dev/null",
                )
            )
            jobs += JOBS_PER_WAVE
            cluster.wait_for(lambda reply: not reply.jobs_pending and not reply.jobs_running, END_S, 0.05)
        figures.add("esctld_growth_mb", cluster.controller.rss_mb() - at_first, "MB", jobs)
