"""A store that remembers a million finished jobs: what accounting takes, and that nothing else notices."""

from __future__ import annotations

import secrets
import time
from datetime import datetime
from pathlib import Path

from benchmarks.backlog import command_ms, program
from benchmarks.cluster import Cluster, Shape
from benchmarks.figures import Figures, median
from benchmarks.recovery.prepared import PAST_DAYS, prepare

FINISHED = 1_000_000
QUICK_FINISHED = 100_000
PENDING = 1_000
USER = "user7"
DAY_S = 86_400
SHAPE = Shape(nodes=8, cores=8, agents=0, satellites=0, absent=1)


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """accounting_1m_s: one user's jobs of one day out of a million; the queue and the memory beside none."""
    finished, rounds = (QUICK_FINISHED, 3) if quick else (FINISHED, 9)
    short = "100k" if quick else "1m"
    rss_mb: dict[str, float] = {}
    for name, count in (("0", 0), (short, finished)):
        directory = parent / secrets.token_hex(3)
        directory.mkdir(mode=0o711)
        cluster = Cluster(directory, SHAPE)
        try:
            cluster.write_files()
            url = f"sqlite:///{directory / 'esctld.db'}"
            began = time.perf_counter()
            prepare(directory / "eslurm.toml", url, pending=PENDING, running=1, finished=count)
            if count:
                figures.add(f"accounting_{name}_filled_s", time.perf_counter() - began, "s", count)
            cluster.controller.start()
            queue_ms = _median_ms(cluster, [program("esqueue")], rounds)
            figures.add(f"accounting_{name}_esqueue_ms", queue_ms, "ms", rounds)
            if count:
                day_ms = _median_ms(cluster, _esacct_of_a_day(), rounds)
                figures.add(f"accounting_{name}_s", day_ms / 1000, "s", rounds)
            rss_mb[name] = cluster.controller.rss_mb()
            figures.add(f"accounting_{name}_rss_mb", rss_mb[name], "MB", 1)
        finally:
            cluster.stop()
    figures.add(f"accounting_{short}_rss_growth_mb", rss_mb[short] - rss_mb["0"], "MB", 1)


def _esacct_of_a_day() -> list[str]:
    """One user's jobs of one day in the middle of the past."""
    first = datetime.fromtimestamp(time.time() - PAST_DAYS * DAY_S / 2)
    last = datetime.fromtimestamp(first.timestamp() + DAY_S)
    moments = [moment.isoformat(timespec="seconds") for moment in (first, last)]
    return [program("esacct"), "--user", USER, "--starttime", moments[0], "--endtime", moments[1]]


def _median_ms(cluster: Cluster, command: list[str], rounds: int) -> float:
    """The first warms the caches."""
    command_ms(cluster, command)
    return median(command_ms(cluster, command) for _ in range(rounds))
