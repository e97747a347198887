"""A thousand agents in a thousand processes: how long their broadcasts take, and how many connections a satellite has.

The first broadcasts open the links of the tree and are not counted; the rest are what the controller's own traces say.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks.cluster import Cluster, Shape
from benchmarks.figures import Figures, median
from benchmarks.processes import Daemon, NotReady
from benchmarks.relay.real import Sampler, job_on_all_nodes
from eslurm.api.methods import BROADCASTS
from eslurm.v1 import controller_pb2 as pb

PROCESSES = (512, 1024)
WIDTH = 16
WARMING_JOBS = 2
JOBS = 5
JOB_S = 240.0
UP_S = 300.0


def measure(figures: Figures, parent: Path) -> None:
    """broadcast_<n>procs_s, job_<n>procs_s, and the sockets of controller and satellites, for each of `PROCESSES`."""
    for count in PROCESSES:
        try:
            _measure(figures, parent / f"procs{count}", count)
        except (NotReady, TimeoutError) as error:
            # Two cores may not do for a thousand processes: said, and not a reason to lose the other figures.
            sys.stderr.write(f"bench: {count} processes: {error}\n")


def _measure(figures: Figures, directory: Path, count: int) -> None:
    directory.mkdir(mode=0o711)
    cluster = Cluster(directory, Shape(nodes=count, cores=1, agents=1, each=True, sockets_max=4 * WIDTH))
    label = f"{count}procs"

    def watched() -> tuple[Daemon, ...]:
        return (cluster.controller, *cluster.satellites)

    try:
        began = time.perf_counter()
        with Sampler(watched) as starting:
            cluster.start(UP_S)
            figures.add(f"cluster_up_{label}_s", time.perf_counter() - began, "s", 1)
            cold = _jobs(cluster, WARMING_JOBS)
        figures.add(f"job_cold_{label}_s", cold[0], "s", 1)
        with Sampler(watched) as working:
            figures.add(f"job_{label}_s", median(_jobs(cluster, JOBS)), "s", JOBS)
        took_s = _broadcasts_s(cluster)
        figures.add(f"broadcast_{label}_s", median(took_s), "s", len(took_s))
    finally:
        cluster.stop()
    for name, sampler in (("start", starting), ("jobs", working)):
        for process, prefix in (("esctld", "esctld"), ("essatd", "sat")):
            most = sampler.most(prefix, lambda sample: sample.sockets)
            figures.add(f"{process}_sockets_{name}_{label}", most, "sockets", sampler.count(prefix))


def _jobs(cluster: Cluster, count: int) -> list[float]:
    """Seconds from submission until the last node is free again."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        job_on_all_nodes(cluster)
        cluster.wait_for(lambda reply: not reply.jobs_running and not reply.jobs_pending, JOB_S, 0.02)
        took.append(time.perf_counter() - began)
    return took


def _broadcasts_s(cluster: Cluster) -> list[float]:
    """Of the kept traces those to all nodes, the newest half: made over links that were there."""
    with cluster.client() as client:
        reply = client.call(BROADCASTS, pb.BroadcastsRequest(limit=1000), 30)
    whole = [one.took_us / 1e6 for one in reply.broadcasts if one.nodes == one.ok == cluster.shape.nodes]
    return whole[: max(1, len(whole) // 2)]
