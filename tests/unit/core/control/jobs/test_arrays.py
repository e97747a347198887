"""Arrays: one record for many tasks, their limit, and what becomes of the whole when tasks do."""

from __future__ import annotations

import pytest

from eslurm.core.model.facts import JobPlaced
from eslurm.core.model.messages import CancelJobs, Changed, HoldJobs, JobRef, UpdateJob
from tests.kits.core import ALICE, World, problem


def numbers(world: World, tasks: list[int]) -> list[int]:
    return [world.job(task).array_task for task in tasks]


def test_a_hundred_thousand_tasks_are_one_record() -> None:
    world = World(nodes=2, cores=2)
    array = world.submit(tasks=((0, 99_999),))
    assert len(world.state.jobs) == 1
    tasks = world.start()
    assert numbers(world, tasks) == [0, 1, 2, 3]
    assert len(world.state.jobs) == 5
    assert world.job(array).tasks_left == ((4, 99_999),)
    world.cancel(array)
    assert world.job(array).tasks_failed == ((4, 99_999),)


def test_a_task_gets_a_record_of_its_own_when_it_starts() -> None:
    world = World()
    array = world.submit(tasks=((3, 3), (7, 7)), name="sweep")
    first, second = world.start()
    assert (world.job(first).array_job_id, world.job(first).array_task) == (array, 3)
    assert (world.job(second).spec.name, world.job(second).array_task) == ("sweep", 7)
    placed = [fact for fact in world.log if isinstance(fact, JobPlaced)]
    assert [(fact.job_id, fact.task, fact.attempt) for fact in placed] == [(2, 3, 1), (3, 7, 1)]


def test_the_limit_bounds_what_runs_at_once() -> None:
    world = World()
    world.submit(tasks=((0, 4),), limit=2)
    first = world.start()
    assert numbers(world, first) == [0, 1]
    world.end(first[0])
    assert numbers(world, world.start()) == [2]
    assert world.plan() == []


@pytest.mark.parametrize(("ends", "state"), [((0, 0), "COMPLETED"), ((0, 1), "FAILED"), ((2, 1), "FAILED")])
def test_an_array_ends_with_its_last_task(ends: tuple[int, int], state: str) -> None:
    world = World()
    array = world.submit(tasks=((0, 1),))
    tasks = world.start()
    world.end(tasks[1], ends[1])
    assert world.state_of(array) == "PENDING"
    world.end(tasks[0], ends[0])
    assert world.state_of(array) == state
    assert world.job(array).exit_code == max(ends)


def test_one_waiting_task_is_cancelled() -> None:
    world = World(nodes=1, cores=1)
    array = world.submit(tasks=((0, 2),))
    (first,) = world.start()
    assert world.cancel(array, 1) == Changed(1)
    assert world.job(array).tasks_failed == ((1, 1),)
    assert "no waiting or running task 1" in problem(world.cancel(array, 1))
    world.end(first)
    assert numbers(world, world.start()) == [2]


def test_one_running_task_is_cancelled_by_its_number() -> None:
    world = World(nodes=1, cores=2)
    array = world.submit(tasks=((0, 2),))
    first, _ = world.start()
    world.cancel(array, 0)
    world.end(first, 15)
    assert world.state_of(first) == "CANCELLED"
    assert world.job(array).tasks_failed == ((0, 0),)


def test_cancelling_all_drops_what_waits_and_ends_what_runs() -> None:
    world = World(nodes=1, cores=2)
    array = world.submit(tasks=((0, 9),))
    tasks = world.start()
    assert world.cancel(array) == Changed(1)
    assert (world.state_of(array), world.job(array).tasks_left) == ("PENDING", ())
    assert all(world.attempt(task).stop is not None for task in tasks)
    since = len(world.log)
    world.cancel(array)
    assert len(world.log) == since
    world.end(tasks[0])
    world.restart()
    world.end(tasks[1])
    assert world.state_of(array) == "CANCELLED"
    assert world.job(array).tasks_running == 0


def test_cancelling_all_includes_tasks_that_wait_for_another_attempt() -> None:
    world = World(nodes=1, cores=1)
    array = world.submit(tasks=((0, 1),))
    (task,) = world.start()
    world.end(task, cause="lost")
    assert world.state_of(task) == "PENDING"
    world.cancel(array)
    assert (world.state_of(task), world.state_of(array)) == ("CANCELLED", "CANCELLED")


def test_cancelling_what_is_pending_leaves_the_running_tasks_alone() -> None:
    world = World(nodes=1, cores=1)
    array = world.submit(tasks=((0, 2),))
    (task,) = world.start()
    world.send(CancelJobs(ALICE, user="alice", state="PENDING"))
    assert world.job(array).tasks_left == ()
    assert world.attempt(task).stop is None
    world.end(task)
    assert world.state_of(task) == "COMPLETED"
    assert world.state_of(array) == "FAILED"


def test_a_signal_for_a_waiting_task_does_not_reach_the_others() -> None:
    world = World(nodes=1, cores=1)
    array = world.submit(tasks=((0, 2),))
    world.start()
    assert "is not running" in problem(world.send(CancelJobs(ALICE, (JobRef(array, 2),), signal=10)))
    assert world.sends() == []


def test_a_requeued_task_counts_against_the_limit_again() -> None:
    world = World()
    world.submit(tasks=((0, 3),), limit=1)
    (task,) = world.start()
    world.requeue(task)
    world.end(task, 15)
    assert world.state_of(task) == "PENDING"
    assert numbers(world, world.start()) == [1], "another task is not kept waiting by the delay"
    world.pass_time(2)
    assert task not in world.state.queue
    assert world.plan() == []
    other = max(world.state.jobs)
    world.end(other)
    assert task in world.state.queue
    world.restart()
    assert task in world.state.queue
    assert len(world.start()) == 1


def test_requeueing_an_array_requeues_its_running_tasks() -> None:
    world = World(nodes=1, cores=2)
    array = world.submit(tasks=((0, 3),))
    tasks = world.start()
    assert world.requeue(array) == Changed(1)
    for task in tasks:
        world.end(task, 15)
    assert [world.state_of(task) for task in tasks] == ["PENDING", "PENDING"]
    assert world.job(array).tasks_running == 0


def test_a_higher_limit_lets_more_run_and_a_lower_one_stops_nothing() -> None:
    world = World()
    array = world.submit(tasks=((0, 9),), limit=1)
    world.start()
    world.send(UpdateJob(ALICE, JobRef(array), array_limit=3))
    assert len(world.start()) == 2
    world.send(UpdateJob(ALICE, JobRef(array), array_limit=1))
    assert world.job(array).tasks_running == 3
    assert world.plan() == []
    world.send(UpdateJob(ALICE, JobRef(array), array_limit=0))
    assert len(world.start()) == 7
    assert "below zero" in problem(world.send(UpdateJob(ALICE, JobRef(array), array_limit=-1)))


def test_a_higher_limit_lets_a_requeued_task_go_on() -> None:
    world = World()
    array = world.submit(tasks=((0, 1),), limit=1)
    (task,) = world.start()
    world.end(task, cause="lost")
    world.start()
    world.pass_time(2)
    assert task not in world.state.queue
    world.send(UpdateJob(ALICE, JobRef(array), array_limit=2))
    assert world.start() == [task]


def test_the_limit_is_the_arrays() -> None:
    world = World(nodes=1, cores=1)
    world.submit(tasks=((0, 1),))
    (task,) = world.start()
    world.end(task, cause="lost")
    assert f"job {task} is no array" in problem(world.send(UpdateJob(ALICE, JobRef(task), array_limit=2)))


def test_holding_an_array_holds_its_tasks_that_wait_again() -> None:
    world = World(nodes=1, cores=1)
    array = world.submit(tasks=((0, 1),))
    (task,) = world.start()
    world.end(task, cause="lost")
    world.pass_time(2)
    world.hold(array)
    assert world.plan() == []
    assert "hold job 1 as a whole" in problem(world.send(HoldJobs(ALICE, (JobRef(array, 1),))))
    world.hold(array, release=True)
    assert len(world.start()) == 1


def test_task_numbers_may_have_gaps() -> None:
    world = World()
    world.submit(tasks=((1, 1), (5, 6), (9, 9)))
    assert numbers(world, world.start()) == [1, 5, 6, 9]


def test_tasks_end_in_any_order_and_are_remembered_as_ranges() -> None:
    world = World()
    array = world.submit(tasks=((0, 4),))
    tasks = world.start()
    for at in (4, 0, 2):
        world.end(tasks[at])
    assert world.job(array).tasks_ok == ((0, 0), (2, 2), (4, 4))
    for at in (1, 3):
        world.end(tasks[at])
    assert world.job(array).tasks_ok == ((0, 4),)
