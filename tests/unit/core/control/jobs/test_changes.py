"""Holding, changing and forgetting jobs, and the timers behind it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.control.timers import next_timer_us
from eslurm.core.model.config import Partition
from eslurm.core.model.facts import JobsForgotten
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import Changed, ConfigLoaded, JobRef, PlanMade, UpdateJob
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import plan_at_once
from eslurm.core.plan.cycle.plan import Plan
from eslurm.core.plan.cycle.snapshot import Snapshot
from tests.kits.core import ALICE, BOB, ROOT, SECOND, World, depends, problem


def update(world: World, job: int, by: Principal = ALICE, **changes: object) -> BatchAnswer:
    return world.send(UpdateJob(by, JobRef(job), **changes))  # type: ignore[arg-type]


# ---- holds ----


def test_a_held_job_waits_until_it_is_released() -> None:
    world = World()
    job = world.submit(held=True)
    assert world.plan() == []
    world.hold(job, release=True)
    assert world.start() == [job]
    assert "only waiting jobs can be held" in problem(world.hold(job))


def test_an_administrators_hold_is_not_the_users_to_lift() -> None:
    world = World()
    job = world.submit()
    world.hold(job, by=ROOT)
    assert (world.job(job).hold, world.job(job).reason_text) == ("admin", "held by root")
    assert "held by an administrator" in problem(world.hold(job, release=True))
    assert world.hold(job) == Changed(1)
    assert world.job(job).hold == "admin", "a hold on top must not weaken it"
    assert "held by an administrator" in problem(world.hold(job, release=True))
    assert world.hold(job, by=ROOT, release=True) == Changed(1)
    assert world.start() == [job]


def test_an_administrator_may_take_over_a_users_hold() -> None:
    world = World()
    job = world.submit(held=True)
    world.hold(job, by=ROOT)
    assert world.job(job).hold == "admin"


@pytest.mark.parametrize("waits_for_another", [False, True])
@pytest.mark.parametrize("way", ["cancel", "hold"])
def test_a_job_that_waits_no_longer_leaves_its_place_to_others(way: str, waits_for_another: bool) -> None:
    world = World()
    first = world.submit()
    job = world.submit(dependencies=depends("afterany", first) if waits_for_another else ())
    world.state.plan_wanted = False
    (world.cancel if way == "cancel" else world.hold)(job)
    assert world.state.plan_wanted


# ---- changes ----


def test_what_was_asked_can_be_changed_while_it_waits() -> None:
    world = World(partitions=(Partition("main", ("cn0", "cn1"), default=True), Partition("fat", ("cn2",))))
    job = world.submit(held=True)
    update(
        world,
        job,
        name="new",
        partition="fat",
        time_limit_s=99,
        priority=5,
        comment="later",
        begin_us=world.now_us + SECOND,
    )
    changed = world.job(job)
    assert (changed.spec.name, changed.spec.partition, changed.spec.comment) == ("new", "fat", "later")
    assert (changed.spec.time_limit_s, changed.priority) == (99, 5)
    assert changed.not_before_us == world.now_us + SECOND
    world.hold(job, release=True)
    world.pass_time(1)
    world.start()
    assert world.attempt(job).first == 2
    assert "only its time limit and its comment can be changed, not name" in problem(
        update(world, job, name="newer")
    )


def test_a_changed_job_is_checked_like_a_new_one() -> None:
    limited = Partition("main", ("cn0", "cn1"), default=True, time_limit_max_s=600)
    world = World(nodes=2, partitions=(limited,))
    job = world.submit()
    assert "--time: 700 s" in problem(update(world, job, time_limit_s=700))
    assert "--partition" in problem(update(world, job, partition="nowhere"))
    assert "needs 3 nodes" in problem(update(world, job, nodes_min=3))
    assert "--nodes: 2-1 is no range" in problem(update(world, job, nodes_min=2, nodes_max=1))
    assert "priority: -1 is not within" in problem(update(world, job, priority=-1))
    assert "priority: 4294967296 is not within" in problem(update(world, job, ROOT, priority=2**32))
    assert world.job(job).spec.time_limit_s == 600


def test_a_width_can_be_given_by_its_upper_end_alone() -> None:
    world = World()
    job = world.submit(request=Request(nodes_min=1, nodes_max=1), held=True)
    update(world, job, nodes_max=3)
    assert world.job(job).spec.components[0].nodes_max == 3


def test_priority_is_lowered_by_users_and_raised_by_operators() -> None:
    world = World()
    first, second = world.submit(), world.submit()
    assert update(world, first, priority=10) == Changed(1)
    assert [entry.job_id for entry in world.state.queue.first(9)] == [second, first]
    assert "only operators may raise it" in problem(update(world, first, priority=20))
    assert update(world, first, ROOT, priority=5000) == Changed(1)
    assert [entry.job_id for entry in world.state.queue.first(9)] == [first, second]
    assert update(world, first, name="still-mine") == Changed(1)
    assert world.job(first).priority == 5000


def test_a_job_of_a_former_operator_can_still_be_changed() -> None:
    world = World(operators=(0, BOB.uid))
    job = world.submit(user=BOB, priority=5000)
    world.send(ConfigLoaded(replace(world.state.config, operators=(0,))))
    assert update(world, job, ROOT, comment="checked") == Changed(1)


def test_a_changed_time_limit_changes_what_is_planned() -> None:
    world = World()
    job = world.submit(time_limit_s=60)
    update(world, job, time_limit_s=120)
    world.start()
    assert world.attempt(job).until_us == world.now_us + 120 * SECOND


def planned(world: World) -> Plan:
    """A plan on the state as it is now, to be applied later."""
    state = world.state
    snapshot = Snapshot.take(
        state.ledger, state.partition_views, state.queue, generation=state.generation, now_us=world.now_us
    )
    return plan_at_once(snapshot)


@pytest.mark.parametrize("change", ["partition", "time_limit_s", "hold", "cancel", "nodes"])
def test_a_plan_for_a_job_that_has_changed_meanwhile_is_not_carried_out(change: str) -> None:
    world = World(partitions=(Partition("main", ("cn0", "cn1"), default=True), Partition("fat", ("cn2",))))
    job, other = world.submit(time_limit_s=60), world.submit()
    plan = planned(world)
    assert [placement.job_id for placement in plan.placements] == [job, other]
    match change:
        case "partition":
            update(world, job, partition="fat")
        case "time_limit_s":
            update(world, job, time_limit_s=3600)
        case "hold":
            world.hold(job)
        case "cancel":
            world.cancel(job)
        case "nodes":
            update(world, job, nodes_min=2)
    batch = world.batch(PlanMade(plan.placements, plan.generation))
    assert [type(fact).__name__ for fact in batch.facts] == ["JobPlaced"]
    assert world.state_of(other) == "LAUNCHING"
    expected = {"partition": [job], "time_limit_s": [job], "nodes": [job]}.get(change, [])
    assert world.plan() == expected


def test_a_plan_made_before_a_new_configuration_is_void() -> None:
    world = World(nodes=2)
    job = world.submit()
    plan = planned(world)
    fewer = (Partition("main", ("cn1",), default=True),)
    world.send(ConfigLoaded(replace(world.state.config, partitions=fewer)))
    assert not world.batch(PlanMade(plan.placements, plan.generation)).facts
    world.start()
    assert world.attempt(job).first == 1


def test_a_plan_on_an_older_state_is_tried_on_what_is_free_now() -> None:
    world = World(nodes=1, cores=2)
    first, second = (
        world.submit(request=Request(cpus_per_task=2)),
        world.submit(request=Request(cpus_per_task=2)),
    )
    plan = planned(world)
    assert [placement.job_id for placement in plan.placements] == [first]
    world.hold(first)
    assert world.start() == [second]
    world.hold(first, release=True)
    assert not world.batch(PlanMade(plan.placements, plan.generation)).facts
    assert world.state_of(first) == "PENDING"


def test_a_plan_that_comes_after_the_whole_planned_stay_is_not_carried_out() -> None:
    """Its nodes were open for that stay, and may be closed now."""
    world = World(nodes=1)
    job = world.submit(time_limit_s=5)
    plan = planned(world)
    world.now_us += 4 * SECOND
    message = PlanMade(plan.placements, plan.generation)
    world.now_us += SECOND
    assert not world.batch(message).facts
    assert world.start() == [job]


# ---- time ----


def test_the_next_timer_is_known() -> None:
    world = World(nodes=1)
    world.pass_time(0)
    world.submit(begin_us=world.now_us + 7 * SECOND)
    due_us = min(at for at, kind, _ in world.state.timers if kind == "due")
    assert due_us == world.now_us + 7 * SECOND
    assert next_timer_us(world.state) is not None


def test_a_start_time_that_is_moved_leaves_the_old_timer_without_effect() -> None:
    world = World()
    job = world.submit(begin_us=world.now_us + 10 * SECOND)
    update(world, job, begin_us=world.now_us + 20 * SECOND)
    world.pass_time(10)
    assert world.plan() == []
    world.pass_time(10)
    assert world.start() == [job]


def test_a_start_time_survives_a_restart() -> None:
    world = World()
    job = world.submit(begin_us=world.now_us + 10 * SECOND)
    world.restart()
    world.pass_time(10)
    assert world.start() == [job]


def test_time_never_goes_back() -> None:
    world = World()
    job = world.submit(begin_us=world.now_us + 10 * SECOND)
    world.pass_time(10)
    world.now_us -= 100 * SECOND
    world.pass_time(0)
    assert world.state.now_us == world.now_us + 100 * SECOND
    assert job in world.state.queue


# ---- forgetting ----


def test_finished_jobs_are_forgotten_after_their_time() -> None:
    world = World(finished_retention_s=60.0)
    job = world.submit()
    world.start()
    world.end(job)
    world.pass_time(59)
    assert world.state_of(job) == "COMPLETED"
    world.pass_time(1)
    assert world.state.jobs == {}
    assert "does not exist or has ended long ago" in problem(world.cancel(job))


def test_no_more_finished_jobs_are_kept_than_the_bound_says() -> None:
    world = World(finished_jobs_max=3)
    jobs = [world.submit() for _ in range(6)]
    for job in jobs:
        world.cancel(job)
    assert next_timer_us(world.state) == world.state.now_us, "the bound is a reason to tick"
    world.pass_time(0)
    assert sorted(world.state.jobs) == jobs[3:]
    assert len(world.state.finished) == 3


def test_the_bound_does_not_keep_other_timers_waiting() -> None:
    world = World(nodes=1, cores=4, finished_jobs_max=0)
    late = world.submit(begin_us=world.now_us + SECOND)
    array = world.submit(tasks=((0, 0),))
    (task,) = world.start()
    world.end(task)
    world.cancel(world.submit())
    world.pass_time(2)
    assert late in world.state.queue
    world.pass_time(2)
    assert array not in world.state.jobs


def test_an_array_is_forgotten_after_its_tasks() -> None:
    world = World(finished_retention_s=10.0)
    array = world.submit(tasks=((0, 1),), limit=1)
    (first,) = world.start()
    world.end(first)
    (second,) = world.start()
    world.end(second)
    for _ in range(3):
        world.pass_time(10)
    forgotten = [fact.job_ids[0] for fact in world.log if isinstance(fact, JobsForgotten)]
    assert sorted(forgotten) == [array, first, second]
    assert forgotten[-1] == array
    assert not world.state.tasks_of


def test_a_cancelled_job_is_kept_until_its_last_node_is_free() -> None:
    world = World(finished_retention_s=10.0)
    job = world.submit(request=Request(tasks=8, nodes_min=2, nodes_max=2))
    world.plan()
    (prepare,) = world.sends()
    world.done(prepare, nodes=(0,))
    world.cancel(job)
    world.pass_time(60)
    assert world.state_of(job) == "CANCELLED"
    world.restart()
    assert world.job(job).residues[0].held == {0, 1}
    world.gone(0, job, 1)
    world.gone(1, job, 1)
    world.pass_time(60)
    assert job not in world.state.jobs


def test_a_job_with_dependents_may_be_forgotten() -> None:
    world = World(finished_retention_s=10.0)
    first = world.submit()
    second = world.submit(dependencies=depends("afterany", first), held=True)
    world.cancel(first)
    world.pass_time(60)
    world.hold(second, release=True)
    assert world.start() == [second]
