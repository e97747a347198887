"""The real controller and its satellites at 20,480 nodes: memory and sockets over time, and its own broadcasts.

Invariant: samples are taken from outside (`/proc`), from before the first node registers until the last broadcast.
"""

from __future__ import annotations

import csv
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.cluster import Cluster, Shape
from benchmarks.figures import Figures, median
from benchmarks.plot import Plot, Series, write
from benchmarks.processes import Daemon, rss_mb
from eslurm.api.methods import BROADCASTS, SUBMIT
from eslurm.ports.api import ApiError
from eslurm.telemetry.vitals import sockets
from eslurm.v1 import controller_pb2 as pb

NODES = 20_480
SHAPE = Shape(nodes=NODES, cores=1, agents=4, satellites=4)
SAMPLE_S = 0.5
HEARTBEATS_S = 60.0
JOBS = 3
JOB_S = 120.0
UP_S = 240.0
RESULTS = Path("build/bench")


class Sample(msgspec.Struct, frozen=True):
    """One process at one moment."""

    at_s: float
    process: str
    rss_mb: float
    sockets: int


class Sampler:
    """Looks at processes every `SAMPLE_S`, in a thread, for as long as the block runs."""

    def __init__(self, find: Callable[[], Sequence[Daemon]]) -> None:
        self.samples: list[Sample] = []
        self._find = find
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler")

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def most(self, prefix: str, value: Callable[[Sample], float]) -> float:
        """The largest value of the processes whose names begin so."""
        return max(value(sample) for sample in self.samples if sample.process.startswith(prefix))

    def count(self, prefix: str) -> int:
        """The number of samples."""
        return sum(sample.process.startswith(prefix) for sample in self.samples)

    def _run(self) -> None:
        began = time.monotonic()
        while not self._ended.wait(SAMPLE_S):
            for daemon in self._find():
                sample = _look(daemon, time.monotonic() - began)
                if sample is not None:
                    self.samples.append(sample)


def _look(daemon: Daemon, at_s: float) -> Sample | None:
    """None when the process is not there (yet)."""
    try:
        pid = daemon.pid
        return Sample(round(at_s, 2), daemon.name, round(rss_mb(pid), 2), sockets(Path(f"/proc/{pid}")))
    except (AssertionError, OSError):
        return None


def measure(figures: Figures, parent: Path) -> None:
    """esctld_sockets_20480, esctld_rss_mb_20480, essatd_rss_mb_20480, essatd_sockets_20480, broadcast_20480_esctld_s."""
    directory = parent / "real"
    directory.mkdir(mode=0o711)
    cluster = Cluster(directory, SHAPE)
    try:
        with Sampler(lambda: (cluster.controller, *cluster.satellites)) as sampler:
            began = time.perf_counter()
            cluster.start(UP_S)
            figures.add(f"cluster_up_{NODES}_s", time.perf_counter() - began, "s", 1)
            _work(cluster)
            _own_broadcasts(figures, cluster)
    finally:
        cluster.stop()
    figures.add(
        f"esctld_sockets_{NODES}",
        sampler.most("esctld", lambda sample: sample.sockets),
        "sockets",
        sampler.count("esctld"),
    )
    for process, prefix in (("esctld", "esctld"), ("essatd", "sat")):
        most = sampler.most(prefix, lambda sample: sample.rss_mb)
        figures.add(f"{process}_rss_mb_{NODES}", most, "MB", sampler.count(prefix))
    most_sockets = sampler.most("sat", lambda sample: sample.sockets)
    figures.add(f"essatd_sockets_{NODES}", most_sockets, "sockets", sampler.count("sat"))
    _keep(sampler.samples)


def _work(cluster: Cluster) -> None:
    """Heartbeats for a while, with jobs on all nodes in between."""
    ends = time.monotonic() + HEARTBEATS_S
    for _ in range(JOBS):
        job_on_all_nodes(cluster)
        cluster.wait_for(lambda reply: not reply.jobs_running and not reply.jobs_pending, JOB_S, 0.1)
    while time.monotonic() < ends:
        time.sleep(SAMPLE_S)


def job_on_all_nodes(cluster: Cluster) -> None:
    """Submit one that does nothing; it is not waited for."""
    nodes = cluster.shape.nodes
    job = pb.JobRequest(
        name="all",
        components=[
            pb.ResourceRequest(tasks=nodes, cpus_per_task=1, nodes_min=nodes, nodes_max=nodes, exclusive=True)
        ],
        script=b"#!/bin/sh\ntrue\n",
        environment=f"PATH={os.defpath}\0HOME=/tmp\0".encode(),
        work_dir=str(cluster.directory),
        umask=0o022,
        time_limit_s=600,
    )
    with cluster.client() as client:
        client.call(SUBMIT, pb.SubmitRequest(jobs=[job]), 30)


def _own_broadcasts(figures: Figures, cluster: Cluster) -> None:
    """The controller's own figures of broadcasts whose trace it kept."""
    try:
        with cluster.client() as client:
            reply = client.call(BROADCASTS, pb.BroadcastsRequest(limit=1000), 30)
    except ApiError as error:
        sys.stderr.write(f"bench: broadcast_{NODES}_esctld_s is not known: {error}\n")
        return
    whole = [one for one in reply.broadcasts if one.nodes == NODES and one.ok == NODES]
    if not whole:
        sys.stderr.write(f"bench: the controller kept no trace of a broadcast to {NODES} nodes\n")
        return
    figures.add(f"broadcast_{NODES}_esctld_s", median(one.took_us / 1e6 for one in whole), "s", len(whole))


def _keep(samples: Sequence[Sample]) -> None:
    """The series as CSV, and as pictures."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with open(RESULTS / f"relay_{NODES}.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Sample.__struct_fields__)
        writer.writerows(msgspec.structs.astuple(sample) for sample in samples)
    write(_plot(samples, "Resident memory", "MB", lambda one: one.rss_mb), RESULTS / f"relay_{NODES}_rss.svg")
    write(
        _plot(samples, "Open sockets", "sockets", lambda one: one.sockets),
        RESULTS / f"relay_{NODES}_sockets.svg",
    )


def _plot(samples: Sequence[Sample], title: str, unit: str, value: Callable[[Sample], float]) -> Plot:
    names = dict.fromkeys(sample.process for sample in samples)
    return Plot(
        title=f"{title}, {NODES:,} nodes",
        x_label="seconds",
        y_label=unit,
        note="start, registration, heartbeats and jobs on all nodes (make bench-relay)",
        series=[
            Series(name, [(one.at_s, value(one)) for one in samples if one.process == name], marks=False)
            for name in names
        ],
        y_min=0.0,
    )
