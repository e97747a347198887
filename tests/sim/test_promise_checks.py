"""The check of kept promises looks at those that the new leader's own rules let it keep, and only at those."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.model.accounts import Amount, FreePool, Limit, Policy, kind_of
from eslurm.core.model.facts import JobsPromised
from eslurm.core.model.messages import ChangePolicies, ConfigLoaded, JobRef, PolicyChange, SuspendJobs
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.plan import Plan
from eslurm.core.resources.nodes import Resource
from eslurm.lab.sim.promise_checks import PromiseChecks
from eslurm.lab.sim.violation import CheckFailed
from tests.kits.core import ROOT, SECOND
from tests.unit.core.control.test_promises import Led

WHOLE = Request(cpus_per_task=4)


def led() -> tuple[Led, PromiseChecks]:
    """Two nodes that are taken, two jobs that are promised them, and checks that have read the log so far."""
    world, checks = Led(), PromiseChecks()
    for limit_s in (100, 100, 50, 40):
        world.submit(request=WHOLE, time_limit_s=limit_s)
    world.settle()
    for fact in world.log:
        checks.on_logged(world.state, fact)
    return world, checks


def first_plan(world: Led) -> Plan:
    """Of the next leader."""
    world.pass_time(10)
    world.fail_over()
    return world.cycle()


def test_every_promise_is_looked_at() -> None:
    world, checks = led()
    assert checks.on_plan(world.state, first_plan(world), lambda state, job: False) == 2


def test_one_that_is_not_kept_is_a_breach() -> None:
    world, checks = led()
    plan = first_plan(world)
    plan.bookings.pop(3)  # type: ignore[attr-defined]
    with pytest.raises(CheckFailed, match="job 3 was promised"):
        checks.on_plan(world.state, plan, lambda state, job: False)


def test_a_job_that_others_are_ended_for_needs_no_planned_start() -> None:
    world, checks = led()
    plan = first_plan(world)
    plan.bookings.pop(3)  # type: ignore[attr-defined]
    assert checks.on_plan(world.state, replace(plan, preemptor=3), lambda state, job: False) == 1


@pytest.mark.parametrize(
    "policy",
    [
        FreePool("corner", nodes="cn[0-1]"),
        Limit("short", "user", "alice", "cores", Amount(), duration_s=30),
    ],
    ids=["pool", "limit"],
)
def test_a_rule_that_the_replay_has_not_seen_may_forbid_them(policy: Policy) -> None:
    world, checks = led()
    world.send(ChangePolicies(ROOT, (PolicyChange("set", kind_of(policy), policy.name, policy),)))
    plan = first_plan(world)
    assert plan.broken
    assert checks.on_plan(world.state, plan, lambda state, job: False) == 0


@pytest.mark.parametrize("is_suspended", [False, True])
def test_licences_of_a_suspended_job_release_the_planner_from_a_promise(is_suspended: bool) -> None:
    world, checks = Led("easy"), PromiseChecks()
    world.send(ConfigLoaded(replace(world.state.config, resources=(Resource("lic", wide_total=3),))))
    for _ in range(2):
        world.submit(request=Request(wide=(("lic", 2),)), time_limit_s=100)
    world.settle()
    assert world.kept() == {2: world.now_us + 100 * SECOND}
    for fact in world.log:
        checks.on_logged(world.state, fact)
    if is_suspended:
        world.send(SuspendJobs(ROOT, (JobRef(1),)))
    plan = first_plan(world)
    assert bool(plan.broken) == is_suspended
    assert checks.on_plan(world.state, plan, lambda state, job: False) == (not is_suspended)


def limited() -> tuple[Led, PromiseChecks]:
    """Two jobs of one user, of which a limit lets one run at a time: the second is promised a start."""
    world, checks = Led("conservative"), PromiseChecks()
    limit = Limit("four", "user", "alice", "cores", Amount(4))
    world.send(ChangePolicies(ROOT, (PolicyChange("set", kind_of(limit), limit.name, limit),)))
    for name in ("cn0", "cn1"):
        world.submit(request=replace(WHOLE, include=(name,)), time_limit_s=100)
    world.settle()
    assert list(world.kept()) == [2]
    for fact in world.log:
        checks.on_logged(world.state, fact)
    return world, checks


def test_a_suspended_job_that_limits_count_releases_the_planner_from_a_promise() -> None:
    world, checks = limited()
    world.send(SuspendJobs(ROOT, (JobRef(1),)))
    plan = first_plan(world)
    plan.bookings.pop(2)  # type: ignore[attr-defined]
    assert checks.on_plan(world.state, plan, lambda state, job: False) == 0


@pytest.mark.parametrize("is_late", [False, True])
def test_a_job_that_limits_count_longer_than_planned_releases_the_planner_from_a_promise(
    is_late: bool,
) -> None:
    world, checks = limited()
    if is_late:
        # It stood still for so long, and goes on.
        world.send(SuspendJobs(ROOT, (JobRef(1),)))
        world.pass_time(5)
        world.send(SuspendJobs(ROOT, (JobRef(1),), resume=True))
    plan = first_plan(world)
    plan.bookings.pop(2, None)  # type: ignore[attr-defined]
    if is_late:
        assert checks.on_plan(world.state, plan, lambda state, job: False) == 0
        return
    with pytest.raises(CheckFailed, match="job 2 was promised"):
        checks.on_plan(world.state, plan, lambda state, job: False)


@pytest.mark.parametrize(
    ("has_limit", "grows", "looked"), [(True, True, 0), (True, False, 2), (False, True, 2)]
)
def test_longer_phases_release_a_new_leader_from_promises_under_limits(
    has_limit: bool, grows: bool, looked: int
) -> None:
    """Stays that follow each other under a limit overlap when prologs and epilogs are expected to take longer."""
    world, checks = led()
    if has_limit:
        limit = Limit("wide", "user", "alice", "cores", Amount(99))
        world.send(ChangePolicies(ROOT, (PolicyChange("set", "limit", limit.name, limit),)))
        checks.on_logged(world.state, JobsPromised(tuple(world.state.promises.values())))
    world.state.phases_us += 2 * SECOND * grows
    assert checks.on_plan(world.state, first_plan(world), lambda state, job: False) == looked
