"""Somebody else's allocation, as another uid of the host: it gets no steps, is not released, and is not kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eslurm.api import methods
from eslurm.api.unix_client import Client
from eslurm.ports.api import ApiRefused
from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster
from tests.kits.commands import become_user, preload
from tests.kits.daemons import PATIENCE_S

LIMIT_S = 2.0


@pytest.fixture
def cluster(as_root: None) -> Iterator[LiveCluster]:
    preload()
    with running(nodes=2, agents=1, satellites=0, policy={"inactive_limit_s": LIMIT_S}) as cluster:
        yield cluster


def allocate(cluster: LiveCluster, **fields: Any) -> int:
    """An allocation of root's that holds its nodes."""
    job = pb.JobRequest(no_script=True, work_dir=str(cluster.work), **fields)
    with Client([str(cluster.socket)], PATIENCE_S) as client:
        reply = client.call(
            methods.SUBMIT, pb.SubmitRequest(jobs=[job]), PATIENCE_S, request_id=os.urandom(16)
        )
    (job_id,) = reply.job_ids
    cluster.reaches(job_id, "RUNNING")
    return int(job_id)


def as_stranger(cluster: LiveCluster, work: Callable[[Client], str]) -> str:
    """Call `work` in a process of another uid; the result is that of `work`, or the refusal."""
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if not pid:
        said = "nothing was said"
        try:
            with open(os.devnull, "wb") as null:
                become_user(cluster.work, null, null)
            with Client([str(cluster.socket)], PATIENCE_S) as client:
                said = work(client)
        except ApiRefused as refused:
            said = f"refused: {refused.text}"
        finally:
            os.write(write_fd, said.encode())
            os._exit(0)
    os.close(write_fd)
    with open(read_fd, "rb") as answer:
        text = answer.read().decode()
    os.waitpid(pid, 0)
    return text


def test_a_stranger_can_neither_use_nor_release_nor_keep_it(cluster: LiveCluster) -> None:
    job_id = allocate(cluster)

    def step(client: Client) -> str:
        request = pb.CreateStepRequest(
            job_id=job_id,
            argv=["id"],
            environment=b"",
            work_dir="/",
            endpoint="127.0.0.1:4711",
            cookie=bytes(32),
            cpus_per_task=1,
        )
        return str(client.call(methods.CREATE_STEP, request, PATIENCE_S, request_id=os.urandom(16)))

    def release(client: Client) -> str:
        request = pb.ReleaseJobRequest(job_id=job_id)
        return str(client.call(methods.RELEASE_JOB, request, PATIENCE_S, request_id=os.urandom(16)))

    def attend(client: Client) -> str:
        return str(client.call(methods.ATTEND_JOB, pb.AttendJobRequest(job_id=job_id), PATIENCE_S))

    for work in (step, release, attend):
        said = as_stranger(cluster, work)
        assert said.startswith("refused: ") and "belongs to root" in said, said
    assert cluster.job(job_id).state == "RUNNING"
    cluster.do("escancel", str(job_id))
    assert cluster.end(job_id) == "CANCELLED"


def test_words_of_a_stranger_do_not_keep_an_allocation_whose_command_is_gone(cluster: LiveCluster) -> None:
    job_id = allocate(cluster, attended=True)

    def attend(client: Client) -> str:
        refusals = 0
        while True:
            try:
                client.call(methods.ATTEND_JOB, pb.AttendJobRequest(job_id=job_id), PATIENCE_S)
                return "it was heard"
            except ApiRefused as refused:
                refusals += 1
                if "belongs to" not in refused.text:
                    return refused.text
                info = client.call(methods.JOBS, pb.JobsRequest(jobs=[pb.JobRef(job_id=job_id)]), PATIENCE_S)
                if not info.jobs or info.jobs[0].state not in ("RUNNING", "COMPLETING"):
                    return f"ended after {refusals} words" if refusals > 1 else "it ended at once"

    assert as_stranger(cluster, attend).startswith("ended after ")
    assert "has not been heard of" in cluster.only_run(job_id).exit_text


def test_an_allocation_brings_no_script(cluster: LiveCluster) -> None:
    """Else its step would be one that `procd` starts no process for, and other daemons take for one that has some."""

    def submit(client: Client) -> str:
        job = pb.JobRequest(no_script=True, script=b"#!/bin/sh\nid\n", work_dir="/")
        request = pb.SubmitRequest(jobs=[job])
        return str(client.call(methods.SUBMIT, request, PATIENCE_S, request_id=os.urandom(16)))

    assert "an allocation has no script" in as_stranger(cluster, submit)
