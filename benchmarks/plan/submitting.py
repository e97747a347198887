"""Duration of a submission while the controller plans 10,000 jobs anew under policy `planned`, over and over.

A limit is changed all the time, and each change makes every plan anew. Real processes, durable store.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.cluster import Cluster, Shape, running
from benchmarks.figures import Figures, percentile
from benchmarks.jobs import environment, script
from benchmarks.occupy import occupied
from benchmarks.plan.workload import large
from eslurm.api.methods import CHANGE_POLICIES, PLAN, SUBMIT
from eslurm.api.unix_client import Client
from eslurm.core.model.units import SECOND_US
from eslurm.v1 import controller_pb2 as pb

SHAPE: Final = Shape(nodes=1024, cores=64, sections='[policy]\nscheduler = "planned"\n')
PENDING: Final = 10_000
JOBS_PER_CALL: Final = 500
PLANNED_S: Final = 60.0
PAUSE_S: Final = 0.005
"""Between two submissions of the one client: users come one after another."""
REPLANS_EVERY_S: Final = 1.0
"""Sooner than a replan of so many jobs is done."""


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """submit_p99_ms, and the same with nothing to be planned anew: what the machine and its disk cost."""
    with running(parent, SHAPE) as cluster, occupied(cluster), cluster.client() as client:
        for jobs in calls(str(cluster.directory)):
            client.call(SUBMIT, jobs, 60, os.urandom(16))
        until_planned(client)
        before_ms = list(waits(client, cluster, 3.0 if quick else 10.0, replans=False))
        figures.add("submit_without_replan_p99_ms", percentile(before_ms, 0.99), "ms", len(before_ms))
        cpu_s = cluster.controller.cpu_s()
        began = time.perf_counter()
        waits_ms = list(waits(client, cluster, 6.0 if quick else 30.0, replans=True))
        took_s = time.perf_counter() - began
        busy = 100 * (cluster.controller.cpu_s() - cpu_s) / took_s
        figures.add("submit_p99_ms", percentile(waits_ms, 0.99), "ms", len(waits_ms))
        figures.add("submit_p50_ms", percentile(waits_ms, 0.5), "ms", len(waits_ms))
        figures.add("submit_max_ms", max(waits_ms), "ms", len(waits_ms))
        figures.add("submit_esctld_busy", busy, "%", 1)


def calls(work_dir: str) -> Iterator[pb.SubmitRequest]:
    """The jobs that are planned: 300 shapes on 1 to 64 nodes."""
    jobs = [
        pb.JobRequest(
            name=f"planned-{job.job_id}",
            components=[
                pb.ResourceRequest(
                    tasks=job.request.tasks,
                    cpus_per_task=1,
                    nodes_min=job.request.nodes_min,
                    nodes_max=job.request.nodes_max,
                )
            ],
            script=script(job.job_id),
            environment=environment(job.job_id),
            work_dir=work_dir,
            umask=0o022,
            time_limit_s=job.time_limit_us // SECOND_US,
        )
        for job in large(PENDING)
    ]
    for first in range(0, PENDING, JOBS_PER_CALL):
        yield pb.SubmitRequest(jobs=jobs[first : first + JOBS_PER_CALL])


def until_planned(client: Client) -> None:
    """Waits until every job has its place. Raises `TimeoutError`."""
    ends = time.monotonic() + PLANNED_S
    while True:
        plan = client.call(PLAN, pb.PlanRequest(limit=2 * PENDING), 60)
        planned = sum(not job.running for job in plan.jobs)
        if planned >= PENDING:
            return
        if time.monotonic() > ends:
            raise TimeoutError(f"only {planned} of {PENDING} jobs are planned after {PLANNED_S:g} s")
        time.sleep(0.5)


def waits(client: Client, cluster: Cluster, for_s: float, *, replans: bool) -> Iterator[float]:
    """Milliseconds of each submission, one after another; with `replans` while everything is planned again and again."""
    job = pb.JobRequest(
        name="arriving",
        components=[pb.ResourceRequest(tasks=1, cpus_per_task=1)],
        script=script(0),
        environment=environment(0),
        work_dir=str(cluster.directory),
        umask=0o022,
        time_limit_s=3600,
    )
    began = time.monotonic()
    next_replan = began if replans else began + for_s
    revisions = itertools.count(1)
    while time.monotonic() - began < for_s:
        if time.monotonic() >= next_replan:
            next_replan = time.monotonic() + REPLANS_EVERY_S
            change_limit(client, next(revisions))
        asked = time.perf_counter()
        client.call(SUBMIT, pb.SubmitRequest(jobs=[job]), 60, os.urandom(16))
        yield (time.perf_counter() - asked) * 1000
        time.sleep(PAUSE_S)


def change_limit(client: Client, revision: int) -> None:
    """A limit that binds no user, but might."""
    change = pb.PolicyChange(action="add" if revision == 1 else "modify", kind="limit", name="bench")
    settings = {"user": "*", "resource": "cores", "items": str(1_000_000 + revision)}
    for key, value in settings.items():
        change.settings.add(key=key, value=value)
    client.call(CHANGE_POLICIES, pb.ChangePoliciesRequest(changes=[change]), 60, os.urandom(16))
