"""Cores of running jobs that others use: exclusion on demand, loans, returns, and the ends of either side (R-01..R-05)."""

from __future__ import annotations

import itertools

import pytest

from eslurm.core.explain.lent_cores import lent_cores_text
from eslurm.core.model.job import StepEnd
from eslurm.core.model.lending import Exclusion, Loan
from eslurm.core.model.messages import JobRef, SuspendJobs
from eslurm.core.model.protocol import Exclude, StepEnded
from eslurm.core.model.request import Request
from eslurm.core.state import usage
from eslurm.core.state.core_reports import RISE_EVERY_US, RISES_AT_ONCE
from tests.kits.core import ROOT, SECOND, World, refused
from tests.kits.lending import (
    asks,
    ends,
    excludes,
    exclusion,
    launches,
    lend,
    run_owner,
    submit_borrower,
    tell,
)
from tests.kits.running import free


def one_node() -> World:
    return World(1, 4)


def borrowed(world: World) -> tuple[int, int]:
    """An owner of four cores, of which a borrower uses two."""
    owner = run_owner(world)
    borrower = submit_borrower(world)
    lend(world, owner, 2)
    assert world.start() == [borrower]
    return owner, borrower


# ---- a loan ----


def test_idle_cores_are_excluded_when_a_job_would_borrow_them() -> None:
    world = one_node()
    owner = run_owner(world)
    tell(world, owner, 2)
    assert not excludes(world), "nothing is asked of the node while no job would borrow"
    borrower = submit_borrower(world)
    (send,) = excludes(world)
    assert send.body == Exclude(owner, 1, 2)
    assert not world.plan(), "the node has not confirmed it"
    world.done(send)
    assert world.plan() == [borrower]


def test_a_loan_leaves_the_owner_what_it_has() -> None:
    world = one_node()
    owner, borrower = borrowed(world)
    assert world.attempt(borrower).loans == (Loan(owner, 1, 0, 2, world.now_us),)
    assert world.attempt(owner).spans[0].amounts == (4, 0)
    assert world.attempt(borrower).spans[0].amounts == (2, 0)
    assert world.attempt(borrower).spans[0].lent
    assert free(world, 0)[0] == 0
    assert world.state_of(borrower) == "RUNNING"


def test_free_cores_come_first() -> None:
    world = World(1, 6)
    owner = run_owner(world)
    borrower = submit_borrower(world, 3)
    lend(world, owner, 2)
    assert world.start() == [borrower]
    assert [loan.cores for loan in world.attempt(borrower).loans] == [1]
    assert free(world, 0)[0] == 0


def test_nothing_is_lent_twice() -> None:
    world = one_node()
    owner = run_owner(world)
    lend_to = [submit_borrower(world, 2) for _ in range(3)]
    lend(world, owner, 3)
    assert world.start() == lend_to[:1]
    assert world.start() == []


def test_a_job_that_does_not_borrow_gets_none() -> None:
    world = one_node()
    owner = run_owner(world)
    submit_borrower(world, 4)
    plain = world.submit(time_limit_s=10)
    lend(world, owner, 2)
    assert world.start() == []
    assert world.state_of(plain) == "PENDING"


@pytest.mark.parametrize("cooperate", ["", "off"])
def test_the_user_can_switch_it_off(cooperate: str) -> None:
    world = one_node()
    owner = run_owner(world, cooperate=cooperate)
    submit_borrower(world)
    tell(world, owner, 2)
    assert not excludes(world)
    assert not len(world.state.reports)


def test_a_node_that_refuses_lends_nothing() -> None:
    world = one_node()
    owner = run_owner(world)
    submit_borrower(world)
    tell(world, owner, 2)
    (send,) = excludes(world)
    world.done(send, "failed")
    assert exclusion(world, owner) is None
    assert not world.plan()
    assert not world.sends(), "the node's next report decides"
    lend(world, owner, 1)
    assert exclusion(world, owner) == Exclusion(0, 1, 1)


def test_a_plan_whose_cores_were_taken_back_starts_nothing() -> None:
    world = one_node()
    owner = run_owner(world)
    borrower = submit_borrower(world)
    lend(world, owner, 2)
    plan = world.planned()
    tell(world, owner, 0)
    world.send(plan)
    assert world.state_of(borrower) == "PENDING"


# ---- the return ----


def test_what_is_not_lent_comes_back_at_once() -> None:
    world = one_node()
    owner = run_owner(world)
    submit_borrower(world, 3)
    lend(world, owner, 2)
    excludes(world)
    tell(world, owner, 1)
    (send,) = excludes(world)
    assert send.body == Exclude(owner, 1, 1)
    world.done(send)
    assert exclusion(world, owner) == Exclusion(0, 1, 1)


def test_a_borrower_goes_when_the_owner_asks() -> None:
    world = one_node()
    owner, borrower = borrowed(world)
    tell(world, owner, 0)
    sent = world.sends()
    (end,) = ends(sent)
    assert (end.job_id, end.grace_s) == (borrower, 30.0)
    assert exclusion(world, owner) == Exclusion(0, 2, 2), "it runs still"
    tell(world, owner, 0)
    assert not world.sends(), "it is told once"
    world.end(borrower)
    assert world.state_of(borrower) == "PENDING"
    world.deliver()
    assert exclusion(world, owner) is None, "the node has answered"
    assert free(world, 0)[0] == 0


def test_a_borrower_that_agreed_to_end_ends() -> None:
    world = one_node()
    owner = run_owner(world)
    borrower = submit_borrower(world, borrow="end,5")
    lend(world, owner, 2)
    world.start()
    tell(world, owner, 1)
    assert [end.grace_s for end in ends(world.sends())] == [5.0]
    world.end(borrower)
    assert world.state_of(borrower) == "PREEMPTED"
    assert f"to give job {owner} its cores back" in world.job(borrower).exit_text
    world.deliver()
    assert exclusion(world, owner) == Exclusion(0, 1, 1)


def test_the_youngest_borrower_goes_first() -> None:
    world = one_node()
    owner = run_owner(world)
    older, younger = submit_borrower(world, 1), submit_borrower(world, 1)
    lend(world, owner, 1)
    assert world.start() == [older]
    world.pass_time(50)
    lend(world, owner, 2)
    assert world.start() == [younger]
    tell(world, owner, 1)
    assert [end.job_id for end in ends(world.sends())] == [younger]


def test_the_owners_wish_survives_a_new_leader() -> None:
    world = one_node()
    owner, borrower = borrowed(world)
    world.restart()
    tell(world, owner, 0)
    assert [end.job_id for end in ends(world.sends())] == [borrower]


def test_a_new_leader_lends_nothing_before_the_application_has_spoken() -> None:
    world = one_node()
    owner = run_owner(world)
    lend_to = submit_borrower(world)
    lend(world, owner, 2)
    world.restart()
    assert not world.plan()
    tell(world, owner, 2)
    assert world.plan() == [lend_to]


def test_an_exclusion_that_was_taken_for_refused_is_undone() -> None:
    world = one_node()
    owner = run_owner(world)
    submit_borrower(world)
    tell(world, owner, 2)
    (send,) = excludes(world)
    world.done(send, "failed")
    one = world.attempt(owner)
    world.report_cores(owner, one.number, idle=2, excluded=2)
    bodies = [send.body for send in excludes(world)]
    assert bodies == [Exclude(owner, 1, 0)]


# ---- ends ----


def test_cores_of_an_owner_that_ends_become_the_borrowers_own() -> None:
    world = one_node()
    owner, borrower = borrowed(world)
    world.pass_time(10)
    world.end(owner)
    assert world.state_of(owner) == "COMPLETED"
    assert world.state_of(borrower) == "RUNNING"
    assert world.attempt(borrower).loans == ()
    assert free(world, 0)[0] == 2, "it holds its two now"
    world.end(borrower)
    assert free(world, 0)[0] == 4


def test_a_borrower_that_ends_leaves_the_cores_excluded() -> None:
    world = one_node()
    owner, borrower = borrowed(world)
    world.pass_time(10)
    world.end(borrower)
    assert world.state_of(borrower) == "COMPLETED"
    assert exclusion(world, owner) == Exclusion(0, 2, 2)
    assert free(world, 0)[0] == 0
    assert submit_borrower(world) in world.start()


def test_a_lost_node_ends_both() -> None:
    world = one_node()
    owner, borrower = borrowed(world)
    world.lose(0)
    assert {world.state_of(owner), world.state_of(borrower)} == {"PENDING"}
    assert free(world, 0)[0] == 4


def test_a_residue_keeps_its_loan() -> None:
    world = World(2, 4)
    owner = run_owner(world)
    other = run_owner(world)
    borrower = submit_borrower(world, 4, borrow="requeue")
    wide = world.submit(request=Request(tasks=2, nodes_min=2, nodes_max=2), borrow="requeue", time_limit_s=50)
    world.cancel(borrower)
    tell(world, owner, 1)
    tell(world, other, 1, node=1)
    for send in excludes(world):
        world.done(send)
    assert world.plan() == [wide]
    (send,) = world.sends()
    world.done(send, nodes=(0,))
    assert world.job(wide).residues, "one node did not answer"
    assert sum(map(len, world.state.loans.values())) == 2
    world.deliver()
    assert not world.state.loans


def test_a_borrower_that_is_being_launched_is_recalled() -> None:
    world = one_node()
    owner = run_owner(world)
    borrower = submit_borrower(world)
    lend(world, owner, 2)
    assert world.plan() == [borrower]
    assert launches(world.sends()) == [borrower]
    tell(world, owner, 0)
    assert [end.job_id for end in ends(world.sends())] == [borrower]
    world.end(borrower)
    world.deliver()
    assert exclusion(world, owner) is None


def test_a_suspended_owner_lends_nothing_more() -> None:
    world = one_node()
    owner = run_owner(world)
    borrower = submit_borrower(world)
    lend(world, owner, 2)
    world.send(SuspendJobs(ROOT, (JobRef(owner),)))
    assert not world.plan()
    world.deliver()
    world.send(SuspendJobs(ROOT, (JobRef(owner),), resume=True))
    assert world.plan() == [borrower]


# ---- accounting (R-04) ----


def test_the_owner_pays_for_what_it_owns_and_the_borrower_for_the_rest() -> None:
    world = World(1, 6)
    owner = run_owner(world)
    borrower = submit_borrower(world, 3, account="b")
    lend(world, owner, 2)
    world.start()
    world.pass_time(10)
    world.end(borrower)
    batch = world.state.usage
    assert usage.as_of(batch["b", "alice"], world.now_us, 0) == pytest.approx(2 * 10, rel=0.01)
    assert world.attempt(owner).more is not None
    assert world.attempt(owner).more.lent_core_us == 10 * SECOND  # type: ignore[union-attr]
    assert world.attempt(owner).spans[0].amounts == (4, 0)


def test_idle_cores_that_come_and_go_change_exclusions_rarely() -> None:
    """What no job takes is asked for a few times at once, then every ten seconds, and in the end as it is."""
    world = one_node()
    owner = run_owner(world)
    submit_borrower(world, 4)
    risen: list[int] = []
    for second in range(120):
        tell(world, owner, 2 * (second % 2))
        for send in excludes(world):
            if isinstance(send.body, Exclude) and send.body.cores:
                risen.append(second)
            world.done(send)
        world.pass_time(1)
    assert risen[:RISES_AT_ONCE] == [1, 3, 5, 7], "an application that begins to lend is asked at once"
    assert len(risen) <= RISES_AT_ONCE + 120 * SECOND // RISE_EVERY_US
    tell(world, owner, 3)
    world.pass_time(60)
    for send in excludes(world):
        world.done(send)
    found = exclusion(world, owner)
    assert found is not None and found.cores == 3, "a wish that had to wait is not forgotten"


def test_cores_that_jobs_take_are_asked_for_at_once_each_time() -> None:
    world = one_node()
    owner = run_owner(world)
    for _ in range(3 * RISES_AT_ONCE):
        borrower = submit_borrower(world)
        lend(world, owner, 2)
        assert world.start() == [borrower]
        world.end(borrower)
        lend(world, owner, 0)


# ---- plans ----


def test_a_borrower_keeps_clear_of_what_is_promised_after_the_owner() -> None:
    world = World(1, 4, policy="conservative")
    run_owner(world)
    promised = world.submit(request=Request(cpus_per_task=4), time_limit_s=100)
    borrower = submit_borrower(world, 2, limit_s=2000)
    short = submit_borrower(world, 2, limit_s=500)
    lend(world, 1, 2)
    assert world.start() == [short], f"{borrower} would still run when job {promised} is promised to start"


def test_plans_count_on_what_borrowers_keep() -> None:
    world = World(1, 4, policy="conservative")
    owner = run_owner(world)
    borrower = submit_borrower(world, 2, limit_s=2000)
    lend(world, owner, 2)
    assert world.start() == [borrower]
    waiting = world.submit(request=Request(cpus_per_task=4), time_limit_s=100)
    assert world.promised_us(waiting) == world.attempt(borrower).until_us


def test_a_job_behind_another_takes_lent_cores_alone_in_strict_order() -> None:
    world = World(1, 6, policy="fcfs")
    owner = run_owner(world)
    world.submit(request=Request(cpus_per_task=4), time_limit_s=100)
    both = submit_borrower(world, 3)
    lent_only = submit_borrower(world, 2)
    lend(world, owner, 2)
    assert world.start() == [lent_only]
    assert world.state_of(both) == "PENDING"
    assert free(world, 0)[0] == 2


# ---- requests (R-02) ----


def test_the_application_that_loses_least_is_asked() -> None:
    world = World(2, 4)
    busy, ready = run_owner(world), run_owner(world)
    tell(world, busy, 0, remaining_s=4_000)
    tell(world, ready, 0, node=1, remaining_s=40)
    borrower = submit_borrower(world, 2)
    world.pass_time(6)
    (ask,) = asks(world.sends())
    assert (ask.job_id, ask.cores) == (ready, 2)
    lend(world, ready, 2, node=1)
    assert world.start() == [borrower]


def asked_of(world: World, *hints: str) -> int:
    """The index of the job that is asked, of owners with these hints that have said nothing of their remaining work."""
    owners = [run_owner(world, cooperate=f"full{hint}") for hint in hints]
    for node, owner in enumerate(owners):
        tell(world, owner, 0, node=node)
    submit_borrower(world, 2)
    world.pass_time(6)
    (ask,) = asks(world.sends())
    return owners.index(ask.job_id)


def test_one_that_mostly_communicates_loses_less() -> None:
    assert asked_of(World(2, 4), "", ",comm=60") == 1
    assert asked_of(World(2, 4), ",comm=60", "") == 0


def test_one_that_its_user_expects_to_end_soon_loses_less() -> None:
    assert asked_of(World(2, 4), ",time=5000", ",time=50") == 1
    assert asked_of(World(2, 4), ",time=50", ",time=5000") == 0
    # It has run for longer than that already: the hint says nothing any more.
    assert asked_of(World(2, 4), ",time=500", ",time=1") == 0


def test_an_application_that_rejects_is_left_alone_for_longer_each_time() -> None:
    world = one_node()
    owner = run_owner(world)
    tell(world, owner, 0, remaining_s=100)
    submit_borrower(world, 2)
    asked = []
    for second in range(0, 400, 5):
        world.pass_time(5)
        if asks(world.sends()):
            asked.append(second)
            tell(world, owner, 0, remaining_s=100, rejects=True)
    assert [later - sooner for sooner, later in itertools.pairwise(asked)] == [60, 120]
    assert world.state_of(owner) == "RUNNING"


def test_one_that_only_reports_is_not_asked() -> None:
    world = one_node()
    owner = run_owner(world, cooperate="report")
    tell(world, owner, 0, remaining_s=100)
    submit_borrower(world, 2)
    for _ in range(20):
        world.pass_time(5)
        assert not asks(world.sends())


# ---- requests of users ----


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"borrow": "maybe"}, "give requeue or end"),
        ({"borrow": "end,1000000"}, "give requeue or end"),
        ({"borrow": "end,"}, "give requeue or end"),
        ({"cooperate": "yes"}, "give off, report, full"),
        ({"cooperate": "off,comm=3"}, "give off, report, full"),
        ({"cooperate": ",time=3"}, "give off, report, full"),
        ({"cooperate": "full,comm=100"}, "up to 99"),
        ({"cooperate": "full,comm=1,comm=2"}, "give off, report, full"),
        ({"cooperate": "full,time=-1"}, "give off, report, full"),
        ({"cooperate": "full,time=1234567890"}, "give off, report, full"),
        ({"borrow": "end", "tasks": ((0, 3),)}, "the tasks of an array"),
        ({"borrow": "end", "request": Request(exclusive=True)}, "whole nodes"),
    ],
)
def test_what_cannot_be_is_refused(spec: dict[str, object], words: str) -> None:
    assert words in refused(World(1, 4).try_submit(**spec))  # type: ignore[arg-type]


def test_reports_of_other_attempts_are_old_news() -> None:
    world = one_node()
    owner = run_owner(world)
    world.report_cores(owner, 7, idle=2)
    world.report_cores(99, 1, idle=2)
    assert not len(world.state.reports)
    tell(world, owner, 99)
    assert [report.idle for _, report in world.state.reports.items()] == [4], "no more than it has"
    attempt = world.attempt(owner)
    world.report(StepEnded(0, 1, owner, attempt.number, StepEnd(0), True))
    assert not len(world.state.reports)


def test_a_waiting_job_is_told_what_is_lent() -> None:
    world = one_node()
    owner = run_owner(world)
    borrower, other = submit_borrower(world, 2), submit_borrower(world, 3)
    assert lent_cores_text(world.state, world.job(owner)) == ""
    lend(world, owner, 3)
    assert "report 3 idle ones, of which 3 are ready for it" in lent_cores_text(world.state, world.job(other))
    assert world.start() == [borrower]
    said = lent_cores_text(world.state, world.job(other))
    assert "of which 1 are ready for it and other jobs have borrowed 2" in said
