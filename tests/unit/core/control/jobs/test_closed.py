"""A job that has started is not given time in maintenance, in somebody's reservation or on nodes that a pool keeps free."""

from __future__ import annotations

import pytest

from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model.accounts import Access, FreePool, Policy, Qos, Reservation, Validity, kind_of
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import Changed, ChangePolicies, JobRef, PolicyChange, SuspendJobs, UpdateJob
from tests.kits.core import ALICE, ROOT, SECOND, World, problem
from tests.kits.running import only, preempt, run


def rule(world: World, *policies: Policy) -> None:
    changes = tuple(PolicyChange("add", kind_of(one), one.name, one) for one in policies)
    assert isinstance(world.send(ChangePolicies(ROOT, changes)), Changed)


def then(world: World, from_s: int, until_s: int) -> Validity:
    return Validity(world.now_us + from_s * SECOND, world.now_us + until_s * SECOND)


def extend(world: World, job: int, limit_s: int, by: Principal = ALICE) -> BatchAnswer:
    return world.send(UpdateJob(by, JobRef(job), time_limit_s=limit_s))


def suspend(world: World, job: int, *, resume: bool = False) -> BatchAnswer:
    return world.send(SuspendJobs(ROOT, (JobRef(job),), resume))


def closing(world: World, kind: str, from_s: int, until_s: int) -> Policy:
    validity = then(world, from_s, until_s)
    if kind == "pool":
        return FreePool("gpus", nodes="cn0", validity=validity, access=(Access(users=("eve",)),))
    users = () if kind == "maintenance" else ("bob",)
    return Reservation("mon", validity, ("cn0", "cn1"), users=users, maintenance=not users)


KINDS = ("maintenance", "reservation", "pool")


@pytest.mark.parametrize("kind", KINDS)
def test_an_owner_does_not_extend_a_job_into_a_time_when_its_nodes_are_closed(kind: str) -> None:
    world = World()
    job = run(world, (0,))
    rule(world, closing(world, kind, 104, 500))
    said = problem(extend(world, job, 110))
    assert "node cn0" in said and "ask for at most 104 s" in said
    assert extend(world, job, 104) == Changed(1)
    assert "it cannot be extended" in problem(extend(world, job, 105))
    assert extend(world, job, 60) == Changed(1), "less is always given"
    assert extend(world, job, 110, by=ROOT) == Changed(1), "operators give any limit"


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_that_are_closed_elsewhere_or_at_another_time_do_not_matter(kind: str) -> None:
    world = World()
    other, later = run(world, (2,)), run(world, (0,))
    rule(world, closing(world, kind, 110, 500))
    assert extend(world, other, 110) == Changed(1)
    assert extend(world, later, 110) == Changed(1)


def test_a_job_in_a_reservation_is_not_extended_beyond_its_end() -> None:
    world = World()
    rule(world, Reservation("mine", then(world, 0, 105), ("cn0",), users=("alice",)))
    job = run(world, (0,), reservation="mine")
    said = problem(extend(world, job, 110))
    assert "the end of reservation mine" in said and "at most 105 s" in said
    assert extend(world, job, 105) == Changed(1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_stood_still_does_not_go_on_into_a_time_when_its_nodes_are_closed(kind: str) -> None:
    world = World()
    job = run(world, (0,))
    rule(world, closing(world, kind, 150, 500))
    world.pass_time(40)
    suspend(world, job)
    world.pass_time(50)
    # 60 s are left, and so many until it is closed.
    assert suspend(world, job, resume=True) == Changed(1)
    suspend(world, job)
    world.pass_time(10)
    said = problem(suspend(world, job, resume=True))
    assert "would still run when node cn0 is closed" in said and "at most 90 s first" in said
    assert extend(world, job, 90, by=ROOT) == Changed(1)
    assert suspend(world, job, resume=True) == Changed(1)
    suspend(world, job)
    world.pass_time(100)
    assert "resume it afterwards" in problem(suspend(world, job, resume=True))
    world.pass_time(300)
    assert suspend(world, job, resume=True) == Changed(1)


def test_a_job_that_made_room_goes_on_when_its_nodes_are_open_again() -> None:
    world = World()
    rule(world, Qos("low", preempt_mode="suspend"), Qos("high", preempts=("low",)))
    victim = run(world, (0,), qos="low")
    rule(world, closing(world, "maintenance", 110, 500))
    preemptor = world.submit(qos="high", time_limit_s=100)
    preempt(world, victim, "suspend", preemptor)
    world.done(only(world.sends()))
    world.pass_time(20)
    world.cancel(preemptor)
    assert world.state_of(victim) == "SUSPENDED", "it would run until 120 s"
    world.pass_time(479)
    assert world.state_of(victim) == "SUSPENDED"
    world.pass_time(2)
    assert world.state_of(victim) == "RUNNING"


def test_what_was_set_up_over_a_running_job_does_not_keep_it_still() -> None:
    """Without a limit it would have met the reservation in any case."""
    world = World()
    job = run(world, (0,), time_limit_s=0)
    over = Reservation("mon", then(world, 100, 500), ("cn0",), maintenance=True, flags=("ignore_running",))
    rule(world, over)
    suspend(world, job)
    world.pass_time(10)
    assert suspend(world, job, resume=True) == Changed(1)
