"""One of several dependencies is enough (`?`), and dependencies on single tasks of an array."""

from __future__ import annotations

import itertools

import pytest

from eslurm.core.control.jobs.dependency import settled_by
from eslurm.core.control.timers import drop_stale
from eslurm.core.model.job import Dependency
from eslurm.core.model.job_states import JobState
from tests.kits.core import SECOND, World, depends, refused

MET, NEVER, WAIT = "met", "never", "wait"
RUNS, WELL, BADLY, CANCELLED = "runs", "well", "badly", "cancelled"
VERDICTS = {
    "after": {RUNS: MET, WELL: MET, BADLY: MET, CANCELLED: MET},
    "afterany": {RUNS: WAIT, WELL: MET, BADLY: MET, CANCELLED: MET},
    "afterok": {RUNS: WAIT, WELL: MET, BADLY: NEVER, CANCELLED: NEVER},
    "afternotok": {RUNS: WAIT, WELL: NEVER, BADLY: MET, CANCELLED: MET},
    "aftercorr": {RUNS: WAIT, WELL: MET, BADLY: NEVER, CANCELLED: NEVER},
}


def verdict(world: World, job: int) -> str:
    if job not in world.state.jobs or world.state_of(job) == "CANCELLED":
        return NEVER
    return MET if job in world.state.queue or world.job(job).attempt is not None else WAIT


def bring(world: World, job: int, outcome: str) -> None:
    if outcome == CANCELLED:
        world.cancel(job)
        if world.job(job).attempt is not None:
            world.end(job, 15)
        return
    if world.job(job).attempt is None:
        world.start()
    if outcome != RUNS:
        world.end(job, 0 if outcome == WELL else 1)


@pytest.mark.parametrize("is_any", [True, False])
@pytest.mark.parametrize("kind", VERDICTS)
@pytest.mark.parametrize(("one", "other"), tuple(itertools.product((RUNS, WELL, BADLY, CANCELLED), repeat=2)))
def test_each_kind_and_outcome(kind: str, one: str, other: str, is_any: bool) -> None:
    world = World()
    first, second = world.submit(), world.submit()
    both = (*depends(kind, first), *depends("afterok", second))
    waiting = world.submit(dependencies=both, dependency_any=is_any)
    bring(world, first, one)
    bring(world, second, other)
    world.restart()
    found = {VERDICTS[kind][one], VERDICTS["afterok"][other]}
    strongest = (MET, WAIT, NEVER) if is_any else (NEVER, WAIT, MET)
    assert verdict(world, waiting) == next(one for one in strongest if one in found)


def test_what_can_never_be_met_is_dropped_and_the_last_one_is_named() -> None:
    world = World()
    jobs = [world.submit() for _ in range(3)]
    dependencies = tuple(Dependency("afterok", job) for job in jobs)
    waiting = world.submit(dependencies=dependencies, dependency_any=True)
    world.cancel(jobs[0])
    world.cancel(jobs[2])
    assert world.job(waiting).open == depends("afterok", jobs[1])
    world.cancel(jobs[1])
    assert world.state_of(waiting) == "CANCELLED"
    assert world.job(waiting).exit_text == f"dependency afterok:{jobs[1]} can never be met"


def test_a_new_job_is_refused_only_when_none_can_be_met() -> None:
    world = World()
    ended, waits = world.submit(), world.submit()
    world.cancel(ended)
    pair = (*depends("afterok", ended), *depends("afterok", waits))
    known = world.submit(dependencies=pair, dependency_any=True)
    assert world.job(known).open == depends("afterok", waits)
    assert f"afterok:{ended} can never be met" in refused(world.try_submit(dependencies=pair))
    alone = depends("afterok", ended) * 2
    assert "can never be met" in refused(world.try_submit(dependencies=alone, dependency_any=True))
    unknown = (*depends("afterok", waits), *depends("afterok", 777))
    text = refused(world.try_submit(dependencies=unknown, dependency_any=True))
    assert text == "--dependency: job 777 does not exist"


def test_a_delay_counts_beside_the_others() -> None:
    world = World()
    first, second = world.submit(), world.submit(held=True)
    either = (*depends("after", first, 60), *depends("afterany", second))
    by_time, by_end = (world.submit(dependencies=either, dependency_any=True) for _ in range(2))
    world.start()
    begun_us = world.now_us
    assert [one.due_us for one in world.job(by_time).open] == [begun_us + 60 * SECOND, 0]
    assert world.state.later.find(by_time) is not None, "its start can be foreseen"
    world.restart()
    drop_stale(world.state)
    world.pass_time(59)
    assert verdict(world, by_time) == WAIT
    world.pass_time(1)
    assert verdict(world, by_time) == MET
    late = world.submit(dependencies=either, dependency_any=True)
    assert verdict(world, late) == MET, "the delay has passed already"
    assert not world.state.dependents
    assert verdict(world, by_end) == MET


def test_a_delay_after_a_job_that_has_left_memory_is_kept() -> None:
    world = World()
    other = world.submit(held=True)
    either = (Dependency("after", 777, 60, settled=MET), *depends("afterok", other))
    waiting = world.submit(dependencies=either, dependency_any=True)
    world.restart()
    world.pass_time(59)
    assert verdict(world, waiting) == WAIT
    world.pass_time(1)
    assert verdict(world, waiting) == MET


def test_the_end_of_another_comes_before_the_delay() -> None:
    world = World()
    first, second = world.submit(), world.submit(held=True)
    either = (*depends("after", first, 60), *depends("afterany", second))
    waiting = world.submit(dependencies=either, dependency_any=True)
    world.start()
    world.pass_time(5)
    world.cancel(second)
    assert verdict(world, waiting) == MET
    world.pass_time(100)
    assert verdict(world, waiting) == MET


# ---- tasks ----


@pytest.mark.parametrize("kind", VERDICTS)
@pytest.mark.parametrize("outcome", [RUNS, WELL, BADLY, CANCELLED])
def test_one_task_of_an_array(kind: str, outcome: str) -> None:
    world = World()
    array = world.submit(tasks=((0, 3),))
    waiting = world.submit(dependencies=(Dependency(kind, array, task=2),))
    if outcome == CANCELLED:
        world.cancel(array, 2)
    else:
        tasks = {world.job(one).array_task: one for one in world.start()}
        assert verdict(world, waiting) == VERDICTS[kind][RUNS]
        world.end(tasks[1], 1)
        assert verdict(world, waiting) == VERDICTS[kind][RUNS], "another task's end says nothing"
        if outcome != RUNS:
            world.end(tasks[2], 0 if outcome == WELL else 1)
    assert verdict(world, waiting) == VERDICTS[kind][outcome]
    if VERDICTS[kind][outcome] == NEVER:
        assert world.job(waiting).exit_text == f"dependency {kind}:{array}_2 can never be met"
    world.restart()
    assert not world.state.task_dependents or outcome == RUNS


def test_a_task_that_has_ended_and_one_that_is_not_there() -> None:
    world = World()
    plain, array = world.submit(held=True), world.submit(tasks=((0, 1), (4, 4)))
    tasks = world.start()
    world.end(tasks[0], 1)
    assert "never be met" in refused(world.try_submit(dependencies=(Dependency("afterok", array, task=0),)))
    assert verdict(world, world.submit(dependencies=(Dependency("afternotok", array, task=0),))) == MET
    text = refused(world.try_submit(dependencies=(Dependency("afterok", array, task=2),)))
    assert text == f"--dependency: array {array} has no task 2"
    text = refused(world.try_submit(dependencies=(Dependency("afterok", plain, task=2),)))
    assert text.startswith(f"--dependency: job {plain} is no array and has no task 2")
    text = refused(world.try_submit(dependencies=(Dependency("afterok", plain, part=2),)))
    assert "there is no part 2" in text
    assert text.endswith(f"(minutes are for after alone: after:{plain}+2)")


def test_a_task_of_an_array_that_has_left_memory() -> None:
    world = World()
    array = world.submit(tasks=((0, 1),))
    tasks = world.start()
    world.end(tasks[0])
    world.end(tasks[1], 1)
    record = world.job(array)
    assert record.state is JobState.FAILED
    given = tuple(Dependency("afterok", array, task=task) for task in (0, 1, 9))
    assert [one.settled for one in settled_by(given, {array: record})] == [MET, NEVER, ""]


def test_an_array_is_kept_while_one_of_its_tasks_is_waited_for() -> None:
    world = World(finished_jobs_max=0)
    array = world.submit(tasks=((0, 1),))
    task_waits = world.submit(dependencies=(Dependency("afterany", array, task=1),), held=True)
    world.cancel(array)
    assert array in world.state.jobs
    world.pass_time(1)
    assert verdict(world, task_waits) == WAIT
    assert not world.job(task_waits).open


def test_the_end_of_a_task_concerns_only_the_jobs_that_wait_for_it() -> None:
    world = World()
    array = world.submit(tasks=((0, 3),))
    waiting = [world.submit(dependencies=(Dependency("afterany", array, task=task),)) for task in range(4)]
    tasks = {world.job(one).array_task: one for one in world.start()}
    for task, job in enumerate(waiting):
        world.end(tasks[task])
        assert [verdict(world, one) for one in waiting[task:]] == [MET, *[WAIT] * (3 - task)]
        world.cancel(job)


# ---- arrays that wait for one of several ----


def test_any_of_arrays_task_by_task() -> None:
    world = World()
    one, other = world.submit(tasks=((0, 2),)), world.submit(tasks=((0, 2),))
    either = (*depends("aftercorr", one), *depends("aftercorr", other))
    waiting = world.submit(tasks=((0, 2),), dependencies=either, dependency_any=True)
    tasks = {(world.job(id_).array_job_id, world.job(id_).array_task): id_ for id_ in world.start()}
    world.end(tasks[one, 0])
    world.end(tasks[one, 1], 1)
    assert world.job(waiting).tasks_ready == ((0, 0),)
    assert world.job(waiting).tasks_failed == ()
    world.end(tasks[other, 1], 1)
    assert world.job(waiting).tasks_failed == ((1, 1),)
    world.end(tasks[other, 2])
    world.restart()
    world.end(tasks[one, 2], 1)
    world.end(tasks[other, 0], 1)
    assert not world.job(waiting).open
    started = world.start()
    assert sorted(world.job(id_).array_task for id_ in started) == [0, 2]


def test_a_plain_dependency_lets_all_tasks_go() -> None:
    world = World()
    array, plain = world.submit(tasks=((0, 2),)), world.submit(held=True)
    either = (*depends("aftercorr", array), *depends("afterany", plain))
    waiting = world.submit(tasks=((0, 2),), dependencies=either, dependency_any=True)
    tasks = world.start()
    assert verdict(world, waiting) == WAIT
    world.end(tasks[1], 1)
    assert world.job(waiting).tasks_failed == (), "the plain job may still let it go"
    world.end(tasks[0])
    assert [world.job(id_).array_task for id_ in world.start()] == [0]
    world.cancel(plain)
    assert sorted(world.job(id_).array_task for id_ in world.start()) == [1, 2]


def test_tasks_are_given_up_with_the_last_hope() -> None:
    world = World()
    array, plain = world.submit(tasks=((0, 1),)), world.submit(held=True)
    either = (*depends("aftercorr", array), *depends("afterok", plain))
    waiting = world.submit(tasks=((0, 1),), dependencies=either, dependency_any=True)
    tasks = world.start()
    world.end(tasks[0], 1)
    world.cancel(plain)
    assert world.job(waiting).tasks_failed == ((0, 0),)
    world.end(tasks[1], 1)
    assert world.state_of(waiting) == "CANCELLED"
