"""What it costs to be there and to be watched: idle nodes, and the rate of small jobs while every daemon is scraped."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.cluster import Cluster, Shape, running
from benchmarks.figures import Figures, median
from benchmarks.processes import module
from benchmarks.throughput import Rounds, Sizes

IDLE = Shape(nodes=2048, cores=8, agents=4, satellites=2, watched=True)
BUSY = Shape(nodes=64, cores=8, watched=True)
SETTLE_S = 10.0
EVERY_S = 1.0


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """idle_cpu_2048_percent of one core, scrape_ms, and by how many percent scraping changes e2e_rate."""
    with running(parent, IDLE) as cluster:
        time.sleep(SETTLE_S)
        _idle(cluster, figures, 10.0 if quick else 60.0)
    with running(parent, BUSY) as cluster:
        _busy(cluster, figures, *((500, 10) if quick else (2_000, 16)))


def _idle(cluster: Cluster, figures: Figures, seconds: float) -> None:
    for name, watch in (("idle_cpu_2048", False), ("idle_cpu_2048_scraped", True)):
        with _scraped(cluster if watch else None):
            before, began = cluster.cpu_s(), time.perf_counter()
            time.sleep(seconds)
            after, took_s = cluster.cpu_s(), time.perf_counter() - began
        spent = {kind: 100 * (after[kind] - before[kind]) / took_s for kind in after}
        figures.add(f"{name}_percent", sum(spent.values()), "%", IDLE.nodes)
        for kind, percent in spent.items():
            figures.add(f"{name}_{kind}_percent", percent, "%", IDLE.nodes)
    times_ms = [1_000 * _look(endpoint)[0] for endpoint in cluster.watched for _ in range(5)]
    figures.add("scrape_ms_median", median(times_ms), "ms", len(times_ms))
    figures.add("scrape_ms_max", max(times_ms), "ms", len(times_ms))


def _busy(cluster: Cluster, figures: Figures, jobs: int, turns: int) -> None:
    """Turns with and without, in the order ABBA, so that what drifts hits both alike."""
    rounds = Rounds(cluster, Sizes(jobs=jobs, parts=1, spawned=0))
    rounds.single_jobs(500)
    rates: dict[bool, list[float]] = {False: [], True: []}
    cpu_s = {False: 0.0, True: 0.0}
    for turn in range(turns):
        for watch in (False, True) if turn % 2 == 0 else (True, False):
            with _scraped(cluster if watch else None):
                before = sum(cluster.cpu_s().values())
                rates[watch].append(rounds.single_jobs(jobs))
                cpu_s[watch] += sum(cluster.cpu_s().values()) - before
    count = jobs * turns
    for name, watch in (("e2e_unwatched_rate", False), ("e2e_scraped_rate", True)):
        figures.add(name, median(rates[watch]), "1/s", count)
    pairs = zip(rates[True], rates[False], strict=True)
    change = 100 * (median(scraped / unwatched for scraped, unwatched in pairs) - 1)
    figures.add("scrape_e2e_rate_change_percent", change, "%", count)
    figures.add("scrape_e2e_cpu_change_percent", 100 * (cpu_s[True] / cpu_s[False] - 1), "%", count)


@contextmanager
def _scraped(cluster: Cluster | None) -> Iterator[None]:
    """While the block runs, another process looks at every daemon of the cluster every second; None: nobody looks."""
    if cluster is None:
        yield
        return
    process = subprocess.Popen(module("benchmarks.watch", *cluster.watched), stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _look(endpoint: str) -> tuple[float, int]:
    """How long one page took, and its size."""
    began_s = time.perf_counter()
    with urllib.request.urlopen(f"http://{endpoint}/metrics", timeout=5) as answer:
        size = len(answer.read())
    return time.perf_counter() - began_s, size


def main(endpoints: list[str]) -> None:
    """Look at them every second, until ended."""
    while True:
        began_s = time.monotonic()
        for endpoint in endpoints:
            _look(endpoint)
        time.sleep(max(0.0, EVERY_S - (time.monotonic() - began_s)))


if __name__ == "__main__":
    main(sys.argv[1:])
