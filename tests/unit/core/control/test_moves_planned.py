"""Wishes between commands, log and planner: a pack moves its members to come, a running job gets more time (D-06, D-07)."""

from __future__ import annotations

import pytest

from eslurm.core.control.planning import messages_of, plan_slices
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.explain.moves import would_extend, would_move
from eslurm.core.model.config import Partition
from eslurm.core.model.facts import ExtensionAnswered, JobPlaced, MoveAsked, PackMoved, TimeChanged
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import (
    ExtendJob,
    ExtensionTaken,
    JobRef,
    MovePack,
    MoveTaken,
    PlanMade,
    RefusalCode,
    Refused,
    SuspendJobs,
)
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.state.rows import decode_job, encode
from tests.kits.core import ALICE, BOB, ROOT, SECOND, World, refused
from tests.kits.mirror import picture
from tests.kits.packs import member, pack, try_pack
from tests.kits.running import run
from tests.unit.core.control.test_promises import Led

WHOLE = Request(cpus_per_task=4)
ALL = ("conservative", "easy", "fcfs", "planned")
AHEAD = ("conservative", "planned")


def begun(
    policy: str = "planned", *delays: int, nodes: int = 3, limit_s: int = 100
) -> tuple[Led, tuple[int, ...]]:
    """A pack of whole nodes that has begun, and the ids of its jobs."""
    led = Led(policy, nodes=nodes)
    specs = [member(f"part{at}", components=(WHOLE,), time_limit_s=limit_s) for at in range(len(delays))]
    ids = try_pack(led, *specs, delays=delays).job_ids  # type: ignore[union-attr]
    led.settle()
    led.cycle()
    assert led.job(ids[0]).attempt is not None
    return led, ids


def ask(
    world: World, job_id: int, *, earlier_s: int = 0, to_us: int = 0, by: Principal = ALICE
) -> BatchAnswer:
    return world.send(MovePack(by, JobRef(job_id), earlier_s * SECOND, to_us))


def longer(world: World, job_id: int, by_s: int = 0, to_s: int = 0, by: Principal = ALICE) -> BatchAnswer:
    return world.send(ExtendJob(by, JobRef(job_id), by_s, to_s))


def code(answer: BatchAnswer) -> RefusalCode:
    assert isinstance(answer, Refused)
    return answer.code


def starts_s(led: Led, *ids: int) -> list[int]:
    """The owed starts in seconds after that of the first."""
    places = [led.job(one).pack for one in ids]
    return [(one.start_us - one.anchor_us) // SECOND for one in places if one is not None]


def said(world: World, job_id: int) -> str:
    place = world.job(job_id).pack
    assert place is not None and place.wish is not None
    return place.wish.said


# ---- earlier starts ----


@pytest.mark.parametrize("policy", ALL)
def test_the_next_cycle_moves_all_members_to_come(policy: str) -> None:
    led, (first, second, third) = begun(policy, 0, 60, 90)
    led.pass_time(10)
    answer = ask(led, first, earlier_s=40)
    anchor_us = led.job(first).pack.anchor_us  # type: ignore[union-attr]
    assert isinstance(answer, MoveTaken)
    assert (answer.pack_id, answer.starts) == (
        first,
        ((second, 1, anchor_us + 60 * SECOND), (third, 2, anchor_us + 90 * SECOND)),
    )
    assert led.state.wishing == {second, third}
    assert led.state.plan_wanted
    led.cycle()
    assert starts_s(led, second, third) == [20, 50]
    assert said(led, second) == said(led, third) == "40 s earlier"
    assert not led.state.wishing
    assert led.job(second).pack.moved  # type: ignore[union-attr]
    assert picture(led.mirror.restored()) == picture(led.state)
    led.pass_time(10)
    led.settle()
    assert led.job(second).attempt is not None
    assert led.job(third).attempt is None
    led.pass_time(30)
    led.settle()
    assert led.job(third).attempt.placed_us == anchor_us + 50 * SECOND  # type: ignore[union-attr]


def test_the_new_promises_are_in_the_same_commit() -> None:
    led, (first, _second, third) = begun("planned", 0, 60, 90)
    led.pass_time(3)
    led.cycle()
    assert led.kept()[third] == led.now_us + 87 * SECOND
    ask(led, first, earlier_s=40)
    led.cycle()
    assert led.kept()[third] == led.now_us + 47 * SECOND
    led.fail_over()
    led.submit(request=WHOLE, time_limit_s=300)
    led.settle()
    led.now_us += 47 * SECOND
    led.settle()
    assert led.job(third).attempt is not None


@pytest.mark.parametrize("policy", AHEAD)
def test_a_move_without_room_is_refused_with_the_reason(policy: str) -> None:
    led, (first, second) = begun(policy, 0, 100, nodes=1)
    led.pass_time(10)
    ask(led, first)
    led.cycle()
    assert starts_s(led, second) == [100]
    assert said(led, second) == f"job {second} finds no room before"
    (fact,) = led.facts(PackMoved)
    assert fact.starts == ()  # type: ignore[union-attr]
    assert not led.job(second).pack.moved  # type: ignore[union-attr]
    assert not led.state.wishing


def test_no_other_job_gets_later() -> None:
    led, (first, _second) = begun("planned", 0, 100, nodes=2)
    ids = [led.submit(request=WHOLE, time_limit_s=50) for _ in range(4)]
    led.settle()
    plan = led.cycle()
    before = {job_id: plan.bookings[job_id][0].start_us for job_id in ids if job_id in plan.bookings}
    assert len(before) >= 2
    ask(led, first)
    for _ in range(3):
        plan = led.cycle()
        assert all(plan.bookings[job_id][0].start_us <= start_us for job_id, start_us in before.items())


def test_a_new_leader_grants_what_the_one_before_was_asked_for() -> None:
    led, (first, second) = begun("planned", 0, 60)
    led.pass_time(5)
    ask(led, first, earlier_s=30)
    led.fail_over()
    assert led.state.wishing == {second}
    led.settle()
    assert starts_s(led, second) == [30]
    assert said(led, second) == "30 s earlier"


def test_a_grant_that_comes_too_late_is_dropped_and_the_wish_granted_anew() -> None:
    led, (first, second, third) = begun("planned", 0, 60, 90)
    led.pass_time(5)
    ask(led, first, earlier_s=30)
    plan = exhaust(plan_slices(led.state, led.now_us, led.schedule, PlanLimits(), keeps_promises=True))
    led.hold(third)
    before = len(led.log)
    for message in messages_of(plan):
        led.send(message)
    assert not [fact for fact in led.log[before:] if isinstance(fact, PackMoved)]
    assert starts_s(led, second) == [60]
    assert [led.kept()[one] // SECOND for one in (second, third)] == [1_060, 1_090]
    led.cycle()
    assert starts_s(led, second, third) == [30, 90]
    assert said(led, third) == "30 s earlier"


def test_an_answer_to_a_wish_that_is_no_more_changes_nothing() -> None:
    led, (first, _second) = begun("planned", 0, 60)
    led.pass_time(5)
    ask(led, first, earlier_s=30)
    plan = exhaust(plan_slices(led.state, led.now_us, led.schedule, PlanLimits(), keeps_promises=True))
    (message,) = messages_of(plan)
    led.send(message)
    moved = len(led.facts(PackMoved))
    led.send(message)
    assert len(led.facts(PackMoved)) == moved == 1
    ask(led, first, earlier_s=10)
    led.send(message)
    assert len(led.facts(PackMoved)) == 1


def test_a_member_that_begins_takes_no_wish_along() -> None:
    led, (first, second, third) = begun("planned", 0, 60, 90)
    led.pass_time(60)
    # The wish comes when the second is due: it concerns the third alone.
    answer = ask(led, first, earlier_s=10)
    assert isinstance(answer, MoveTaken)
    assert [job_id for job_id, _, _ in answer.starts] == [third]
    led.settle()
    assert led.job(second).pack.wish is None  # type: ignore[union-attr]
    assert starts_s(led, third) == [80]


def test_what_cannot_be_moved_is_refused_by_name() -> None:
    world = World()
    (alone,) = (world.submit(),)
    assert "is in no pack" in refused(ask(world, alone))
    first, second, third = pack(world, 0, 30, 60)
    assert "has not begun" in refused(ask(world, second))
    assert code(ask(world, 999)) is RefusalCode.NOT_FOUND
    led, (first, second, third) = begun("planned", 0, 30, 60)
    assert code(ask(led, first, by=BOB)) is RefusalCode.DENIED
    assert isinstance(ask(led, third, earlier_s=5), MoveTaken)
    assert "is just being moved (alice)" in refused(ask(led, first, earlier_s=5))
    led.cycle()
    later = ask(led, first, to_us=led.now_us + 25 * SECOND)
    assert code(later) is RefusalCode.INVALID
    assert "starts are only moved to earlier times" in refused(later)
    led.hold(second)
    led.hold(third)
    assert "nothing is left to move" in refused(ask(led, first))
    assert len(led.facts(MoveAsked)) == 1
    for job_id in (first, second, third):
        led.cancel(job_id)


def test_the_pack_is_known_by_its_id_long_after_its_first_job_has_ended() -> None:
    led, (first, second) = begun("planned", 0, 400_000)
    led.end(first)
    led.pass_time(300_000)
    assert led.state.find_job(first) is not None, "kept as long as others of its pack live"
    assert isinstance(ask(led, first, earlier_s=10), MoveTaken)
    assert "is just being moved" in refused(ask(led, second))
    assert "belongs to alice" in refused(ask(led, first, by=BOB))


def test_the_answer_is_in_the_row() -> None:
    led, (first, second) = begun("planned", 0, 60)
    ask(led, first, earlier_s=30)
    led.cycle()
    job = led.job(second)
    assert decode_job(encode(job)) == job


def test_a_dry_run_says_what_would_happen_and_changes_nothing() -> None:
    led, (_first, second, third) = begun("planned", 0, 60, 90)
    led.pass_time(10)
    before = picture(led.state)
    bookings = dict(led.schedule.bookings)
    message = MovePack(ALICE, JobRef(second), 40 * SECOND)
    wanted, grant = exhaust(would_move(led.state, led.schedule, message, led.now_us))
    assert [job_id for job_id, _ in wanted.starts] == [second, third]
    assert (grant.text, [job_id for job_id, _ in grant.starts]) == ("40 s earlier", [second, third])
    assert picture(led.state) == before
    assert led.schedule.bookings == bookings
    assert not led.schedule.granted
    with pytest.raises(Refused, match="is in no pack"):
        exhaust(would_move(led.state, led.schedule, MovePack(ALICE, JobRef(led.submit())), led.now_us))


# ---- longer limits ----


def test_a_running_job_gets_the_time_that_nothing_is_planned_in() -> None:
    led = Led("planned", nodes=1)
    job = led.submit(request=WHOLE, time_limit_s=100)
    led.settle()
    led.cycle()
    led.pass_time(10)
    answer = longer(led, job, by_s=50)
    assert isinstance(answer, ExtensionTaken)
    assert (answer.job_id, answer.before_s) == (job, 100)
    assert led.state.wishing == {job}
    led.cycle()
    assert led.attempt(job).time_limit_s == 150
    assert led.attempt(job).until_us == led.attempt(job).started_us + 150 * SECOND
    assert [type(fact).__name__ for fact in led.log[-2:]] == ["TimeChanged", "ExtensionAnswered"]
    assert led.state.owed[led.attempt(job).time_revision] == job
    assert picture(led.mirror.restored()) == picture(led.state)
    other = led.submit(request=WHOLE, time_limit_s=50)
    plan = led.cycle()
    assert plan.bookings[other][0].start_us == led.attempt(job).until_us
    longer(led, job, to_s=200)
    led.cycle()
    more = led.attempt(job).more
    assert more is not None and more.wish is not None
    assert more.wish.said.startswith("another job is planned on its nodes")
    assert led.attempt(job).time_limit_s == 150
    assert len(led.facts(TimeChanged)) == 1


def test_a_wish_for_more_time_outlives_its_leader() -> None:
    led = Led("easy", nodes=1)
    job = led.submit(request=WHOLE, time_limit_s=100)
    led.settle()
    longer(led, job, by_s=50)
    led.fail_over()
    led.settle()
    assert led.attempt(job).time_limit_s == 150


def test_an_extension_of_a_job_that_is_being_ended_comes_to_nothing() -> None:
    led = Led("easy", nodes=1)
    job = led.submit(request=WHOLE, time_limit_s=100)
    led.settle()
    longer(led, job, by_s=50)
    plan = exhaust(plan_slices(led.state, led.now_us, led.schedule, PlanLimits(), keeps_promises=True))
    led.cancel(job)
    for message in messages_of(plan):
        led.send(message)
    assert not led.facts(TimeChanged)
    (answered,) = led.facts(ExtensionAnswered)
    assert answered.text == f"job {job} has changed meanwhile"  # type: ignore[union-attr]


def test_what_cannot_be_extended_is_refused_by_name() -> None:
    world = World(
        partitions=(
            Partition("main", tuple(f"cn{at}" for at in range(4)), default=True, time_limit_max_s=120),
        )
    )
    waiting = world.submit(time_limit_s=100)
    assert "only a running job is extended" in refused(longer(world, waiting, 10))
    job = run(world)
    assert code(longer(world, job, 10, by=BOB)) is RefusalCode.DENIED
    assert "is not more than the 100 s" in refused(longer(world, job, to_s=100))
    assert isinstance(longer(world, job, 10), ExtensionTaken)
    assert "is just being extended (alice)" in refused(longer(world, job, 10))
    other = run(world, (1,), time_limit_s=120)
    assert "all the time that partition main allows (120 s)" in refused(longer(world, other, 10))
    world.send(SuspendJobs(ROOT, (JobRef(other),)))
    assert "is suspended" in refused(longer(world, other, 10))
    world.cancel(job)
    assert "is being ended" in refused(longer(world, job, 10))
    endless = run(World(), time_limit_s=0)
    assert endless


def test_no_more_is_asked_for_than_partition_and_deadline_allow() -> None:
    world = World(
        partitions=(
            Partition("main", tuple(f"cn{at}" for at in range(4)), default=True, time_limit_max_s=300),
        )
    )
    job = run(world, deadline_us=world.now_us + 200 * SECOND)
    longer(world, job, to_s=1_000)
    more = world.attempt(job).more
    assert more is not None and more.wish is not None
    assert more.wish.time_limit_s == 200


def test_a_job_without_a_limit_needs_none() -> None:
    world = World()
    assert "has no time limit" in refused(longer(world, run(world, time_limit_s=0), 10))


def test_a_dry_run_of_more_time_changes_nothing() -> None:
    led = Led("planned", nodes=1)
    job = led.submit(request=WHOLE, time_limit_s=100)
    led.settle()
    led.cycle()
    before = picture(led.state)
    message = ExtendJob(ALICE, JobRef(job), by_s=50)
    wanted, grant = exhaust(would_extend(led.state, led.schedule, message, led.now_us))
    assert (wanted.has_s, grant.time_limit_s, grant.text) == (100, 150, "time limit 150 s")
    assert picture(led.state) == before


def test_answers_of_an_outdated_plan_are_dropped() -> None:
    led, (first, second) = begun("planned", 0, 60)
    ask(led, first, earlier_s=30)
    plan = exhaust(plan_slices(led.state, led.now_us, led.schedule, PlanLimits(), keeps_promises=True))
    (message,) = messages_of(plan)
    led.send(PlanMade(message.placements, -1, message.preemptions, message.promises, message.moves))
    assert not led.facts(PackMoved)
    assert starts_s(led, second) == [60]
    assert not [fact for fact in led.facts(JobPlaced) if fact.job_id == second]  # type: ignore[union-attr]
