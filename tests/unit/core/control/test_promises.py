"""Promises in the log: what is written and when, and what the planner of a new leader makes of them (ADR 17)."""

from __future__ import annotations

from unittest.mock import ANY

import pytest
from msgspec.structs import replace

from eslurm.core.control.planning import PROMISES_MAX, messages_of, plan_slices
from eslurm.core.control.promises import EVERY_US, REGISTERING, RENEWED_EVERY_US
from eslurm.core.model.facts import Fact, JobPlaced, JobsPromised
from eslurm.core.model.messages import Changed, ConfigLoaded, JobRef, PlanMade, UpdateJob, UpdateNodes
from eslurm.core.model.promise import Promise, PromisedStart, Run
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.reasons import WhyKind
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.resources.nodes import Resource
from eslurm.replay.base import pack_base, unpack_base
from tests.kits.core import ALICE, ROOT, SECOND, World, depends
from tests.kits.mirror import picture

WHOLE = Request(cpus_per_task=4)


class Led(World):
    """A world with a planner that keeps its schedule, and promises."""

    def __init__(self, policy: str = "planned", nodes: int = 2) -> None:
        self.schedule = Schedule()
        super().__init__(nodes, restarts=False, policy=policy)

    def cycle(self) -> Plan:
        slices = plan_slices(self.state, self.now_us, self.schedule, PlanLimits(), keeps_promises=True)
        plan = exhaust(slices)
        for message in messages_of(plan):
            self.send(message)
        return plan

    def settle(self) -> Plan:
        """Until nothing more begins."""
        while (plan := self.cycle()).placements:
            for _ in range(2):
                self.deliver()
        return plan

    def fail_over(self, *, register: bool = True) -> None:
        self.schedule = Schedule()
        self.restart(register=register)

    def facts(self, kind: type[Fact] = JobsPromised) -> list[Fact]:
        return [fact for fact in self.log if isinstance(fact, kind)]

    def kept(self) -> dict[int, int]:
        return {job_id: promise.start_us for job_id, promise in self.state.promises.items()}


def starts(plan: Plan) -> dict[int, int]:
    return {job_id: bookings[0].start_us for job_id, bookings in plan.bookings.items()}


@pytest.fixture
def led() -> Led:
    """Two nodes that are taken for 100 s, and three jobs behind, the shortest last."""
    world = Led()
    for limit_s in (100, 100, 50, 40, 30):
        world.submit(request=WHOLE, time_limit_s=limit_s)
    world.settle()
    return world


def test_the_first_promises_are_written_and_survive(led: Led) -> None:
    began_us = led.now_us
    assert led.kept() == {3: began_us + 100 * SECOND, 4: began_us + 100 * SECOND, 5: began_us + 140 * SECOND}
    assert picture(led.mirror.restored()) == picture(led.state)
    before = led.kept()
    led.pass_time(10)
    led.fail_over()
    led.submit(request=WHOLE, time_limit_s=10)
    plan = led.settle()
    assert {job_id: starts(plan)[job_id] for job_id in (3, 4, 5)} == before
    assert not plan.broken
    assert led.schedule.bookings[3][0].spans != led.schedule.bookings[4][0].spans


def test_nothing_is_written_of_those_that_start_at_once_nor_twice_the_same(led: Led) -> None:
    written = led.facts()
    assert all(promise.job_id > 2 for fact in written for promise in fact.promises)  # type: ignore[union-attr]
    led.pass_time(60)
    led.settle()
    led.settle()
    assert led.facts() == written


def test_what_moves_is_written_with_the_next_start_in_one_message(led: Led) -> None:
    led.pass_time(20)
    before = len(led.log)
    led.end(1)
    plan = exhaust(plan_slices(led.state, led.now_us, led.schedule, PlanLimits(), keeps_promises=True))
    assert [one.job_id for one in plan.placements] == [3]
    assert [one.job_id for one in plan.moved] == [4, 5]
    (message,) = messages_of(plan)
    facts = led.batch(message).facts
    assert [type(fact) for fact in facts] == [JobPlaced, JobsPromised]
    assert 3 not in led.state.promises
    assert led.kept() == {job_id: start_us for job_id, start_us in starts(plan).items() if job_id != 3}
    assert len(led.log) > before


def test_what_moves_without_a_start_is_written_after_a_while(led: Led) -> None:
    led.pass_time(1)
    led.cancel(3)
    assert 3 not in led.state.promises
    plan = led.cycle()
    assert not plan.moved and starts(plan)[5] < led.kept()[5]
    assert plan.next_us == led.schedule.told_us + EVERY_US
    led.now_us = plan.next_us
    assert [one.job_id for one in led.cycle().moved] == [5]
    assert led.kept()[5] == starts(plan)[5]


def test_a_message_that_came_to_nothing_is_written_again(led: Led) -> None:
    led.pass_time(20)
    led.cancel(3)
    plan = exhaust(plan_slices(led.state, led.now_us, led.schedule, PlanLimits(), keeps_promises=True))
    led.send(ConfigLoaded(led.state.config))
    assert plan.moved
    (message,) = messages_of(plan)
    outdated = PlanMade(message.placements, -1, message.preemptions, message.promises)
    assert not led.batch(outdated).facts
    led.now_us += EVERY_US
    assert led.cycle().moved == plan.moved


def test_new_promises_come_in_parts() -> None:
    promises = tuple(Promise(number, (PromisedStart(number, ()),)) for number in range(PROMISES_MAX + 30))
    plan = Plan(0, 0, (), {}, {}, REGISTERING, 0, {}, promised=promises)
    assert [len(message.promises) for message in messages_of(plan)] == [PROMISES_MAX, 30]


def test_a_new_leader_waits_for_the_nodes_that_are_promised(led: Led) -> None:
    kept = led.kept()
    led.fail_over(register=False)
    plan = led.cycle()
    assert plan.rest is REGISTERING and not plan.bookings
    patience_us = 15 * SECOND
    assert plan.next_us == led.now_us + patience_us
    led.register(0, *led.inventory(0), session="s2")
    assert led.cycle().rest is REGISTERING
    led.register(1, *led.inventory(1), session="s2")
    assert starts(led.settle()) == kept


def test_it_waits_no_longer_than_for_some_heartbeats_and_says_who_is_later_and_why(led: Led) -> None:
    led.fail_over(register=False)
    led.register(0, *led.inventory(0), session="s2")
    led.cycle()
    led.pass_time(15)
    plan = led.cycle()
    assert plan.rest is not REGISTERING
    (late,) = [one for one in plan.broken if one.job_id == 4]
    assert late.why == "node cn1 is out of service"
    assert late.start_us > late.promised_us
    assert not led.cycle().broken


def test_a_node_that_was_out_before_is_not_waited_for(led: Led) -> None:
    led.send(UpdateNodes(ROOT, ("cn1",), "drain", "disk"))
    led.now_us += EVERY_US
    led.settle()
    led.fail_over(register=False)
    led.register(0, *led.inventory(0), session="s2")
    plan = led.settle()
    assert plan.rest is not REGISTERING and not plan.broken
    assert starts(plan) == led.kept()


def test_a_node_that_is_configured_no_more_is_not_waited_for(led: Led) -> None:
    led.fail_over(register=False)
    config = led.state.config
    (main,) = config.partitions
    led.send(
        ConfigLoaded(replace(config, nodes=config.nodes[:1], partitions=(replace(main, nodes=("cn0",)),)))
    )
    led.register(0, *led.inventory(0), session="s2")
    plan = led.settle()
    assert plan.rest is not REGISTERING
    assert [one.job_id for one in plan.broken] == [4, 5]


def test_who_may_not_start_any_more_loses_the_promise_and_nobody_else_does(led: Led) -> None:
    kept = led.kept()
    led.hold(4)
    led.fail_over()
    plan = led.settle()
    assert not plan.broken
    assert starts(plan)[3] == kept[3] and starts(plan)[5] <= kept[5]
    assert 4 not in led.state.promises


def test_who_asks_for_more_and_is_not_planned_yet_takes_nothing_from_others(led: Led) -> None:
    kept = led.kept()
    assert led.send(UpdateJob(ALICE, JobRef(4), time_limit_s=90)) == Changed(1, (), (ANY,))
    assert 4 not in led.state.promises
    led.fail_over()
    plan = led.settle()
    assert starts(plan)[5] <= kept[5] and not plan.broken


def test_who_asks_for_less_and_is_not_planned_yet_keeps_its_promise(led: Led) -> None:
    kept = led.kept()
    assert led.send(UpdateJob(ALICE, JobRef(4), time_limit_s=20)) == Changed(1)
    led.fail_over()
    assert starts(led.settle())[4] == kept[4]


def test_an_array_keeps_its_next_starts() -> None:
    world = Led(nodes=1)
    world.submit(request=WHOLE, time_limit_s=10, tasks=((0, 30),))
    world.settle()
    promise = world.state.promises[1]
    assert [start.start_us for start in promise.starts] == [
        world.now_us + number * 10 * SECOND for number in range(1, 9)
    ]
    world.fail_over()
    plan = world.settle()
    assert len(plan.bookings[1]) == 30
    assert plan.start_us(1) == promise.start_us


def test_an_array_whose_last_task_starts_keeps_no_promise_of_it() -> None:
    world = Led(nodes=1)
    world.submit(request=WHOLE, time_limit_s=100)
    world.settle()
    array = world.submit(request=WHOLE, time_limit_s=50, tasks=((0, 1),), limit=1)
    last = world.submit(request=WHOLE, time_limit_s=30)
    world.pass_time(10)
    world.settle()
    assert set(world.kept()) == {array, last}
    world.pass_time(10)
    world.end(1)
    plan = world.cycle()
    assert [one.job_id for one in plan.placements] == [array]
    assert world.kept() == {last: starts(plan)[last]}
    world.fail_over()
    assert starts(world.settle())[last] == world.now_us + 50 * SECOND


TWO_NODES = Request(tasks=2, cpus_per_task=4)


def with_a_head() -> Led:
    """One node of three is free, and the first who waits wants two."""
    world = Led("easy", nodes=3)
    for limit_s, request in ((100, WHOLE), (90, WHOLE), (50, TWO_NODES), (500, WHOLE)):
        world.submit(request=request, time_limit_s=limit_s)
    world.settle()
    assert world.kept() == {3: world.now_us + 90 * SECOND}
    return world


def test_where_few_are_promised_a_start_little_is_written() -> None:
    world = with_a_head()
    written = len(world.facts())
    for _ in range(5):
        world.pass_time(1)
        world.cycle()
    world.end(2)
    world.settle()
    assert 3 not in world.state.promises and len(world.facts()) == written
    world.submit(request=TWO_NODES, time_limit_s=10)
    world.cancel(4)
    world.end(1)
    told_us = world.schedule.told_us
    assert world.cycle().next_us == told_us + RENEWED_EVERY_US
    assert len(world.facts()) == written
    world.pass_time(10)
    world.cycle()
    assert list(world.kept()) == [5]


def test_a_promise_that_got_later_is_written_at_once_where_few_are_made() -> None:
    """The next leader would take the old one for broken."""
    world = with_a_head()
    began_us, told_us = world.now_us, world.schedule.told_us
    # A node where the first was to start is out: it waits for another one.
    world.send(UpdateNodes(ROOT, ("cn1",), "drain", "disk"))
    world.pass_time(3)
    world.cycle()
    assert world.now_us < told_us + RENEWED_EVERY_US
    assert world.kept() == {3: began_us + 100 * SECOND}
    assert world.cycle().broken == ()
    world.fail_over()
    assert world.settle().broken == ()


def test_the_first_in_an_easy_queue_keeps_its_start_over_a_failover() -> None:
    world = with_a_head()
    kept = world.kept()
    world.fail_over(register=False)
    # It could start at once here, and delay the first by that.
    world.register(2, *world.inventory(2), session="s2")
    assert world.cycle().rest is REGISTERING
    for number in (0, 1):
        world.register(number, *world.inventory(number), session="s2")
    plan = world.settle()
    assert starts(plan) == kept


def test_a_policy_without_promises_writes_none() -> None:
    world = Led("fcfs")
    for _ in range(5):
        world.submit(request=WHOLE, time_limit_s=100)
    world.settle()
    world.pass_time(20)
    world.settle()
    assert not world.facts()


def test_a_base_state_has_them(led: Led) -> None:
    assert unpack_base("main", pack_base(led.state)).promises == led.state.promises


def test_runs_say_what_they_stand_for() -> None:
    promise = Promise(1, (PromisedStart(5, (Run(3, 2, 1, (4, 0)), Run(9, 1, 2))),))
    assert list(promise.nodes()) == [3, 4, 9]


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative", "planned"])
def test_a_job_that_waits_for_licences_says_so(policy: str) -> None:
    world = Led(policy)
    world.send(ConfigLoaded(replace(world.state.config, resources=(Resource("lic", wide_total=3),))))
    for _ in range(2):
        world.submit(request=Request(wide=(("lic", 2),)), time_limit_s=100)
    why = world.settle().why(2)
    assert (why.kind, why.text) == (WhyKind.LICENCE, "lic: 2 asked for, 1 is free")


def test_easy_promises_a_job_that_waits_for_licences_and_the_first_that_waits_for_nodes() -> None:
    world = Led("easy", nodes=1)
    world.send(ConfigLoaded(replace(world.state.config, resources=(Resource("lic", wide_total=3),))))
    lic = Request(wide=(("lic", 2),))
    for request, limit_s in ((lic, 100), (lic, 100), (WHOLE, 50), (Request(), 200), (Request(), 30)):
        world.submit(request=request, time_limit_s=limit_s)
    plan = world.settle()
    # Job 3 needs the whole node, so it follows job 2; jobs 4 and 5 delay neither.
    began_us = world.now_us
    assert starts(plan) == {2: began_us + 100 * SECOND, 3: began_us + 200 * SECOND}
    assert sorted(job.job_id for job in world.state.jobs.values() if job.attempt is not None) == [1, 4, 5]


@pytest.mark.parametrize("policy", ["conservative", "easy", "fcfs", "planned"])
def test_a_job_whose_start_could_not_be_foreseen_begins_when_its_dependency_is_met(policy: str) -> None:
    """Nothing is given back meanwhile: the dependency alone has changed."""
    led = Led(policy)
    first = led.submit(held=True)
    after = led.submit(dependencies=depends("after", first))
    led.settle()
    led.hold(first, release=True)
    led.settle()
    assert led.job(first).attempt is not None
    led.settle()
    assert led.job(after).attempt is not None
