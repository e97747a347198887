"""Cores that were lent come back to one job at a time, and only to one that still stands there."""

from __future__ import annotations

import pytest

from eslurm.core.model.accounts import Amount, FreePool, Limit, Qos
from eslurm.core.model.job import Span, StepEnd
from eslurm.core.model.messages import ChangePolicies, JobRef, PlanMade, PolicyChange, SuspendJobs
from eslurm.core.model.placement import Placement
from eslurm.core.model.protocol import StepEnded
from tests.kits.core import ROOT, SECOND, World, problem
from tests.kits.running import free, only, place, preempt, run, start


def site() -> World:
    """`high` suspends `low`."""
    world = World()
    low, high = Qos("low", preempt_mode="suspend"), Qos("high", preempts=("low",))
    world.send(ChangePolicies(ROOT, tuple(PolicyChange("add", "qos", one.name, one) for one in (low, high))))
    return world


def lender(world: World, nodes: tuple[int, ...] = (0,)) -> int:
    """A job that stands still and lends its cores to one that still waits."""
    victim = run(world, nodes, qos="low")
    preempt(world, victim, "suspend", world.submit(qos="high", time_limit_s=100))
    world.done(only(world.sends()))
    return victim


def test_two_that_lent_the_same_cores_do_not_go_on_at_once() -> None:
    world = site()
    first, second = lender(world), lender(world)
    assert free(world, 0)[0] == 4
    answer = world.send(SuspendJobs(ROOT, (JobRef(first), JobRef(second)), resume=True))
    assert "goes on by itself when its cores are free" in problem(answer)
    assert (world.state_of(first), world.state_of(second)) == ("RUNNING", "SUSPENDED")
    assert free(world, 0)[0] == 0


def test_a_lender_that_has_ended_where_it_stood_does_not_go_on() -> None:
    world = site()
    victim = lender(world, (0, 1))
    attempt = world.attempt(victim)
    world.report(StepEnded(0, 1, victim, attempt.number, StepEnd(0, cause="orphaned"), True))
    assert world.state_of(victim) == "COMPLETING"
    world.cancel(attempt.room_for)
    assert world.state_of(victim) == "COMPLETING"


# ---- plans that time has overtaken ----


def planned(world: World, *jobs: int, node: int = 0) -> PlanMade:
    spans = (Span(node, (1, 0), 1),)
    until_us = world.now_us + 100 * SECOND
    return PlanMade(tuple(Placement(job, spans, until_us) for job in jobs), world.state.generation)


def test_a_plan_made_under_other_policies_starts_nothing() -> None:
    world = World()
    job = world.submit(time_limit_s=100)
    plan = planned(world, job)
    limit = Limit("cap", "user", "alice", "cores")
    world.send(ChangePolicies(ROOT, (PolicyChange("add", "limit", "cap", limit),)))
    world.send(plan)
    assert world.state_of(job) == "PENDING"
    assert world.state.plan_wanted, "the next one is made under these"


@pytest.mark.parametrize(
    "rule", [Limit("cap", "user", "bob", "cores", Amount(4)), FreePool("kept", "cores", Amount(4)), None]
)
def test_a_plan_that_knows_nothing_of_cores_that_came_back_starts_nothing_where_rules_count_them(
    rule: Limit | FreePool | None,
) -> None:
    world = site()
    if rule is not None:
        kind = "limit" if isinstance(rule, Limit) else "pool"
        world.send(ChangePolicies(ROOT, (PolicyChange("add", kind, rule.name, rule),)))
    victim = lender(world)
    job = world.submit(time_limit_s=100)
    plan = planned(world, job, node=1)
    world.send(SuspendJobs(ROOT, (JobRef(victim),), resume=True))
    world.send(plan)
    assert world.state_of(job) == ("LAUNCHING" if rule is None else "PENDING")
    assert world.state.plan_wanted, "the next one counts them"
    if rule is not None:
        world.send(planned(world, job, node=1))
        assert world.state_of(job) == "LAUNCHING"


def test_a_plan_that_starts_a_job_twice_starts_it_once() -> None:
    world = World()
    job = world.submit(time_limit_s=100)
    world.send(planned(world, job, job))
    start(world, job)
    assert world.job(job).attempts == 1
    other = world.submit(time_limit_s=100)
    place(world, other, (1,))
    assert world.attempt(other).number == 1
