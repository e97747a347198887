"""Packs: one entry of the queue until the first job starts, jobs with a time of their own afterwards; never some of them.

After each fact the world restores the state from the rows and checks every invariant.
"""

from __future__ import annotations

from eslurm.core.model.facts import JobPlaced
from eslurm.core.model.job import StepEnd
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import JobRef, PlanMade, RequeueJobs, UpdateJob
from eslurm.core.model.protocol import StepEnded
from eslurm.core.model.request import Request
from eslurm.core.state.pending_reason import pending_reason
from eslurm.core.state.rows import decode_job, encode
from tests.kits.core import ALICE, ROOT, SECOND, World
from tests.kits.packs import begin, pack, place, placement


def queued(world: World) -> list[int]:
    return [entry.job_id for entry in world.state.queue.first(9)]


def update(job_id: int, **changes: object) -> UpdateJob:
    return UpdateJob(ALICE, JobRef(job_id), **changes)  # type: ignore[arg-type]


def test_a_pack_waits_as_one_entry_that_carries_its_members() -> None:
    world = World()
    first, second, third = pack(world, 0, 30, 60)
    assert queued(world) == [first]
    entry = world.state.queue.find(first)
    assert entry is not None
    assert [(one.delay_us, one.job.job_id) for one in entry.followers] == [
        (30 * SECOND, second),
        (60 * SECOND, third),
    ]
    assert entry.followers[0].job.time_limit_us == 100 * SECOND
    assert world.state.pending_count == 3
    assert pending_reason(world.view, world.job(first)) == ""
    assert pending_reason(world.view, world.job(third)) == "PackNotBegun"


def test_the_first_start_anchors_the_others() -> None:
    world = World()
    first, second, third = pack(world, 0, 30, 60)
    assert begin(world, first) == [first]
    assert queued(world) == [second, third]
    for job_id, delay_s in ((second, 30), (third, 60)):
        entry = world.state.queue.find(job_id)
        assert entry is not None and entry.is_owed and not entry.followers
        assert entry.start_at_us == world.now_us + delay_s * SECOND
    assert {world.job(one).pack.anchor_us for one in (first, second, third)} == {world.now_us}  # type: ignore[union-attr]


def test_the_anchor_is_the_planned_start_not_that_of_the_script() -> None:
    world = World()
    first, second = pack(world, 0, 30)
    begin(world, first)
    anchor_us = world.now_us
    world.pass_time(7)
    world.deliver()
    world.deliver()
    assert world.state_of(first) == "RUNNING"
    entry = world.state.queue.find(second)
    assert entry is not None and entry.start_at_us == anchor_us + 30 * SECOND


def test_members_without_a_delay_begin_with_the_first_or_not_at_all() -> None:
    world = World()
    first, second, third = pack(world, 0, 0, 9)
    assert begin(world, first) == []
    assert place(world, placement(world, second, 1)) == []
    assert begin(world, first, second, third) == []
    assert queued(world) == [first]
    assert begin(world, first, second) == [first, second]
    assert queued(world) == [third]


def test_a_pack_without_an_anchor_is_not_placed() -> None:
    world = World()
    first, _ = pack(world, 0, 30)
    assert place(world, placement(world, first, 0)) == []
    assert queued(world) == [first]


def test_one_that_lost_its_room_keeps_all_of_them_waiting() -> None:
    world = World(2, 1)
    first, second = pack(world, 0, 0)
    plan = (placement(world, first, 0, begins=True), placement(world, second, 1))
    other = world.submit()
    place(world, placement(world, other, 1))
    assert place(world, *plan, older=True) == []
    assert queued(world) == [first]
    # Nothing of the first one's room was kept.
    assert place(world, placement(world, world.submit(), 0), older=True)


def test_a_member_is_not_placed_before_its_time() -> None:
    world = World()
    first, second, third = pack(world, 0, 30, 30)
    begin(world, first)
    assert place(world, placement(world, second, 1)) == []
    world.pass_time(30)
    assert place(world, placement(world, second, 1), placement(world, third, 2)) == [second, third]


def test_members_that_are_due_together_start_together() -> None:
    world = World(3, 1)
    first, second, third = pack(world, 0, 30, 30)
    begin(world, first)
    world.pass_time(30)
    place(world, placement(world, world.submit(), 2))
    plan = (placement(world, second, 1), placement(world, third, 2))
    assert place(world, *plan, older=True) == []
    # The next plan finds room for one of them only.
    assert place(world, placement(world, second, 1), older=True) == [second]


def test_a_change_of_any_member_makes_the_entry_anew_and_the_plan_under_way_void() -> None:
    world = World()
    first, second = pack(world, 0, 30)
    plan = (placement(world, first, 0, begins=True),)
    generation = world.state.generation
    world.send(update(second, time_limit_s=50))
    entry = world.state.queue.find(first)
    assert entry is not None and entry.followers[0].job.time_limit_us == 50 * SECOND
    assert not [one for one in world.batch(PlanMade(plan, generation)).facts if isinstance(one, JobPlaced)]


def test_a_pack_of_which_nothing_runs_waits_as_a_whole_again() -> None:
    world = World()
    first, second = pack(world, 0, 30)
    begin(world, first)
    world.pass_time(5)
    world.lose(0)
    assert world.state_of(first) == "PENDING"
    assert world.job(first).pack.anchor_us == 0  # type: ignore[union-attr]
    # After the pause of the first one.
    world.pass_time(60)
    assert queued(world) == [first]
    world.pass_time(5)
    assert place(world, placement(world, first, 1, begins=True)) == [first]
    entry = world.state.queue.find(second)
    assert entry is not None and entry.start_at_us == world.now_us + 30 * SECOND


def test_a_pack_that_begins_anew_owes_a_start_to_members_that_have_run_before() -> None:
    world = World()
    first, second = pack(world, 0, 20)
    begin(world, first)
    world.deliver()
    world.pass_time(20)
    place(world, placement(world, second, 1))
    world.deliver()
    world.send(RequeueJobs(ROOT, (JobRef(first),)))
    world.deliver()
    world.end(first, 15)
    world.end(second, 15)
    world.pass_time(60)
    begin(world, first)
    entry = world.state.queue.find(second)
    assert entry is not None and entry.is_owed
    assert entry.start_at_us == world.now_us + 20 * SECOND
    assert place(world, placement(world, second, 1)) == [], "not before its time"


def test_the_first_one_is_planned_alone_when_others_run() -> None:
    world = World()
    first, second, third = pack(world, 0, 10, 1000)
    begin(world, first)
    anchor_us = world.now_us
    world.pass_time(10)
    place(world, placement(world, second, 1))
    world.deliver()
    world.deliver()
    world.lose(0)
    world.pass_time(60)
    assert queued(world) == [first, third]
    entry = world.state.queue.find(first)
    assert entry is not None and not entry.followers and not entry.start_at_us
    assert world.job(third).pack.start_us == anchor_us + 1000 * SECOND  # type: ignore[union-attr]


def test_a_member_whose_launch_failed_is_owed_its_start_still() -> None:
    world = World()
    first, second = pack(world, 0, 10)
    begin(world, first)
    world.deliver()
    world.deliver()
    world.pass_time(10)
    place(world, placement(world, second, 1))
    for send in world.sends():
        world.done(send, "failed")
    assert world.state_of(second) == "PENDING"
    world.pass_time(61)
    entry = world.state.queue.find(second)
    assert entry is not None and entry.is_owed and entry.start_at_us < world.now_us


def test_a_failed_member_does_not_end_the_others() -> None:
    world = World()
    first, second = pack(world, 0, 30)
    begin(world, first)
    world.deliver()
    world.deliver()
    world.end(first, 1)
    assert world.state_of(first) == "FAILED"
    assert queued(world) == [second]
    world.pass_time(100_000)
    assert place(world, placement(world, second, 1)) == [second]
    world.deliver()
    world.deliver()
    world.end(second)
    assert world.state.packs == {}


def test_a_member_may_be_a_job_of_several_parts() -> None:
    world = World()
    first, second = pack(world, 0, 30, components=(Request(), Request()))
    assert second == first + 2
    entry = world.state.queue.find(first)
    assert entry is not None and len(entry.parts) == 2 and len(entry.followers[0].job.parts) == 2


def test_a_record_keeps_its_place() -> None:
    world = World()
    _, second = pack(world, 0, 30)
    place_of = world.job(second).pack
    assert decode_job(encode(world.job(second))).pack == place_of
    assert place_of is not None and (place_of.index, place_of.count) == (1, 2)
    assert world.job(second).state is JobState.PENDING


def test_what_is_launched_beside_a_first_job_that_could_not_be_waits_with_it_again() -> None:
    """Goal: a job does not run ahead of its pack's first one because that one's node refused it."""
    world = World()
    first, second, _ = pack(world, 0, 0, 30)
    begin(world, first, second)
    for send in world.sends():
        if send.nodes == (0,):
            world.done(send, "failed")
    assert world.state_of(first) == "PENDING"
    stop = world.attempt(second).stop
    assert stop is not None and stop.cause.value == "requeue"
    world.deliver()
    world.report(StepEnded(1, 1, second, 1, StepEnd(0, cause="signal"), True))
    world.pass_time(61)
    assert queued(world) == [first]
    entry = world.state.queue.find(first)
    assert entry is not None and len(entry.followers) == 2


def test_what_has_started_beside_it_goes_on() -> None:
    world = World()
    first, second, third = pack(world, 0, 0, 30)
    begin(world, first, second)
    sends = sorted(world.sends(), key=lambda send: send.nodes == (0,))
    for send in sends:
        world.done(send, "failed" if send.nodes == (0,) else "ok", payload=world.answer_of(send))
    assert (world.state_of(first), world.state_of(second)) == ("PENDING", "RUNNING")
    assert world.attempt(second).stop is None
    world.pass_time(61)
    assert queued(world) == [first, third]


def test_what_may_run_only_once_is_not_taken_back() -> None:
    world = World()
    first, second = pack(world, 0, 0, requeue=False)
    begin(world, first, second)
    for send in world.sends():
        if send.nodes == (0,):
            world.done(send, "failed")
    assert world.attempt(second).stop is None
