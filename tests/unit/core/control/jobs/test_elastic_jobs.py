"""`--elastic --nodes=MIN-MAX`: a job starts with what is there and gets more by itself, behind all that waits."""

from __future__ import annotations

import pytest

from eslurm.api.infos import job_info
from eslurm.core.model.job import ArraySpec
from eslurm.core.model.messages import JobRef, Resized, ResizeJob
from eslurm.core.model.request import Chunk, Request
from eslurm.core.plan.cycle.schedule import Schedule
from tests.kits.core import ALICE, World, refused
from tests.kits.parts import parted, submit
from tests.kits.planned import plan_all

WHOLE = Request(cpus_per_task=4)


def wide(most: int = 4, least: int = 1, **others: object) -> Request:
    return Request(**{"nodes_min": least, "nodes_max": most, "cpus_per_task": 4} | others)  # type: ignore[arg-type]


def busy(world: World, nodes: int, seconds: int = 100) -> int:
    job = world.submit(
        request=Request(tasks=nodes, nodes_min=nodes, nodes_max=nodes, cpus_per_task=4), time_limit_s=seconds
    )
    assert job in world.start()
    return job


@pytest.mark.parametrize("policy", ["easy", "conservative", "planned", "fcfs"])
def test_it_grows_when_nodes_come_free(policy: str) -> None:
    world = World(4, policy=policy)
    first = busy(world, 2)
    schedule = Schedule()
    job = world.submit(request=wide(), time_limit_s=1000, elastic=True)
    plan_all(world, schedule)
    assert world.attempt(job).held == {2, 3}, "it starts with what is there"
    (growth,) = world.state.growing.values()
    record = world.job(growth)
    assert (record.priority, record.spec.components[0].nodes_max) == (0, 2)
    assert job_info(world.view, world.job(job), None).reason_text == "takes up to 2 nodes more"
    world.end(first)
    plan_all(world, schedule)
    assert world.attempt(job).held == {0, 1, 2, 3} and not world.state.growing
    assert [span.tasks for span in world.attempt(job).spans[2:]] == [1, 1]
    assert len({span.amounts for span in world.attempt(job).spans}) == 1
    world.end(job)
    assert not world.state.jobs_on


def test_it_takes_only_what_no_waiting_job_is_promised() -> None:
    """Goal: jobs that wait come first, those that came later, too."""
    world = World(4, policy="planned")
    schedule = Schedule()
    first, second = busy(world, 1), busy(world, 1, 50)
    job = world.submit(request=wide(), time_limit_s=1000, elastic=True)
    plan_all(world, schedule)
    assert world.attempt(job).held == {2, 3}
    other = world.submit(request=Request(tasks=2, nodes_min=2, nodes_max=2, cpus_per_task=4), time_limit_s=10)
    plan_all(world, schedule)
    (promised,) = schedule.bookings[other]
    world.end(second)
    plan_all(world, schedule)
    assert world.attempt(job).held == {2, 3}, "node 1 is promised"
    assert schedule.bookings[other][0].start_us <= promised.start_us
    world.end(first)
    plan_all(world, schedule)
    assert world.job(other).attempt is not None and world.attempt(job).held == {2, 3}
    world.end(other)
    plan_all(world, schedule)
    assert world.attempt(job).held == {0, 1, 2, 3}


def test_it_asks_again_for_what_is_left() -> None:
    world = World(4)
    jobs = [busy(world, 1) for _ in range(3)]
    schedule = Schedule()
    job = world.submit(request=wide(3), time_limit_s=1000, elastic=True)
    plan_all(world, schedule)
    for number, one in enumerate(jobs):
        world.end(one)
        plan_all(world, schedule)
        assert len(world.attempt(job).held) == min(number + 2, 3)
    assert not world.state.growing


def test_what_its_user_says_counts_from_then_on() -> None:
    world = World(4)
    first = busy(world, 2)
    schedule = Schedule()
    job = world.submit(request=wide(), time_limit_s=1000, elastic=True)
    plan_all(world, schedule)
    answer = world.send(ResizeJob(ALICE, JobRef(job), by_nodes=1))
    assert isinstance(answer, Resized) and answer.withdrawn and answer.growth_id
    world.send(ResizeJob(ALICE, JobRef(job), to_nodes=1))
    world.deliver()
    world.end(first)
    plan_all(world, schedule)
    assert len(world.attempt(job).held) == 1 and not world.state.growing


def test_a_new_leader_asks_once() -> None:
    world = World(4)
    busy(world, 2)
    job = world.submit(request=wide(), time_limit_s=1000, elastic=True)
    assert job in world.start()
    (growth,) = world.state.growing.values()
    world.restart()
    assert world.state.growing == {job: growth}
    world.pass_time(1)
    assert world.state.growing == {job: growth}


def test_without_the_option_a_range_means_what_it_meant() -> None:
    world = World(4)
    first = busy(world, 2)
    job = world.submit(request=wide(), time_limit_s=1000)
    assert job in world.start()
    world.end(first)
    assert not world.state.growing and world.attempt(job).held == {2, 3}


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (Request(nodes_min=2, nodes_max=2, tasks=2), "give a range, like --nodes=4-16"),
        (Request(), "give a range"),
        (Request(tasks=2, nodes_min=1, nodes_max=2, chunks=(Chunk(2),)), "resource sets (--rset)"),
        (Request(tasks=2, nodes_min=1, nodes_max=2, place="pack"), "place=pack"),
    ],
)
def test_what_cannot_grow_is_refused(request_: Request, text: str) -> None:
    world = World(4)
    assert text in refused(world.try_submit(request=request_, elastic=True))


def test_a_job_of_several_parts_or_cells_cannot_be_elastic() -> None:
    world = World(4)
    with pytest.raises(AssertionError, match="parts of a job keep their nodes"):
        submit(world, parted(wide(), wide(), elastic=True))
    assert "--cell" in refused(world.try_submit(request=wide(), elastic=True, cells=("any",)))


def test_each_task_of_an_array_grows() -> None:
    world = World(4)
    first = busy(world, 2)
    schedule = Schedule()
    array = world.submit(request=wide(3), time_limit_s=1000, elastic=True, tasks=((0, 0),))
    assert world.job(array).spec.array == ArraySpec(((0, 0),))
    plan_all(world, schedule)
    world.end(first)
    plan_all(world, schedule)
    (task,) = [one for one in world.state.jobs.values() if one.array_job_id == array]
    assert task.attempt is not None and len(task.attempt.held) == 3
