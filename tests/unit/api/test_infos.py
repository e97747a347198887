"""What commands are told of jobs: times are those of the attempt that they look at, and standing still is not running."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from eslurm.api.infos import attempt_info, job_info
from eslurm.core.model.job import StepEnd
from eslurm.core.model.messages import CancelJobs, JobRef, Reports, SuspendJobs
from eslurm.core.model.protocol import Report, StepEnded
from eslurm.core.plan.cycle.reasons import Why, WhyKind
from eslurm.core.state.rows import Accounted, encode
from eslurm.ports.store import AttemptRow
from eslurm.store.rows import to_store
from tests.kits.core import ROOT, SECOND, World


def test_a_job_that_waits_again_is_told_no_times_of_its_last_attempt() -> None:
    world = World()
    job = world.submit()
    world.start()
    world.pass_time(10)
    assert job_info(world.state, world.job(job), None).started_us == world.attempt(job).started_us
    world.requeue(job)
    world.end(job)
    assert world.state_of(job) == "PENDING"
    assert world.job(job).started_us
    why = Why(WhyKind.RESOURCES, "is short of nodes", world.now_us + 50)
    info = job_info(world.state, world.job(job), why)
    assert (info.started_us, info.ended_us, info.planned_start_us) == (0, 0, world.now_us + 50)


def test_an_array_that_waits_is_told_when_its_next_task_starts() -> None:
    world = World()
    job = world.submit(tasks=((0, 2),), limit=1)
    world.start()
    assert world.job(job).started_us
    info = job_info(world.state, world.job(job), Why(WhyKind.LIMIT, "one at a time", 77))
    assert (info.started_us, info.planned_start_us) == (0, 77)


def test_standing_still_is_told_apart_from_running() -> None:
    world = World(restarts=False)
    job = world.submit()
    world.start()
    world.pass_time(10)
    world.send(SuspendJobs(ROOT, (JobRef(job),)))
    world.deliver()
    since_us = world.now_us
    world.pass_time(100)
    info = job_info(world.state, world.job(job), None)
    assert (info.paused_us, info.suspended_us) == (0, since_us)
    world.send(SuspendJobs(ROOT, (JobRef(job),), True))
    world.deliver()
    info = job_info(world.state, world.job(job), None)
    assert (info.paused_us, info.suspended_us) == (100 * SECOND, 0)
    attempt = world.attempt(job)
    end = StepEnd(0, started_us=attempt.started_us, ended_us=world.now_us)
    node = world.state.nodes[attempt.first]
    ended = StepEnded(attempt.first, node.incarnation, job, attempt.number, end, True)
    batch = world.batch(Reports((Report("agent", 1_000, ended),)))
    (row,) = [row for row in to_store(world.state, batch).rows if isinstance(row, AttemptRow)]
    assert attempt_info(row).paused_us == 100 * SECOND
    info = job_info(world.state, world.job(job), None)
    assert (info.state, info.paused_us, info.suspended_us) == ("COMPLETED", 100 * SECOND, 0)


def test_accounting_keeps_the_trace_of_a_job() -> None:
    world = World(restarts=False)
    traces = (bytes(range(16)), b"")
    for trace in traces:
        job = world.submit(trace=trace)
        batch = world.batch(CancelJobs(ROOT, (JobRef(job),)))
        (row,) = [row for row in to_store(world.state, batch).rows if isinstance(row, AttemptRow)]
        assert attempt_info(row).trace == job_info(world.state, world.job(job), None).trace == trace.hex()


def test_attempts_from_before_traces_were_kept_have_none() -> None:
    row = AttemptRow(
        1, 1, "ada", "", "main", "x", "COMPLETED", 1, 2, 3, 1, 1, 0, 0, encode(Accounted(text="x"))
    )
    short = replace(row, blob=msgspec.msgpack.encode([0, -1, False, "cn1"]))
    assert (attempt_info(row).trace, attempt_info(short).trace) == ("", "")
    assert attempt_info(short).node_names == "cn1"
