"""Cost of existing and of being scraped: idle nodes, a large controller's page, and small jobs while every daemon is
scraped every second.
"""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.cluster import Cluster, Shape, running
from benchmarks.figures import Figures, median, percentile
from benchmarks.watch_rate import measure_rate, pages_cpu_s
from benchmarks.watcher import Endpoint, Watcher

IDLE = Shape(nodes=2048, cores=8, agents=4, satellites=2, watched=True)
LARGE = Shape(nodes=20_480, cores=8, agents=4, satellites=4, watched=True)
BUSY = Shape(nodes=64, cores=8, watched=True)
APART_S = 1.05
"""A page is kept for a second."""


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """idle_cpu_2048_percent of one core, scrape_20k_ms, and by how many percent scraping changes e2e_rate and the CPU
    time of a job.
    """
    settle_s = 4.0 if quick else 10.0
    with running(parent, IDLE) as cluster:
        time.sleep(settle_s)
        _idle(cluster, figures, 6.0 if quick else 60.0)
    with running(parent, LARGE) as cluster:
        time.sleep(settle_s)
        _large(cluster, figures, 6 if quick else 50)
    with running(parent, BUSY) as cluster:
        measure_rate(cluster, figures, *((400, 10.0) if quick else (800, 300.0)))


def _idle(cluster: Cluster, figures: Figures, seconds: float) -> None:
    watcher = Watcher(cluster.watched)
    for name, looking in (("idle_cpu_2048", False), ("idle_cpu_2048_scraped", True)):
        watcher.look(looking)
        before, began = cluster.cpu_s(), time.perf_counter()
        time.sleep(seconds)
        after, took_s = cluster.cpu_s(), time.perf_counter() - began
        spent = {kind: 100 * (after[kind] - before[kind]) / took_s for kind in after}
        figures.add(f"{name}_percent", sum(spent.values()), "%", IDLE.nodes)
        for kind, percent in spent.items():
            figures.add(f"{name}_{kind}_percent", percent, "%", IDLE.nodes)
    times_ms = [took for times in watcher.result().took_ms.values() for took in times]
    figures.add("scrape_ms_median", median(times_ms), "ms", len(times_ms))
    figures.add("scrape_ms_max", max(times_ms), "ms", len(times_ms))


def _large(cluster: Cluster, figures: Figures, looks: int) -> None:
    """Pairs of looks at the controller: the page is made for the first one, the second one gets the same page again."""
    made, kept = (Endpoint(cluster.watched[0]) for _ in range(2))
    for endpoint in (made, kept):
        endpoint.connect()
    before_s = pages_cpu_s(cluster.watched[:1])
    for _ in range(looks):
        time.sleep(APART_S)
        made.look()
        kept.look()
    time.sleep(APART_S)
    spent_s = pages_cpu_s(cluster.watched[:1]) - before_s
    for endpoint in (made, kept):
        endpoint.close()
    figures.add("scrape_20k_ms", median(made.took_ms), "ms", looks)
    figures.add("scrape_20k_ms_p99", percentile(made.took_ms, 0.99), "ms", looks)
    figures.add("scrape_20k_kept_ms", median(kept.took_ms), "ms", looks)
    figures.add("scrape_20k_cpu_ms", 1_000 * spent_s / (looks + 1), "ms", looks + 1)
    figures.add("scrape_20k_kb", made.bytes / 1e3, "kB", 1)
    figures.add("esctld_rss_mb_20k_watched", cluster.controller.rss_mb(), "MB", LARGE.nodes)
