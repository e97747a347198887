"""A planned start that is noticed a moment late moves no promise behind a limit: neither by a failover nor by a rule."""

from __future__ import annotations

import pytest

from eslurm.core.model.accounts import Amount, FreePool, Limit, Policy, Reservation, Validity, kind_of
from eslurm.core.model.facts import JobPlaced
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import ChangePolicies, JobRef, PolicyChange, SuspendJobs
from eslurm.core.model.request import Request
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.lab.sim.naive_rules import broken
from tests.kits.core import ROOT, SECOND, World
from tests.unit.core.control.test_promises import Led, starts

WHOLE = Request(cpus_per_task=4)
LATE_US = 5_000
AREA = Limit("budget", "user", "alice", "cores", Amount(), area_s=400)
ITEMS = Limit("at-a-time", "user", "alice", "cores", Amount(4))
POOL = FreePool("spare", "cores", Amount(4))


def set_policy(world: World, policy: Policy) -> None:
    world.send(ChangePolicies(ROOT, (PolicyChange("set", kind_of(policy), policy.name, policy),)))


def late(policy: Policy) -> tuple[Led, int]:
    """Two nodes: a job that began late on the first, and one that is promised the second, by when that one should end."""
    world = Led()
    set_policy(world, policy)
    for _ in range(2):
        world.submit(request=WHOLE, time_limit_s=100)
    world.submit(request=Request(cpus_per_task=4, include=("cn1",)), time_limit_s=100)
    world.settle()
    began_us = world.now_us
    world.pass_time(100)
    world.end(1)
    world.now_us += LATE_US
    world.settle()
    assert world.attempt(2).until_us == began_us + 200 * SECOND + LATE_US
    assert starts(world.cycle()) == {3: began_us + 200 * SECOND}
    return world, began_us + 200 * SECOND


@pytest.mark.parametrize("policy", [AREA, ITEMS, POOL], ids=["area", "items", "pool"])
def test_the_next_leader_keeps_it(policy: Policy) -> None:
    world, promised_us = late(policy)
    assert world.facts(JobPlaced)[-1].late_us == LATE_US  # type: ignore[union-attr]
    world.pass_time(10)
    world.fail_over()
    plan = world.settle()
    assert not plan.broken and starts(plan) == {3: promised_us}


@pytest.mark.parametrize("policy", [AREA, ITEMS, POOL], ids=["area", "items", "pool"])
def test_a_rule_that_binds_others_leaves_it_where_it_is(policy: Policy) -> None:
    world, promised_us = late(policy)
    set_policy(world, Limit("other", "user", "mallory", "cores", Amount(1)))
    assert starts(world.cycle()) == {3: promised_us}


@pytest.mark.parametrize(("policy", "begins"), [(AREA, True), (ITEMS, False)], ids=["area", "items"])
def test_it_begins_as_promised_where_only_a_budget_counts_the_moment(policy: Policy, begins: bool) -> None:
    world, promised_us = late(policy)
    world.now_us = promised_us
    assert [one.job_id for one in world.cycle().placements] == [3] * begins
    if begins:
        running, started = world.job(2), world.job(3)
        assert not any(broken(world.state, started, world.attempt(3)))
        assert world.attempt(2).until_us > world.now_us and running.state is JobState.RUNNING


@pytest.mark.parametrize("policy", [AREA, ITEMS, POOL], ids=["area", "items", "pool"])
def test_what_stands_still_moves_no_promise_behind_a_rule(policy: Policy) -> None:
    world, promised_us = late(policy)
    world.send(SuspendJobs(ROOT, (JobRef(2),)))
    assert world.attempt(2).until_us == INFINITY_US
    assert starts(world.cycle()) == {3: promised_us}
    world.fail_over()
    plan = world.settle()
    assert not plan.broken and starts(plan) == {3: promised_us}


def test_a_job_past_its_planned_end_counts_as_it_is_under_a_new_limit() -> None:
    world = Led()
    world.submit(request=WHOLE, time_limit_s=100)
    world.submit(request=WHOLE, time_limit_s=50)
    world.submit(request=Request(cpus_per_task=4, include=("cn1",)), time_limit_s=10)
    world.settle()
    world.send(SuspendJobs(ROOT, (JobRef(1),)))
    world.pass_time(40)
    assert starts(world.cycle()) == {3: world.now_us + 10 * SECOND}
    world.pass_time(70)
    set_policy(world, ITEMS)
    plan = world.cycle()
    assert not plan.placements and not plan.bookings


def test_what_is_planned_anew_is_held_against_what_really_runs() -> None:
    world, promised_us = late(AREA)
    world.fail_over()
    world.settle()
    world.cancel(3)
    world.submit(request=WHOLE, time_limit_s=100)
    assert starts(world.cycle()) == {4: promised_us + LATE_US}


@pytest.mark.parametrize("late_us", [0, LATE_US, 50 * SECOND])
def test_a_job_that_just_fits_before_a_reservation_begins_late_and_is_no_breach(late_us: int) -> None:
    world = Led(nodes=1)
    closes_us = world.now_us + 150 * SECOND
    validity = Validity(from_us=closes_us, until_us=closes_us + 100 * SECOND)
    set_policy(world, Reservation("course", validity, ("cn0",), users=("eve",)))
    world.submit(request=WHOLE, time_limit_s=100)
    world.submit(request=WHOLE, time_limit_s=50)
    world.settle()
    world.pass_time(100)
    world.end(1)
    world.now_us += late_us
    placed = [one.job_id for one in world.cycle().placements]
    # At 150 s the node is the course's, however short the delay is that the planner makes up for.
    assert placed == [2] * (world.now_us < closes_us)
    if placed:
        assert world.attempt(2).until_us == closes_us + late_us
        assert not any(broken(world.state, world.job(2), world.attempt(2)))
