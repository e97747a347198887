"""The controller killed without warning: in the middle of submissions, and with 20,000 jobs waiting."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

from benchmarks import jobs
from benchmarks.cluster import Cluster, Shape, running
from benchmarks.figures import Figures, median
from benchmarks.load import Plan, run
from benchmarks.occupy import occupied
from benchmarks.stream import Stream
from eslurm.api.methods import JOBS, SUBMIT
from eslurm.v1 import controller_pb2 as pb

SHAPE = Shape(nodes=64, cores=8)
PENDING = 20_000
JOBS_PER_CALL = 500
READY_S = 30.0
BETWEEN_KILLS_S = (0.3, 1.2)


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """lost_acknowledged, doubled_by_retry, restart_20k_s."""
    kills, restarts = (5, 1) if quick else (20, 5)
    with running(parent, SHAPE) as cluster:
        _kill_in_stream(figures, cluster, kills)
    with running(parent, SHAPE) as cluster, occupied(cluster) as running_job:
        plan = Plan("submit", socket=str(cluster.socket), jobs=PENDING, jobs_per_call=JOBS_PER_CALL)
        run(plan)
        took = [_restart(cluster, running_job) for _ in range(restarts)]
        figures.add("restart_20k_s", median(took), "s", restarts)
        figures.add("restart_20k_s_max", max(took), "s", restarts)


def _kill_in_stream(figures: Figures, cluster: Cluster, kills: int) -> None:
    stream = Stream(str(cluster.socket), str(cluster.directory))
    moments = random.Random(kills)
    for _ in range(kills):
        time.sleep(moments.uniform(*BETWEEN_KILLS_S))
        cluster.controller.kill()
        cluster.controller.start()
    time.sleep(BETWEEN_KILLS_S[0])
    acknowledged = stream.finish()
    with cluster.client() as client:
        stored = client.call(JOBS, pb.JobsRequest(), 60).jobs
    names = {job.job_id: job.name for job in stored}
    lost = sum(names.get(job_id) != name for name, job_id in acknowledged.items())
    doubled = sum(count - 1 for count in Counter(names.values()).values())
    figures.add("lost_acknowledged", lost, "jobs", len(acknowledged))
    figures.add("doubled_by_retry", doubled, "jobs", len(acknowledged))
    figures.add("crashes_in_submission", kills, "1", kills)


def _restart(cluster: Cluster, running_job: int) -> float:
    """Seconds from the start of a new controller until a submission is accepted, the queue shows everything, all
    nodes are back and the job that ran still runs."""
    with cluster.client() as client:
        before = len(client.call(JOBS, pb.JobsRequest(), 60).jobs)
    cluster.controller.kill()
    began = time.perf_counter()
    cluster.controller.start()
    with cluster.client() as client:
        request = pb.SubmitRequest(jobs=[jobs.request(0, str(cluster.directory))])
        client.call(SUBMIT, request, READY_S)
        shown = client.call(JOBS, pb.JobsRequest(), 60).jobs
    cluster.wait_for(lambda reply: reply.nodes_up == cluster.shape.nodes, READY_S)
    took_s = time.perf_counter() - began
    states = {job.job_id: job.state for job in shown}
    if len(shown) != before + 1 or states[running_job] != "RUNNING":
        raise RuntimeError(
            f"{before} jobs before, {len(shown)} after; the running one is {states[running_job]}"
        )
    return took_s
