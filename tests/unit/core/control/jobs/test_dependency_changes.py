"""Changes of what a waiting job depends on, and the cycles that they may not close."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.control.jobs import dependency_cycles
from eslurm.core.control.reactor import Reactor
from eslurm.core.model.job import Dependency, Principal
from eslurm.core.model.messages import JobRef, UpdateJob
from eslurm.core.model.promise import Promise, PromisedStart
from tests.kits.core import ALICE, BOB, SECOND, World, depends, problem


def change(
    world: World, job: int, *dependencies: Dependency, any_: bool = False, by: Principal = ALICE
) -> object:
    return world.send(UpdateJob(by, JobRef(job), dependencies=dependencies, dependency_any=any_))


def unchecked(**config: object) -> World:
    """A world into which a test may put records by itself."""
    world = World(restarts=False, **config)  # type: ignore[arg-type]
    world.reactor = Reactor(world.state)
    return world


def rename(world: World, job: int, name: str) -> object:
    return world.send(UpdateJob(ALICE, JobRef(job), name=name))


def test_a_job_waits_for_others_than_before() -> None:
    world = World()
    first, second, third = (world.submit(held=True) for _ in range(3))
    job = world.submit(dependencies=depends("afterok", first))
    change(world, job, *depends("afterany", second))
    assert world.job(job).open == depends("afterany", second)
    assert world.job(job).spec.dependencies == depends("afterany", second)
    change(world, job, *depends("afterok", second), *depends("afterok", third), any_=True)
    world.restart()
    world.cancel(second)
    assert world.job(job).open == depends("afterok", third)
    change(world, job)
    assert job in world.state.queue
    assert not world.state.dependents
    assert world.job(job).spec.dependencies == ()


def test_a_job_that_waits_for_resources_waits_for_a_job_again() -> None:
    world = World()
    other, job = world.submit(held=True), world.submit()
    assert job in world.state.queue
    change(world, job, *depends("afterany", other))
    assert job not in world.state.queue
    assert world.plan() == []
    world.cancel(other)
    assert world.start() == [job]


def test_a_plan_made_before_the_change_is_not_carried_out() -> None:
    world = World()
    other, job = world.submit(held=True), world.submit()
    generation = world.state.generation
    change(world, job, *depends("afterany", other))
    assert world.state.changed[job] > generation


def test_a_changed_dependency_takes_its_delay_along() -> None:
    world = World()
    first, job = world.submit(), world.submit(held=True)
    world.start()
    change(world, job, *depends("after", first, 60))
    assert world.job(job).not_before_us == world.now_us + 60 * SECOND
    change(world, job, *depends("after", first))
    assert world.job(job).not_before_us == 0


def test_an_array_changes_from_whole_to_task_by_task_and_back() -> None:
    world = World()
    array = world.submit(tasks=((0, 1),))
    other = world.submit(held=True)
    job = world.submit(tasks=((0, 1),), dependencies=depends("afterok", other))
    tasks = world.start()
    world.end(tasks[0])
    change(world, job, *depends("aftercorr", array))
    assert world.job(job).tasks_ready == ((0, 0),)
    change(world, job, *depends("afterok", other))
    assert world.job(job).tasks_ready is None
    assert job not in world.state.queue


def test_a_dependency_that_can_never_be_met_changes_nothing() -> None:
    world = World()
    ended, other = world.submit(), world.submit(held=True)
    job = world.submit(dependencies=depends("afterok", other))
    world.cancel(ended)
    text = problem(change(world, job, *depends("afterok", ended)))  # type: ignore[arg-type]
    assert "can never be met" in text
    text = problem(change(world, job, *depends("afterok", 4_711)))  # type: ignore[arg-type]
    assert text == "--dependency: job 4711 does not exist"
    assert world.job(job).open == depends("afterok", other)
    text = problem(change(world, job, *depends("afterok", other), by=BOB))  # type: ignore[arg-type]
    assert "belongs to alice" in text


def test_a_running_job_waits_for_nothing_any_more() -> None:
    world = World()
    job, other = world.submit(), world.submit(held=True)
    world.start()
    text = problem(change(world, job, *depends("afterok", other)))  # type: ignore[arg-type]
    assert text.startswith(
        f"job {job} is RUNNING: only its time limit and its comment can be changed, not dependencies"
    )


def test_a_promise_ends_with_a_new_dependency() -> None:
    world = unchecked()
    other, job = world.submit(held=True), world.submit()
    world.state.put_promise(Promise(job, (PromisedStart(world.now_us + SECOND, (), ()),)))
    change(world, job)
    assert job in world.state.promises, "waiting for nothing is no reason to lose a start"
    change(world, job, *depends("afterok", other))
    assert job not in world.state.promises


# ---- cycles ----


def cycle(answer: object) -> str:
    text = problem(answer)  # type: ignore[arg-type]
    assert "would wait for itself: " in text, text
    return text.partition("would wait for itself: ")[2]


def test_the_shortest_cycle_is_named() -> None:
    world = World()
    first = world.submit(held=True)
    second = world.submit(dependencies=depends("afterok", first))
    third = world.submit(dependencies=(*depends("after", second), *depends("after", first)))
    fourth = world.submit(dependencies=depends("afterany", third))
    assert (
        cycle(change(world, first, *depends("afterok", fourth)))
        == f"{first} -> {fourth} -> {third} -> {first}"
    )
    assert cycle(change(world, first, *depends("afterok", first))) == f"{first} -> {first}"
    assert world.job(first).open == ()
    change(world, fourth, *depends("afterok", second))
    change(world, third, *depends("afterok", fourth))
    assert world.job(third).open == depends("afterok", fourth)


def test_arrays_and_their_tasks_are_one() -> None:
    world = World()
    array = world.submit(tasks=((0, 3),))
    task = world.start()[0]
    by_task = world.submit(dependencies=(Dependency("afterok", array, task=3),))
    by_id = world.submit(dependencies=depends("afterok", task))
    for waiting in (by_task, by_id):
        held = world.submit(tasks=((0, 1),), held=True)
        change(world, waiting, *world.job(waiting).spec.dependencies, *depends("afterok", held))
        assert cycle(change(world, held, *depends("afterok", waiting))) == f"{held} -> {waiting} -> {held}"


def test_singletons_wait_too() -> None:
    world = World()
    first = world.submit(name="a", held=True)
    single = world.submit(name="a", dependencies=depends("singleton"))
    last = world.submit(name="b", dependencies=depends("afterany", single))
    assert (
        cycle(change(world, first, *depends("afterany", last))) == f"{first} -> {last} -> {single} -> {first}"
    )
    elsewhere = world.submit(name="c", held=True)
    world.submit(name="d", held=True)
    twin = world.submit(name="d", dependencies=depends("singleton"))
    change(world, elsewhere, *depends("afterany", twin))
    assert cycle(rename(world, elsewhere, "d")) == f"{elsewhere} -> {twin} -> {elsewhere}"
    assert cycle(rename(world, twin, "c")) == f"{twin} -> {elsewhere} -> {twin}"


def test_other_users_jobs_are_not_named() -> None:
    world = unchecked(private=("jobs",))
    mine, last = world.submit(held=True), world.submit(held=True)
    theirs = world.submit(user=BOB, held=True)
    for job, before in ((theirs, mine), (last, theirs)):
        world.state.put_job(replace(world.job(job), open=depends("afterany", before)))
    shown = cycle(change(world, mine, *depends("afterany", last)))
    assert shown == f"{mine} -> {last} -> another user's job -> {mine}"


def test_a_long_cycle_is_named_in_short() -> None:
    world = World()
    first = last = world.submit(held=True)
    for _ in range(30):
        last = world.submit(dependencies=depends("afterok", last))
    shown = cycle(change(world, first, *depends("afterok", last)))
    assert shown.split(" -> ")[-2:] == ["21 more", str(first)]
    assert len(shown.split(" -> ")) == dependency_cycles.SHOWN_MAX


def test_the_search_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependency_cycles, "LOOKS_MAX", 20)
    world = World()
    first, other = world.submit(held=True), world.submit(held=True)
    last = first
    for _ in range(30):
        last = world.submit(dependencies=depends("afterok", last))
    text = problem(change(world, first, *depends("afterok", other)))  # type: ignore[arg-type]
    assert text.startswith("--dependency: more than 20 dependencies lead to job 1")
    change(world, last, *depends("afterok", other))
    assert world.job(last).open == depends("afterok", other), "nothing waits for the last one"
