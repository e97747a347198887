"""No number that a user may send ends the dispatcher, the planner or the next controller's start."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from eslurm.api import requests
from eslurm.core.control.planning import plan_slices
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model import request_limits as limits
from eslurm.core.model.messages import Changed, Message, Refused, Reports, SubmitJobs, Submitted
from eslurm.core.model.protocol import Registration, Report
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.plan.cycle.priority import PRIORITY_DEFAULT
from eslurm.store.rows import load
from eslurm.v1 import controller_pb2 as pb
from tests.kits.mirror import unfinished
from tests.support.loops import run
from tests.unit.esctld.test_dispatcher import ALICE, Bench

I64 = 2**63 - 1
U32 = 2**32 - 1
U64 = 2**64 - 1
LATEST_US = 253_402_300_799_999_999
"""The last microsecond of the year 9999."""


def job(**fields: object) -> pb.JobRequest:
    given = {"name": "j", "work_dir": "/", "script": b"#!/bin/sh\n", **fields}
    return pb.JobRequest(**given)  # type: ignore[arg-type]


async def ask(bench: Bench, message: Message) -> BatchAnswer:
    """The answer; what ended the dispatcher is raised in its place."""
    answer = bench.dispatcher.request(message)
    await asyncio.wait({answer, bench.task}, return_when=asyncio.FIRST_COMPLETED)
    if bench.task.done():
        await bench.task
    return await answer


async def is_in_order(bench: Bench) -> None:
    """A plan can be made, and what is stored is what there is."""
    body = Registration("cn1", "uid", "boot", "s1", bench.state.epoch, "h:1", (4, 1000))
    await bench.dispatcher.decided(Reports((Report("agent", 1, body),)))
    deque(plan_slices(bench.state, bench.state.now_us, None, PlanLimits()), maxlen=0)
    assert unfinished(await load(bench.store, "main")) == unfinished(bench.state)


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({}, ""),
        ({"begin_us": LATEST_US}, ""),
        ({"begin_us": I64}, "--begin: "),
        ({"begin_us": -I64 - 1}, "--begin: "),
        ({"time_limit_s": limits.TIME_LIMIT_MAX_S}, ""),
        ({"time_limit_s": U32}, "--time: "),
        ({"priority": PRIORITY_DEFAULT}, ""),
        ({"priority": I64}, "--priority: "),
        ({"priority": -I64 - 1}, "--priority: "),
        ({"umask": 0o777}, ""),
        ({"umask": U32}, "--umask: "),
        ({"array": [pb.TaskRange(first=0, last=3)], "array_limit": U32}, ""),
        ({"array": [pb.TaskRange(first=0, last=3, step=U32)]}, ""),
        ({"array": [pb.TaskRange(first=limits.ARRAY_TASK_MAX, last=limits.ARRAY_TASK_MAX)]}, ""),
        ({"array": [pb.TaskRange(first=U32, last=U32)]}, "--array: "),
        ({"components": [pb.ResourceRequest(tasks=2, cpus_per_task=2)]}, ""),
        ({"components": [pb.ResourceRequest(tasks=U32, cpus_per_task=U32)]}, "--ntasks: "),
        ({"components": [pb.ResourceRequest(tasks=2, cpus_per_task=U32)]}, "--cpus-per-task: "),
        ({"components": [pb.ResourceRequest(nodes_min=U32, tasks_per_node=U32)]}, "--nodes: "),
        ({"components": [pb.ResourceRequest(nodes_min=1, nodes_max=limits.COUNT_MAX)]}, ""),
        ({"components": [pb.ResourceRequest(nodes_min=1, nodes_max=U32)]}, "--nodes: "),
        ({"components": [pb.ResourceRequest(memory_per_node_mib=1000)]}, ""),
        ({"components": [pb.ResourceRequest(memory_per_node_mib=U64)]}, "--mem: "),
        (
            {"components": [pb.ResourceRequest(cpus_per_task=U32, memory_per_cpu_mib=U64)]},
            "--cpus-per-task: ",
        ),
    ],
    ids=str,
)
def test_submitting(fields: dict[str, object], refused: str) -> None:
    """A request that can be met is accepted, planned and stored; another is refused with its option's name."""

    async def main() -> None:
        async with Bench() as bench:
            reader = requests.SpecReader(ALICE, bench.state.config)
            try:
                answer = await ask(bench, SubmitJobs((reader.read(job(**fields)),)))
            except Refused as refusal:
                answer = refusal
            if refused:
                assert isinstance(answer, Refused) and answer.text.startswith(refused)
                assert not bench.state.jobs
                return
            assert answer == Submitted((1,))
            after = [pb.Dependency(kind="after", job_id=1, delay_s=limits.DEPENDENCY_DELAY_MAX_S)]
            assert await ask(bench, SubmitJobs((reader.read(job(dependencies=after)),))) == Submitted((2,))
            await is_in_order(bench)

    run(main())


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"begin_us": LATEST_US}, ""),
        ({"begin_us": I64}, "begin: "),
        ({"begin_us": -I64 - 1}, "begin: "),
        ({"time_limit_s": limits.TIME_LIMIT_MAX_S}, ""),
        ({"time_limit_s": U32}, "time: "),
        ({"priority": 1}, ""),
        ({"priority": -I64 - 1}, "priority: "),
        ({"nodes_min": 1}, ""),
        ({"nodes_min": limits.COUNT_MAX}, "--nodes: "),
        ({"nodes_min": U32}, "nodes: "),
        ({"nodes_max": limits.COUNT_MAX}, ""),
        ({"nodes_max": U32}, "nodes: "),
        ({"nodes_min": limits.COUNT_MAX, "nodes_max": 1}, "--nodes: "),
        ({"array_limit": U32}, ""),
    ],
    ids=str,
)
def test_changing(fields: dict[str, int], refused: str) -> None:
    async def main() -> None:
        async with Bench() as bench:
            reader = requests.SpecReader(ALICE, bench.state.config)
            await ask(bench, SubmitJobs((reader.read(job(array=[pb.TaskRange(first=0, last=3)])),)))
            request = pb.UpdateJobRequest(job=pb.JobRef(job_id=1), **fields)  # type: ignore[arg-type]
            try:
                answer = await ask(bench, requests.update_job(request, ALICE, bench.state.config))
            except Refused as refusal:
                # By the reader, before anything is decided.
                assert refused and refusal.text.startswith(refused)
                return
            assert isinstance(answer, Changed)
            assert answer.count == (0 if refused else 1)
            assert [one.text.startswith(refused) for one in answer.problems] == [True] * bool(refused)
            await is_in_order(bench)

    run(main())


@pytest.mark.parametrize("number", [0, 2**31 - 1, 2**31, U32])
def test_naming_jobs_that_cannot_be(number: int) -> None:
    async def main() -> None:
        async with Bench() as bench:
            refs = [pb.JobRef(job_id=number), pb.JobRef(job_id=number, task=U32)]
            for message in (
                requests.cancel(pb.CancelRequest(jobs=refs, signal=64), ALICE),
                requests.hold(pb.HoldRequest(jobs=refs), ALICE),
                requests.requeue(pb.RequeueRequest(jobs=refs), ALICE),
                requests.finish_step(pb.FinishStepRequest(job_id=number, step=U32), ALICE),
            ):
                await ask(bench, message)
            await is_in_order(bench)

    run(main())
