"""A controller that starts on a long queue with running jobs: how soon it answers, shows everything and places jobs."""

from __future__ import annotations

import math
import secrets
import time
from pathlib import Path

import msgspec

from benchmarks import jobs
from benchmarks.cluster import ABSENT_CORES, Cluster, Shape
from benchmarks.figures import Figures, median
from benchmarks.recovery.prepared import prepare
from eslurm.api.methods import SUBMIT
from eslurm.v1 import controller_pb2 as pb

READY_S = 120.0
LIVE_NODES = 8


class Size(msgspec.Struct, frozen=True):
    """A queue: jobs that wait, jobs that run."""

    pending: int
    running: int


SIZES = (Size(5_000, 500), Size(20_000, 2_000), Size(100_000, 10_000))
QUICK_SIZES = SIZES[:1]


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """recover_<jobs>_s and its part until the first answer, with the memory it takes."""
    for size in QUICK_SIZES if quick else SIZES:
        _measure(figures, parent, size, 1 if quick else 3)


def _measure(figures: Figures, parent: Path, size: Size, rounds: int) -> None:
    directory = parent / secrets.token_hex(3)
    directory.mkdir(mode=0o711)
    shape = Shape(
        nodes=LIVE_NODES, cores=4, agents=1, satellites=2, absent=math.ceil(size.running / ABSENT_CORES)
    )
    answered: list[float] = []
    placed: list[float] = []
    rss_mb = 0.0
    for number in range(rounds):
        place = directory / str(number)
        place.mkdir(mode=0o711)
        cluster = Cluster(place, shape)
        try:
            first_s, all_s = _recover(cluster, size)
            rss_mb = cluster.controller.rss_mb()
        finally:
            cluster.stop()
        answered.append(first_s)
        placed.append(all_s)
    name = f"recover_{size.pending}"
    figures.add(f"{name}_s", median(placed), "s", rounds)
    figures.add(f"{name}_answer_s", median(answered), "s", rounds)
    figures.add(f"{name}_rss_mb", rss_mb, "MB", 1)


def _recover(cluster: Cluster, size: Size) -> tuple[float, float]:
    """Seconds from the controller's start until a submission is accepted, and until it has placed a job that waited.

    Satellites and agents are there before, as they are when a controller comes back.
    """
    cluster.write_files()
    config = cluster.directory / "eslurm.toml"
    url = cluster.shape.store_url or f"sqlite:///{cluster.directory / 'esctld.db'}"
    prepare(config, url, pending=size.pending, running=size.running)
    for daemon in (*cluster.satellites, *cluster.agents):
        daemon.start()
    began = time.perf_counter()
    cluster.controller.start()
    with cluster.client() as client:
        request = pb.SubmitRequest(jobs=[jobs.request(0, str(cluster.directory))])
        client.call(SUBMIT, request, READY_S)
    answered_s = time.perf_counter() - began
    standing = cluster.ping()
    if standing.jobs_pending + standing.jobs_running < size.pending + size.running:
        raise RuntimeError(f"jobs are missing after the restart:\n{standing}")
    cluster.wait_for(lambda reply: reply.jobs_running > size.running, READY_S)
    return answered_s, time.perf_counter() - began
