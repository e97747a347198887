"""A cluster of 1,024 nodes with 10,000 waiting jobs: what commands take, and the controller's memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cluster import Cluster, Shape, running
from benchmarks.figures import Figures, median
from benchmarks.load import Plan, run
from benchmarks.occupy import occupied

SHAPE = Shape(nodes=1024, cores=8)
PENDING = 10_000
JOBS_PER_CALL = 1
SETTLE_S = 2.0


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """essubmit_ms, esqueue_10k_ms, esctld_rss_mb."""
    submits, queues = (9, 5) if quick else (31, 15)
    with running(parent, SHAPE) as cluster:
        figures.add("esctld_empty_rss_mb", cluster.controller.rss_mb(), "MB", 1)
        with occupied(cluster):
            run(
                Plan(
                    "submit",
                    socket=str(cluster.socket),
                    jobs=PENDING,
                    jobs_per_call=JOBS_PER_CALL,
                    work_dir=str(cluster.directory),
                )
            )
            cluster.wait_for(lambda reply: reply.jobs_pending >= PENDING, 60)
            time.sleep(SETTLE_S)
            figures.add("esctld_rss_mb", cluster.controller.rss_mb(), "MB", 1)
            figures.add("esctld_threads", _threads(cluster.controller.pid), "1", 1)
            bare, submit, queue = [], [], []
            for number in range(max(submits, queues) + 1):
                bare.append(command_ms(cluster, [sys.executable, "-c", "pass"]))
                if number <= submits:
                    submit.append(command_ms(cluster, [program("essubmit"), "--wrap", "true"]))
                if number <= queues:
                    queue.append(command_ms(cluster, [program("esqueue")]))
            # The first of each warms the caches.
            figures.add("python_ms", median(bare[1:]), "ms", len(bare) - 1)
            figures.add("essubmit_ms", median(submit[1:]), "ms", submits)
            figures.add("esqueue_10k_ms", median(queue[1:]), "ms", queues)


def program(name: str) -> str:
    """The installed command of that name, beside this interpreter."""
    return str(Path(sys.executable).parent / name)


def command_ms(cluster: Cluster, command: Sequence[str]) -> float:
    """Milliseconds of one whole process. Raises `CalledProcessError` when it fails."""
    variables = {**os.environ, "ESLURM_SOCKET": str(cluster.socket)}
    began = time.perf_counter()
    subprocess.run(command, env=variables, cwd=cluster.directory, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - began) * 1000


def _threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))
