"""A job that holds every core of the cluster, so that what is submitted meanwhile waits in a planned queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.cluster import Cluster
from eslurm.api.methods import CANCEL, SUBMIT
from eslurm.v1 import controller_pb2 as pb

START_S = 30.0


@contextmanager
def occupied(cluster: Cluster) -> Iterator[int]:
    """The job's id. It runs as long as the block, or until the cluster stops."""
    shape = cluster.shape
    job = pb.JobRequest(
        name="occupy",
        components=[
            pb.ResourceRequest(
                tasks=shape.nodes * shape.cores,
                cpus_per_task=1,
                nodes_min=shape.nodes,
                nodes_max=shape.nodes,
                exclusive=True,
            )
        ],
        script=b"#!/bin/sh\nexec sleep 3600\n",
        work_dir=str(cluster.directory),
        time_limit_s=7200,
    )
    with cluster.client() as client:
        job_id = client.call(SUBMIT, pb.SubmitRequest(jobs=[job]), 30).job_ids[0]
        cluster.wait_for(lambda reply: reply.jobs_running == 1, START_S)
        yield job_id
        client.call(CANCEL, pb.CancelRequest(jobs=[pb.JobRef(job_id=job_id)]), 30)
