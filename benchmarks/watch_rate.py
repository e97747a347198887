"""By how much scraping every daemon every second slows small jobs.

Runs with and without alternate within the life of one cluster. A block of four short runs (without, with, with, without, or
the other way round) is one observation: what drifts evenly within a block hits both alike. Blocks follow until it is clear
on which side of what is allowed their median lies. On a machine that others use the rate may not settle; what the daemons
themselves say of the CPU time that they spent on pages does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from benchmarks.cluster import Cluster
from benchmarks.figures import Figures, median
from benchmarks.scrape import scraped
from benchmarks.throughput import Rounds, Sizes
from benchmarks.watcher import Watcher

WARM_JOBS = 500
CHANGE_MAX_PERCENT = 3.0
"""By so much may the rate fall."""
BLOCKS_MIN = 8
CONFIDENCE = 0.99
"""Higher than usual, for it is looked at after every block."""
PAGES_CPU = "eslurm_watch_cpu_seconds_total "

Runs = Mapping[bool, Sequence[float]]
"""Measurements without (False) and with, run by run: two of each a block."""


def measure_rate(cluster: Cluster, figures: Figures, jobs: int, budget_s: float) -> None:
    """scrape_e2e_rate_change_percent, the same of the daemons' CPU time of a job, the bounds of both; and
    scrape_cpu_share_percent, the part of the daemons' CPU time that went into pages while they were scraped.
    """
    rounds = Rounds(cluster, Sizes(jobs=jobs, parts=1, spawned=0))
    rounds.single_jobs(WARM_JOBS)
    watcher = Watcher(cluster.watched)
    rates: dict[bool, list[float]] = {False: [], True: []}
    cpus: dict[bool, list[float]] = {False: [], True: []}
    pages_before_s = pages_cpu_s(cluster.watched)
    scraped_s = 0.0
    blocks = 0
    began_s = time.monotonic()
    while not is_settled(rates) and time.monotonic() - began_s < budget_s:
        first = blocks % 2 == 1
        for looking in (first, not first, not first, first):
            watcher.look(looking)
            before_s, run_s = sum(cluster.cpu_s().values()), time.perf_counter()
            rates[looking].append(rounds.single_jobs(jobs))
            cpus[looking].append((sum(cluster.cpu_s().values()) - before_s) / jobs)
            scraped_s += looking * (time.perf_counter() - run_s)
        blocks += 1
    watcher.look(False)
    pages_s = pages_cpu_s(cluster.watched) - pages_before_s
    seen = watcher.result()
    for name, looking in (("e2e_unwatched", False), ("e2e_scraped", True)):
        figures.add(f"{name}_rate", median(rates[looking]), "1/s", 2 * jobs * blocks)
        figures.add(f"{name}_cpu_ms_per_job", 1_000 * median(cpus[looking]), "ms", 2 * jobs * blocks)
    for name, runs in (("rate", rates), ("cpu", cpus)):
        found = changes(runs)
        low, high = interval(found)
        figures.add(f"scrape_e2e_{name}_change_percent", median(found), "%", blocks)
        figures.add(f"scrape_e2e_{name}_change_percent_low", low, "%", blocks)
        figures.add(f"scrape_e2e_{name}_change_percent_high", high, "%", blocks)
    looks = sum(map(len, seen.took_ms.values()))
    figures.add("scrape_cpu_ms_per_look", 1_000 * pages_s / looks, "ms", looks)
    figures.add("scrape_cpu_share_percent", 100 * pages_s / (jobs * sum(cpus[True])), "%", looks)
    figures.add("scrape_core_percent", 100 * pages_s / scraped_s, "%", looks)


def pages_cpu_s(endpoints: Sequence[str]) -> float:
    """CPU seconds that these daemons have spent on those who watch them, this look not included."""
    return sum(scraped(f"http://{endpoint}", PAGES_CPU) for endpoint in endpoints)


def is_settled(rates: Runs) -> bool:
    """Check whether scraping has been shown to cost less, or more, than it may."""
    if len(rates[False]) < 2 * BLOCKS_MIN:
        return False
    low, high = interval(changes(rates))
    return low > -CHANGE_MAX_PERCENT or high < -CHANGE_MAX_PERCENT


def changes(runs: Runs) -> list[float]:
    """By how many percent the two runs with differ from the two without, block by block (geometric means)."""
    scraped, unwatched = runs[True], runs[False]
    found = []
    for at in range(0, len(scraped), 2):
        ratio = scraped[at] * scraped[at + 1] / (unwatched[at] * unwatched[at + 1])
        found.append(100 * (math.sqrt(ratio) - 1))
    return found


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Bounds between which the median lies at `CONFIDENCE` at least, whatever the distribution: two of the values.

    Of so few that no two bound it so, the least and the greatest.
    """
    ordered = sorted(values)
    count = len(ordered)
    outside = 1 - CONFIDENCE
    at = 0
    below = 0.5**count
    # The chance that at most `at` of them lie below the median, twice for both sides.
    while 2 * (below + math.comb(count, at + 1) * 0.5**count) <= outside:
        at += 1
        below += math.comb(count, at) * 0.5**count
    return ordered[at], ordered[count - 1 - at]
