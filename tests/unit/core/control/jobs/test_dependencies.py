"""Dependencies of a job: each kind, delays, chains, and conditions that can never be met."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.control.jobs.dependency import forgotten_targets, settled_by
from eslurm.core.model.facts import TasksDropped, TasksReleased
from eslurm.core.model.job import Dependency, StepEnd
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import JobRef, UpdateJob
from eslurm.core.model.protocol import StepEnded
from eslurm.core.model.request import Request
from tests.kits.core import ALICE, BOB, SECOND, World, depends, refused

MET, NEVER, WAIT = "met", "never", "wait"


def verdict(world: World, job: int) -> str:
    state = world.state_of(job)
    if state == "CANCELLED":
        return NEVER
    return MET if job in world.state.queue else WAIT


@pytest.mark.parametrize(
    ("kind", "while_running", "after_success", "after_failure", "after_cancel"),
    [
        ("after", MET, MET, MET, MET),
        ("afterany", WAIT, MET, MET, MET),
        ("afterok", WAIT, MET, NEVER, NEVER),
        ("afternotok", WAIT, NEVER, MET, MET),
        ("aftercorr", WAIT, MET, NEVER, NEVER),
    ],
)
def test_each_kind(
    kind: str, while_running: str, after_success: str, after_failure: str, after_cancel: str
) -> None:
    for end, expected in ((0, after_success), (1, after_failure), (None, after_cancel)):
        world = World()
        first = world.submit()
        second = world.submit(dependencies=depends(kind, first))
        assert verdict(world, second) == WAIT
        if end is None:
            world.cancel(first)
        else:
            assert world.start() == [first]
            assert verdict(world, second) == while_running
            world.end(first, end)
        assert verdict(world, second) == expected
        if expected == NEVER:
            assert world.job(second).exit_text == f"dependency {kind}:{first} can never be met"


@pytest.mark.parametrize("kind", ["afterok", "aftercorr", "afternotok"])
def test_a_dependency_on_a_job_that_has_ended_is_decided_at_once(kind: str) -> None:
    world = World()
    first = world.submit()
    world.start()
    world.end(first)
    answer = world.try_submit(dependencies=depends(kind, first))
    if kind == "afternotok":
        assert "can never be met: that job has ended otherwise" in refused(answer)
    else:
        assert verdict(world, 2) == MET


@pytest.mark.parametrize("met", [True, False])
def test_a_job_that_has_left_memory_is_settled_at_the_door(met: bool) -> None:
    world = World()
    outcome = JobState.COMPLETED if met else JobState.FAILED
    known = world.submit()
    dependencies = (*depends("afterok", known), Dependency("afterok", 777))
    assert forgotten_targets(dependencies, world.state.jobs) == [777]
    assert settled_by(dependencies, {}) == dependencies
    settled = settled_by(dependencies, {777: replace(world.state.jobs[known], state=outcome)})
    assert [one.settled for one in settled] == ["", MET if met else NEVER]
    if met:
        assert verdict(world, world.submit(dependencies=settled[1:])) == MET
    else:
        assert "afterok:777" in refused(world.try_submit(dependencies=settled[1:]))


def test_all_of_several_must_hold() -> None:
    world = World()
    first, second = world.submit(), world.submit()
    third = world.submit(dependencies=(*depends("afterok", first), *depends("afterany", second)))
    world.start()
    world.end(first)
    assert verdict(world, third) == WAIT
    assert world.job(third).open == depends("afterany", second)
    world.restart()
    world.end(second, 1)
    assert verdict(world, third) == MET


def test_a_chain_is_cancelled_from_its_first_failure_on() -> None:
    world = World()
    jobs = [world.submit()]
    for _ in range(20):
        jobs.append(world.submit(dependencies=depends("afterok", jobs[-1])))
    rescue = world.submit(dependencies=depends("afternotok", jobs[-1]))
    world.start()
    world.end(jobs[0], 1)
    assert {world.state_of(job) for job in jobs[1:]} == {"CANCELLED"}
    assert verdict(world, rescue) == MET
    assert not world.state.dependents


def test_a_diamond_meets_at_its_end() -> None:
    world = World()
    top = world.submit()
    sides = [world.submit(dependencies=depends("afterok", top)) for _ in range(2)]
    bottom = world.submit(dependencies=(*depends("afterok", sides[0]), *depends("afterok", sides[1])))
    world.start()
    world.end(top)
    assert world.start() == sides
    world.end(sides[0])
    assert verdict(world, bottom) == WAIT
    world.end(sides[1])
    assert world.start() == [bottom]


def test_a_delay_counts_from_the_start_of_the_other() -> None:
    world = World()
    first = world.submit()
    second = world.submit(dependencies=depends("after", first, 60))
    world.pass_time(10)
    world.start()
    assert world.job(second).not_before_us == world.now_us + 60 * SECOND
    world.pass_time(59)
    assert verdict(world, second) == WAIT
    world.pass_time(1)
    assert verdict(world, second) == MET


def test_a_delay_that_has_passed_already_is_none() -> None:
    world = World()
    first = world.submit()
    world.start()
    world.pass_time(100)
    second = world.submit(dependencies=depends("after", first, 60))
    assert verdict(world, second) == MET
    third = world.submit(dependencies=(*depends("after", first, 150), *depends("afterany", first)))
    world.end(first)
    assert verdict(world, third) == WAIT
    world.pass_time(50)
    assert verdict(world, third) == MET


def test_the_outcome_counts_while_nodes_are_still_given_back() -> None:
    world = World()
    first = world.submit(request=Request(tasks=12, nodes_min=3, nodes_max=3))
    second = world.submit(dependencies=depends("afterok", first))
    world.start()
    world.report(StepEnded(0, 1, first, 1, StepEnd(0), True))
    assert world.state_of(first) == "COMPLETING"
    assert verdict(world, second) == MET


def test_a_requeue_is_no_end() -> None:
    world = World()
    first = world.submit()
    second = world.submit(dependencies=depends("afterany", first))
    world.start()
    world.end(first, cause="lost")
    assert world.state_of(first) == "PENDING"
    assert verdict(world, second) == WAIT


# ---- singleton ----


def test_singletons_run_one_after_the_other_by_user_and_name() -> None:
    world = World()
    first = world.submit(name="db")
    second = world.submit(name="db", dependencies=depends("singleton"))
    third = world.submit(name="db", dependencies=depends("singleton"))
    other_user = world.submit(name="db", user=BOB, dependencies=depends("singleton"))
    assert world.start() == [first, other_user]
    world.cancel(second)
    assert verdict(world, third) == WAIT
    world.end(first)
    assert world.start() == [third]


def test_a_singleton_waits_for_a_whole_array() -> None:
    world = World()
    array = world.submit(name="db", tasks=((0, 1),))
    second = world.submit(name="db", dependencies=depends("singleton"))
    tasks = world.start()
    world.end(tasks[0])
    assert verdict(world, second) == WAIT
    world.end(tasks[1])
    assert world.state_of(array) == "COMPLETED"
    assert verdict(world, second) == MET


def test_a_singleton_goes_on_when_the_one_before_it_gets_another_name() -> None:
    world = World()
    first = world.submit(name="db", held=True)
    second = world.submit(name="db", dependencies=depends("singleton"))
    world.send(UpdateJob(ALICE, JobRef(first), name="other"))
    assert verdict(world, second) == MET


def test_a_singleton_goes_on_when_it_gets_another_name_itself() -> None:
    world = World()
    world.submit(name="db", held=True)
    second = world.submit(name="db", dependencies=depends("singleton"))
    world.send(UpdateJob(ALICE, JobRef(second), name="other"))
    assert verdict(world, second) == MET


def test_a_task_with_another_name_does_not_hide_the_end_of_its_array() -> None:
    world = World(nodes=1)
    world.submit(name="db", tasks=((0, 0),))
    waiting = world.submit(name="db", dependencies=depends("singleton"))
    (task,) = world.start()
    world.end(task, cause="lost")
    world.send(UpdateJob(ALICE, JobRef(task), name="other"))
    world.pass_time(2)
    world.start()
    world.end(task)
    assert verdict(world, waiting) == MET


# ---- arrays ----


def test_an_array_has_started_with_its_first_task_and_ended_with_its_last() -> None:
    world = World()
    array = world.submit(tasks=((0, 1),), limit=1)
    after = world.submit(dependencies=depends("after", array))
    any_ = world.submit(dependencies=depends("afterany", array))
    world.plan()
    assert verdict(world, after) == WAIT, "its first task is only being launched"
    world.deliver()
    assert verdict(world, after) == MET
    world.end(4)
    assert verdict(world, any_) == WAIT
    world.hold(after)
    (last,) = world.start()
    world.end(last)
    assert verdict(world, any_) == MET


def test_an_array_that_is_being_cancelled_has_not_ended_before_its_tasks() -> None:
    world = World()
    array = world.submit(tasks=((0, 5),), limit=2)
    any_ = world.submit(dependencies=depends("afterany", array))
    tasks = world.start()
    world.cancel(array)
    assert verdict(world, any_) == WAIT
    for task in tasks:
        world.end(task, 15)
    assert world.state_of(array) == "CANCELLED"
    assert verdict(world, any_) == MET


def test_aftercorr_goes_task_by_task() -> None:
    world = World()
    first = world.submit(tasks=((0, 2),))
    second = world.submit(tasks=((0, 2),), dependencies=depends("aftercorr", first))
    tasks = world.start()
    assert len(tasks) == 3
    world.end(tasks[1])
    (one,) = world.start()
    assert (world.job(one).array_job_id, world.job(one).array_task) == (second, 1)
    world.end(tasks[0], 1)
    assert world.job(second).tasks_failed == ((0, 0),)
    world.end(tasks[2])
    (two,) = world.start()
    assert world.job(two).array_task == 2
    for task in (one, two):
        world.end(task)
    assert world.state_of(second) == "FAILED"


def test_aftercorr_of_two_arrays_needs_both_counterparts() -> None:
    world = World(nodes=2)
    first, second = world.submit(tasks=((0, 1),)), world.submit(tasks=((0, 1),))
    both = world.submit(
        tasks=((0, 1),), dependencies=(*depends("aftercorr", first), *depends("aftercorr", second))
    )
    tasks = world.start()
    by_key = {(world.job(task).array_job_id, world.job(task).array_task): task for task in tasks}
    world.end(by_key[first, 0])
    assert world.job(both).tasks_ready == ()
    world.end(by_key[second, 1])
    assert world.plan() == []
    world.end(by_key[second, 0])
    (only,) = world.start()
    assert world.job(only).array_task == 0


def test_aftercorr_of_an_array_and_of_a_job_lets_no_task_go_before_the_job_has_ended() -> None:
    world = World(nodes=2)
    first, job = world.submit(tasks=((0, 1),)), world.submit()
    both = world.submit(
        tasks=((0, 1),), dependencies=(*depends("aftercorr", first), *depends("aftercorr", job))
    )
    tasks = [one for one in world.start() if one != job]
    for task in tasks:
        world.end(task)
    assert world.plan() == []
    world.end(job)
    started = [world.job(one) for one in world.start()]
    assert sorted((one.array_job_id, one.array_task) for one in started) == [(both, 0), (both, 1)]


def test_aftercorr_with_an_array_that_has_ended_already() -> None:
    world = World()
    first = world.submit(tasks=((0, 1),))
    tasks = world.start()
    world.end(tasks[0])
    world.end(tasks[1], 1)
    second = world.submit(tasks=((0, 2),), dependencies=depends("aftercorr", first))
    assert world.job(second).tasks_failed == ((1, 2),)
    assert not world.job(second).open
    (only,) = world.start()
    assert world.job(only).array_task == 0


def test_aftercorr_of_an_array_on_one_task_waits_for_that_task() -> None:
    """A task has a record of its own; its array's numbers mean nothing to the dependent."""
    world = World()
    world.submit(tasks=((0, 1),))
    task = world.start()[0]
    second = world.submit(tasks=((0, 1),), dependencies=depends("aftercorr", task))
    assert verdict(world, second) == WAIT
    world.end(task)
    assert len(world.start()) == 2
    assert not [fact for fact in world.log if isinstance(fact, TasksDropped | TasksReleased)]


def test_an_array_whose_counterparts_all_failed_is_over() -> None:
    world = World()
    first = world.submit(tasks=((0, 99_999),))
    second = world.submit(tasks=((0, 99_999),), dependencies=depends("aftercorr", first))
    world.cancel(first)
    assert world.state_of(second) == "CANCELLED"
    assert world.job(second).tasks_failed == ((0, 99_999),)
