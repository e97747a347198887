"""A pack that has not begun is held, released, cancelled and changed as one; afterwards its id names what has not ended."""

from __future__ import annotations

from eslurm.core.model.accounts import Account, Policy, User, kind_of
from eslurm.core.model.job import Span
from eslurm.core.model.messages import (
    CancelJobs,
    Changed,
    ChangePolicies,
    HoldJobs,
    JobRef,
    PlanMade,
    PolicyChange,
    Refused,
    Submitted,
    UpdateJob,
)
from eslurm.core.model.placement import Placement
from eslurm.core.model.request import Request
from tests.kits.core import ALICE, BOB, ROOT, SECOND, World, depends, problem
from tests.kits.packs import begin, member, pack, place, placement, try_pack


def states(world: World, *job_ids: int) -> list[str]:
    return [world.state_of(job_id) for job_id in job_ids]


def run(world: World) -> None:
    world.deliver()
    world.deliver()


def test_a_hold_of_any_job_holds_the_pack() -> None:
    world = World()
    first, second = pack(world, 0, 30)
    answer = world.hold(second)
    assert isinstance(answer, Changed)
    assert answer.notes == (
        f"{second} is part 1 of pack {first}, which has not begun: this concerns all of its 2 jobs",
    )
    assert not len(world.state.queue)
    assert [world.job(one).hold for one in (first, second)] == ["user", "user"]
    assert begin(world, first) == []
    world.hold(second, release=True)
    assert [world.job(one).hold for one in (first, second)] == ["", ""]
    assert first in world.state.queue


def test_jobs_of_one_pack_named_together_are_changed_once() -> None:
    world = World()
    first, second, third = pack(world, 0, 30, 60)
    answer = world.send(HoldJobs(ALICE, (JobRef(third), JobRef(first), JobRef(second))))
    assert isinstance(answer, Changed) and answer.count == 1
    assert world.kinds().count("JobHeld") == 1


def test_a_hold_of_an_administrator_is_not_lifted_by_another_job_of_it() -> None:
    world = World()
    first, second = pack(world, 0, 30)
    world.hold(first, ROOT)
    assert "administrator" in problem(world.hold(second, release=True))
    assert world.job(second).hold == "admin"


def test_a_cancelled_job_ends_a_pack_that_has_not_begun() -> None:
    world = World()
    first, second, third = pack(world, 0, 0, 60)
    plan = (placement(world, first, 0, begins=True), placement(world, second, 1))
    generation = world.state.generation
    world.cancel(third)
    assert states(world, first, second, third) == ["CANCELLED"] * 3
    # A plan that was under way comes too late.
    world.send(PlanMade(plan, generation))
    assert states(world, first, second, third) == ["CANCELLED"] * 3
    assert world.state.packs == {}


def test_the_id_of_a_pack_that_runs_cancels_all_that_has_not_ended() -> None:
    world = World()
    first, second, third = pack(world, 0, 10, 60)
    begin(world, first)
    run(world)
    world.pass_time(10)
    place(world, placement(world, second, 1))
    run(world)
    world.cancel(first)
    assert world.state_of(third) == "CANCELLED"
    stops = [world.attempt(one).stop for one in (first, second)]
    assert all(stop is not None and stop.cause.value == "cancel" for stop in stops)
    plan = placement(world, third, 2)
    world.pass_time(50)
    assert place(world, plan) == []


def test_another_id_of_a_pack_that_runs_cancels_that_job_alone() -> None:
    world = World()
    first, second, third = pack(world, 0, 10, 60)
    begin(world, first)
    run(world)
    world.cancel(second)
    assert states(world, first, second, third) == ["RUNNING", "CANCELLED", "PENDING"]
    assert third in world.state.queue


def test_the_id_of_a_pack_names_it_long_after_its_first_job_has_ended() -> None:
    world = World(finished_retention_s=5.0)
    for later in (False, True):
        first, second, third = pack(world, 0, 1000, 2000)
        begin(world, first)
        run(world)
        world.end(first)
        if later:
            world.pass_time(10)
            world.restart()
        answer = world.cancel(first)
        assert isinstance(answer, Changed) and not answer.problems
        assert states(world, second, third) == ["CANCELLED"] * 2
    assert "has already ended" in problem(world.cancel(second))


def test_a_selection_takes_the_jobs_of_a_running_pack_one_by_one() -> None:
    world = World()
    answer = try_pack(world, member("ocean"), member("plot"), delays=(0, 60))
    assert isinstance(answer, Submitted)
    first, second = answer.job_ids
    begin(world, first)
    run(world)
    world.send(CancelJobs(ALICE, name="ocean"))
    assert world.attempt(first).stop is not None
    assert second in world.state.queue


def test_a_pack_that_is_requeued_waits_as_a_whole_again() -> None:
    world = World()
    first, second, third = pack(world, 0, 10, 60)
    begin(world, first)
    run(world)
    world.pass_time(10)
    place(world, placement(world, second, 1))
    run(world)
    world.requeue(first)
    world.deliver()
    for one in (second, first):
        world.end(one, cause="signal")
    world.pass_time(60)
    assert states(world, first, second, third) == ["PENDING"] * 3
    entry = world.state.queue.find(first)
    assert entry is not None and len(entry.followers) == 2
    assert second not in world.state.queue


def test_a_follower_that_is_requeued_alone_waits_alone() -> None:
    world = World()
    first, second = pack(world, 0, 10)
    begin(world, first)
    run(world)
    world.pass_time(10)
    place(world, placement(world, second, 1))
    run(world)
    world.requeue(second)
    world.deliver()
    world.end(second, cause="signal")
    world.pass_time(60)
    assert states(world, first, second) == ["RUNNING", "PENDING"]
    entry = world.state.queue.find(second)
    assert entry is not None and not entry.start_at_us


def test_a_held_pack_that_runs_keeps_what_has_not_begun() -> None:
    world = World()
    first, second, third = pack(world, 0, 10, 60)
    begin(world, first)
    world.hold(first)
    assert [world.job(one).hold for one in (first, second, third)] == ["", "user", "user"]
    world.hold(second, release=True)
    assert second in world.state.queue and third not in world.state.queue


def test_a_hold_of_one_job_is_that_of_all_when_the_pack_waits_again() -> None:
    world = World()
    first, second, third = pack(world, 0, 10, 60)
    begin(world, first)
    world.hold(second, ROOT)
    world.lose(0)
    world.pass_time(60)
    assert [world.job(one).hold for one in (first, second, third)] == ["admin"] * 3
    assert not len(world.state.queue)


def test_one_priority_for_all() -> None:
    world = World()
    first, second = pack(world, 0, 30)
    world.send(UpdateJob(ROOT, JobRef(second), priority=1234))
    assert [world.job(one).priority for one in (first, second)] == [1234, 1234]
    entry = world.state.queue.entry(first)
    assert entry is not None and entry.rank == -1234


def test_a_begin_time_is_the_first_jobs() -> None:
    world = World()
    first, second = pack(world, 0, 30)
    later_us = world.now_us + 500 * SECOND
    said = problem(world.send(UpdateJob(ALICE, JobRef(second), begin_us=later_us)))
    assert said == f"begin: job {second} begins 30 s after job {first}: change job {first}"
    world.send(UpdateJob(ALICE, JobRef(first), begin_us=later_us))
    assert first in world.state.later
    world.send(UpdateJob(ALICE, JobRef(first), begin_us=0))
    begin(world, first)
    assert "its pack has begun" in problem(world.send(UpdateJob(ALICE, JobRef(second), begin_us=later_us)))
    assert "dependency: " in problem(world.send(UpdateJob(ALICE, JobRef(second), dependencies=())))


def test_a_change_that_lets_a_pack_never_run_is_refused() -> None:
    world = World(2, 4)
    first, second = pack(world, 0, 30, time_limit_s=20)
    world.send(UpdateJob(ALICE, JobRef(second), nodes_min=2, nodes_max=2))
    assert world.job(second).spec.components[0].nodes_min == 2
    whole = Request(nodes_min=2, nodes_max=2, exclusive=True)
    assert isinstance(world.send(UpdateJob(ALICE, JobRef(second), request=whole)), Changed)
    assert world.job(second).spec.components[0].exclusive
    said = problem(world.send(UpdateJob(ALICE, JobRef(first), time_limit_s=31)))
    assert "parts 0 and 1" in said and "they run at the same time" in said


def test_another_users_pack_is_left_alone() -> None:
    """Attack: another user names jobs of a pack, or its id, also beside jobs of their own."""
    world = World()
    first, second = pack(world, 0, 30)
    own = world.submit(user=BOB)
    for act in (
        CancelJobs(BOB, (JobRef(own), JobRef(second), JobRef(first))),
        HoldJobs(BOB, (JobRef(second),)),
    ):
        answer = world.send(act)
        assert isinstance(answer, Changed) and "belongs to alice" in answer.problems[0].text
    assert states(world, first, second, own) == ["PENDING", "PENDING", "CANCELLED"]
    assert world.job(first).hold == ""
    begin(world, first)
    run(world)
    world.end(first)
    assert "belongs to alice" in problem(world.cancel(first, by=BOB))
    assert world.state_of(second) == "PENDING"


def test_a_coordinator_of_one_account_does_not_reach_the_other_jobs() -> None:
    """Attack: a coordinator of one job's account would cancel or hold the others through it."""
    world = World()
    policies: tuple[Policy, ...] = (
        Account("a", coordinators=("bob",)),
        Account("b"),
        User("bob", ("a",)),
        User("alice", ("a", "b")),
    )
    changes = [PolicyChange("set", kind_of(one), one.name, one) for one in policies]
    assert isinstance(world.send(ChangePolicies(ROOT, tuple(changes))), Changed)
    answer = try_pack(world, member(account="b"), member(account="a"), delays=(0, 30))
    assert isinstance(answer, Submitted)
    first, second = answer.job_ids
    for act in (CancelJobs(BOB, (JobRef(second),)), HoldJobs(BOB, (JobRef(second),))):
        assert "belongs to alice" in problem(world.send(act))
    assert states(world, first, second) == ["PENDING", "PENDING"]
    assert first in world.state.queue
    begin(world, first)
    world.cancel(second, by=BOB)
    assert states(world, first, second) == ["LAUNCHING", "CANCELLED"]


def test_the_jobs_of_a_pack_wait_for_its_first_one() -> None:
    """Goal: a job that waits for a later one of a pack cannot be what the pack waits for."""
    world = World()
    first, second = pack(world, 0, 30)
    other = world.submit(held=True)
    waits = UpdateJob(ALICE, JobRef(first), dependencies=depends("afterok", other), dependency_any=False)
    assert not isinstance(world.send(waits), Refused)
    said = problem(world.send(UpdateJob(ALICE, JobRef(other), dependencies=depends("afterok", second))))
    assert said.endswith(f"{other} -> {second} -> {first} -> {other}")
    said = problem(world.send(UpdateJob(ALICE, JobRef(first), dependencies=depends("afterok", second))))
    assert said.endswith(f"{first} -> {second} -> {first}")
    begin_alone = UpdateJob(ALICE, JobRef(first), dependencies=())
    world.send(begin_alone)
    begin(world, first)
    assert world.send(UpdateJob(ALICE, JobRef(other), dependencies=depends("afterok", second))) == Changed(1)


def test_the_first_job_of_a_pack_that_has_begun_is_named_alone() -> None:
    world = World()
    first, second = pack(world, 0, 1000)
    begin(world, first)
    run(world)
    alone = (JobRef(first, part=0),)
    assert isinstance(world.send(HoldJobs(ALICE, alone)), Changed)
    assert not world.job(second).hold, "the first one runs: nothing of it can be held"
    world.send(CancelJobs(ALICE, alone))
    world.deliver()
    world.end(first, 15)
    assert states(world, first, second) == ["CANCELLED", "PENDING"]


def test_a_part_of_the_first_job_names_that_job_alone() -> None:
    world = World()
    first, second = pack(world, 0, 1000, components=(Request(), Request()))
    begin_of_parts = Placement(
        first,
        (Span(0, (1, 0)), Span(1, (1, 0), component=1)),
        world.now_us + 100 * SECOND,
        anchor_us=world.now_us,
    )
    assert place(world, begin_of_parts) == [first]
    run(world)
    world.send(CancelJobs(ALICE, (JobRef(first + 1),)))
    assert world.attempt(first).stop is not None
    assert world.state_of(second) == "PENDING"


def test_the_pack_and_its_first_job_together_are_the_pack() -> None:
    world = World()
    first, second = pack(world, 0, 1000)
    begin(world, first)
    run(world)
    world.send(CancelJobs(ALICE, (JobRef(first, part=0), JobRef(first))))
    assert world.state_of(second) == "CANCELLED" and world.attempt(first).stop is not None
