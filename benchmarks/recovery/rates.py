"""Durable submissions a second, one by one and in bulk, with the jobs in SQLite and in PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.cluster import Cluster, Shape, running
from benchmarks.figures import Figures, median
from benchmarks.load import Plan, run
from benchmarks.occupy import occupied
from benchmarks.recovery.postgres import running_server

CONNECTIONS = 8
JOBS_PER_BULK_CALL = 1000
WARM_UP_JOBS = 1000
SHAPE = Shape(nodes=16, cores=8, agents=1)


class Sizes(msgspec.Struct, frozen=True):
    """Jobs a round, one by one and in bulk, and rounds of which the median counts."""

    single: int
    bulk: int
    rounds: int


# In all below the most that may wait.
FULL = Sizes(single=6_000, bulk=30_000, rounds=5)
QUICK = Sizes(single=1_500, bulk=10_000, rounds=1)


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """submit_rate_8conn_<store>, submit_rate_bulk_<store>."""
    sizes = QUICK if quick else FULL
    _measure(figures, parent, "sqlite", "", sizes)
    with running_server() as server:
        _measure(figures, parent, "postgresql", server.url(server.create()), sizes)


def _measure(figures: Figures, parent: Path, store: str, url: str, sizes: Sizes) -> None:
    shape = msgspec.structs.replace(SHAPE, store_url=url)
    single: list[float] = []
    bulk: list[float] = []
    with running(parent, shape) as cluster, occupied(cluster):
        _rate(cluster, WARM_UP_JOBS, 1)
        for _ in range(sizes.rounds):
            single.append(_rate(cluster, sizes.single, 1))
            bulk.append(_rate(cluster, sizes.bulk, JOBS_PER_BULK_CALL))
    figures.add(f"submit_rate_8conn_{store}", median(single), "1/s", sizes.single * sizes.rounds)
    figures.add(f"submit_rate_bulk_{store}", median(bulk), "1/s", sizes.bulk * sizes.rounds)


def _rate(cluster: Cluster, count: int, jobs_per_call: int) -> float:
    result = run(
        Plan(
            "submit",
            socket=str(cluster.socket),
            connections=CONNECTIONS,
            jobs=count,
            jobs_per_call=jobs_per_call,
            work_dir=str(cluster.directory),
        )
    )
    return result.done / result.took_s
