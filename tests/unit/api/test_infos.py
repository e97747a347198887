"""Job infos for commands: times are those of the attempt that they look at, and a suspended job is not running."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from eslurm.api.infos import attempt_info, job_info
from eslurm.core.model.job import Attempt, Dependency, Span, StepEnd
from eslurm.core.model.job_states import AttemptPhase, JobState
from eslurm.core.model.messages import CancelJobs, JobRef, Reports, SuspendJobs
from eslurm.core.model.protocol import Report, StepEnded
from eslurm.core.model.request import PartSpec, Request
from eslurm.core.plan.cycle.reasons import Why, WhyKind
from eslurm.core.state.rows import Accounted, encode
from eslurm.ports.store import AttemptRow
from eslurm.store.rows import to_store
from tests.kits.core import ROOT, SECOND, World
from tests.kits.packs import begin, pack


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


def test_open_dependencies_are_shown_as_slurm_shows_them() -> None:
    world = World()
    plain, array, part = world.submit(held=True), world.submit(tasks=((0, 3),), held=True), world.submit()
    conditions = (
        Dependency("afterok", plain),
        Dependency("after", plain, 300),
        Dependency("afterany", array),
        Dependency("afterok", array, task=2),
        Dependency("singleton"),
    )
    shown = (
        f"afterok:{plain}(unfulfilled)",
        f"after:{plain}+5(unfulfilled)",
        f"afterany:{array}_*(unfulfilled)",
        f"afterok:{array}_2(unfulfilled)",
        "singleton(unfulfilled)",
    )
    for is_any, sign in ((False, ","), (True, "?")):
        job = world.submit(dependencies=conditions, dependency_any=is_any)
        assert job_info(world.state, world.job(job), None).dependencies == sign.join(shown)
    assert job_info(world.state, world.job(part), None).dependencies == ""


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


# ---- parts ----


def with_parts(world: World) -> int:
    """A job of three parts as it waits: one core; two nodes; GPUs under a constraint."""
    job = world.submit(held=True)
    parts = (PartSpec("main"), PartSpec("booster"), PartSpec("booster"))
    components = (
        Request(tasks=3),
        Request(tasks=2, nodes_min=2, nodes_max=2, memory_per_node_mib=100),
        Request(per_node=(("gpu", 2),), constraint="ib"),
    )
    spec = replace(world.job(job).spec, components=components, parts=parts, partition="main")
    world.state.put_job(replace(world.job(job), spec=spec))
    return job


def test_a_waiting_job_shows_its_parts_and_their_sums() -> None:
    world = World()
    info = job_info(world.state, world.job(with_parts(world)), None)
    assert (info.tasks, info.nodes, info.cpus, info.memory_mib) == (6, 4, 6, 200)
    assert (info.partition, info.resources, info.constraint) == ("main", "gpu:2", "")
    assert [(one.part, one.partition, one.nodes, one.tasks, one.memory_mib) for one in info.parts] == [
        (0, "main", 1, 3, 0),
        (1, "booster", 2, 2, 200),
        (2, "booster", 1, 1, 0),
    ]
    assert (info.parts[2].constraint, info.parts[2].resources) == ("ib", "gpu:2")


def attempt_of_parts(world: World, job: int) -> Attempt:
    """Parts 0 and 1 share node 1."""
    spans = (
        Span(1, (3, 10)),
        Span(0, (1, 100), component=1),
        Span(1, (1, 100), component=1),
        Span(2, (1, 0), component=2),
    )
    held = frozenset((0, 1, 2))
    return Attempt(
        1, AttemptPhase.RUNNING, spans, world.now_us, 1, world.now_us + SECOND, held, started_us=world.now_us
    )


def test_a_running_job_counts_a_node_of_two_parts_once() -> None:
    world = World()
    job = with_parts(world)
    running = replace(world.job(job), state=JobState.RUNNING, attempt=attempt_of_parts(world, job))
    info = job_info(world.state, running, None)
    assert (info.nodes, info.cpus, info.memory_mib, info.node_names) == (3, 6, 210, "cn[1,0,2]")
    assert [(one.nodes, one.cpus, one.node_names) for one in info.parts] == [
        (1, 3, "cn1"),
        (2, 2, "cn[0-1]"),
        (1, 1, "cn2"),
    ]


def test_accounting_tells_what_each_part_held() -> None:
    world = World()
    job = with_parts(world)
    ended = replace(world.job(job), state=JobState.COMPLETED, attempt=attempt_of_parts(world, job))
    batch = world.batch()
    batch.touched.ended.append((ended, ended.attempt))
    (row,) = [row for row in to_store(world.state, batch).rows if isinstance(row, AttemptRow)]
    info = attempt_info(row)
    assert (info.nodes, info.cpus, info.node_names) == (3, 6, "cn[1,0,2]")
    assert [
        (one.part, one.partition, one.nodes, one.tasks, one.cpus, one.memory_mib, one.node_names)
        for one in info.parts
    ] == [
        (0, "main", 1, 1, 3, 10, "cn1"),
        (1, "booster", 2, 2, 2, 200, "cn[0-1]"),
        (2, "booster", 1, 1, 1, 0, "cn2"),
    ]


# ---- packs ----


def test_a_job_of_a_pack_shows_its_place_and_the_packs_start() -> None:
    world = World(restarts=False)
    first, second = pack(world, 0, 30)
    waiting = job_info(world.view, world.job(second), None)
    assert (waiting.pack_id, waiting.pack_index, waiting.pack_size) == (first, 1, 2)
    assert (waiting.delay_s, waiting.pack_start_us, waiting.reason) == (30, 0, "PackNotBegun")
    begin(world, first)
    owed = job_info(world.view, world.job(second), None)
    assert (owed.pack_start_us, owed.reason) == (world.now_us, "Priority")
    assert job_info(world.view, world.job(world.submit()), None).pack_size == 0


def test_accounting_tells_the_pack() -> None:
    world = World(restarts=False)
    first, second = pack(world, 0, 30)
    batch = world.batch(CancelJobs(ROOT, (JobRef(first),)))
    rows = [attempt_info(row) for row in to_store(world.state, batch).rows if isinstance(row, AttemptRow)]
    assert [(row.job_id, row.pack_id, row.pack_index) for row in rows] == [
        (second, first, 1),
        (first, first, 0),
    ]
