"""Access at submission and at an update: accounts, QOS, reservations, locks and defaults."""

from __future__ import annotations

import pytest

from eslurm.calendar import SiteCalendar
from eslurm.core.model.accounts import (
    Account,
    Amount,
    Defaults,
    Limit,
    Policy,
    Qos,
    Reservation,
    User,
    Validity,
)
from eslurm.core.model.config import Partition
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import Changed, JobRef, RefusalCode, Refused, SubmitJobs, UpdateJob
from eslurm.core.model.request import Request
from eslurm.core.state.boundaries import set_calendar
from tests.kits.core import ALICE, BOB, ROOT, SECOND, World, problem, refused
from tests.unit.core.control.accounts.test_policies import put

HOUR = 3600


def world_with(*policies: Policy, **config: object) -> World:
    world = World(**config)  # type: ignore[arg-type]
    set_calendar(world.state, SiteCalendar())
    answer = world.send(put(*policies))
    assert isinstance(answer, Changed), answer
    return world


def refusal(world: World, user: Principal = ALICE, **spec: object) -> str:
    return refused(world.try_submit(user=user, **spec))  # type: ignore[arg-type]


PHYSICS = (Account("physics"), Account("chem"), Qos("normal"), Qos("high", 10))
ALICE_THERE = User("alice", ("physics", "chem"), qos=("normal", "high"))


def test_the_first_account_and_qos_are_the_default() -> None:
    world = world_with(*PHYSICS, ALICE_THERE)
    spec = world.job(world.submit()).spec
    assert (spec.account, spec.qos) == ("physics", "normal")
    spec = world.job(world.submit(account="chem", qos="high")).spec
    assert (spec.account, spec.qos) == ("chem", "high")
    assert world.state.mentions.count("account", "physics") == 1


def test_what_is_registered_holds() -> None:
    world = world_with(*PHYSICS, User("alice", ("physics",), qos=("normal",)))
    assert "'chem' is not one of user alice's: use one of physics" in refusal(world, account="chem")
    assert "'high' is not open to user alice: use one of normal" in refusal(world, qos="high")
    assert "'hihg' does not exist: use one of high, normal" in refusal(world, qos="hihg")


def test_who_has_no_record_is_free_unless_accounts_are_enforced() -> None:
    world = world_with(*PHYSICS)
    assert world.job(world.submit(user=BOB, account="anything")).spec.account == "anything"
    assert world.job(world.submit(user=BOB, qos="high")).spec.qos == "high"
    strict = world_with(*PHYSICS, User("alice"), accounts_enforced=True)
    assert "esctl user add bob" in refusal(strict, BOB)
    assert "none is given and the user has none" in refusal(strict)
    strict.submit(user=ROOT)


def test_operators_may_use_all_that_exists() -> None:
    world = world_with(*PHYSICS, User("root", ("physics",)))
    assert world.job(world.submit(user=ROOT, account="chem", qos="high")).spec.account == "chem"
    assert "does not exist" in refusal(world, ROOT, qos="none")


def test_an_expired_user_or_account_is_locked_by_itself() -> None:
    world = world_with(
        Account("old", validity=Validity(0, 2_000 * SECOND)),
        Account("below", "old"),
        Account("later", validity=Validity(9_000 * SECOND)),
        User("alice", ("below", "later")),
        User("bob", validity=Validity(0, 2_000 * SECOND)),
    )
    world.submit()
    world.submit(user=BOB)
    assert "'later' is locked until 1970-01-01T02:30:00" in refusal(world, account="later")
    world.pass_time(1_000)
    assert "'old' is locked since 1970-01-01T00:33:20" in refusal(world)
    answer = world.try_submit(user=BOB)
    assert isinstance(answer, Refused) and answer.code is RefusalCode.DENIED
    assert "user bob is locked since" in answer.text


def test_an_account_may_be_open_at_certain_hours_only() -> None:
    world = world_with(Account("night", validity=Validity(cron="* 20-23 * * *")), User("alice", ("night",)))
    assert "'night' is locked until 1970-01-01T20:00:00" in refusal(world)


def test_a_reservation_is_open_to_those_it_was_made_for() -> None:
    soon = Validity(2_000 * SECOND, 3_000 * SECOND)
    world = world_with(
        *PHYSICS,
        Reservation("mine", soon, ("cn0",), users=("alice",)),
        Reservation("group", soon, ("cn1",), groups=("1001",)),
        Reservation("account", soon, ("cn2",), accounts=("chem",)),
        Reservation("all", soon, ("cn3",)),
        Reservation("maint", soon, ("cn3",), maintenance=True),
    )
    assert world.job(world.submit(reservation="mine", time_limit_s=60)).spec.reservation == "mine"
    world.submit(reservation="all", time_limit_s=60)
    world.submit(user=BOB, reservation="group", time_limit_s=60)
    world.submit(user=BOB, reservation="account", account="chem", time_limit_s=60)
    assert "'mine' is not open to user bob" in refusal(world, BOB, reservation="mine", time_limit_s=60)
    assert "is for maintenance" in refusal(world, reservation="maint", time_limit_s=60)
    assert "'none' does not exist" in refusal(world, reservation="none", time_limit_s=60)
    world.pass_time(2_500)
    assert "'mine' ended on 1970-01-01T00:50:00" in refusal(world, reservation="mine", time_limit_s=60)


def test_a_qos_bounds_the_time_limit() -> None:
    world = world_with(Qos("short", time_limit_max_s=600), Qos("any"))
    assert world.job(world.submit(qos="short")).spec.time_limit_s == 600
    assert world.job(world.submit(qos="short", time_limit_s=60)).spec.time_limit_s == 60
    assert "601 s is more than QOS short allows (600 s)" in refusal(world, qos="short", time_limit_s=601)
    job = world.submit(qos="any", time_limit_s=900)
    answer = world.send(UpdateJob(ALICE, JobRef(job), qos="short"))
    assert "QOS short allows" in problem(answer)


def test_a_partitions_default_time_is_cut_to_what_the_qos_allows() -> None:
    partition = Partition("main", ("cn0",), default=True, time_limit_default_s=3600)
    world = world_with(Qos("short", time_limit_max_s=600), partitions=(partition,))
    assert world.job(world.submit(qos="short")).spec.time_limit_s == 600


def test_defaults_fill_in_and_forced_values_overwrite() -> None:
    world = world_with(
        *PHYSICS,
        Defaults("site", values=(("time", "120"), ("account", "physics"))),
        Defaults("bob", "user", "bob", (("time", "240"),), (("qos", "normal"),)),
    )
    spec = world.job(world.submit()).spec
    assert (spec.time_limit_s, spec.account, spec.qos) == (120, "physics", "")
    spec = world.job(world.submit(user=BOB, qos="high", time_limit_s=60)).spec
    assert (spec.time_limit_s, spec.qos) == (60, "normal")
    assert world.job(world.submit(user=BOB)).spec.time_limit_s == 240


def test_limits_on_jobs_count_those_of_the_same_call() -> None:
    world = world_with(Limit("few", "user", "*", "jobs", Amount(3)))
    spec = world.job(world.submit()).spec
    text = refused(world.send(SubmitJobs((spec, spec, spec))))
    assert "limit few" in text and "3" in text
    assert len(world.state.jobs) == 1
    world.send(SubmitJobs((spec, spec)))
    assert "limit few" in refusal(world)
    world.cancel(1)
    world.submit()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"start_at_us": 900 * SECOND}, "--start-at: 1970-01-01T00:15:00 is over"),
        ({"deadline_us": 1_050 * SECOND, "time_limit_s": 60}, "--deadline: by 1970-01-01T00:17:30"),
        ({"deadline_us": 2_000 * SECOND, "start_at_us": 1_990 * SECOND, "time_limit_s": 60}, "--deadline"),
        (
            {"start_at_us": 2**63 - 1},
            "--start-at: 9223372036854775807 us is no time: give one before the year",
        ),
        ({"begin_us": 2**63 - 2}, "--begin"),
        ({"begin_us": -1}, "--begin"),
        ({"deadline_us": -1}, "--deadline"),
    ],
)
def test_times_that_cannot_be_met_are_refused(spec: dict[str, object], said: str) -> None:
    assert said in refusal(World(), **spec)


def test_an_update_is_checked_like_a_submission() -> None:
    world = world_with(*PHYSICS, ALICE_THERE, User("bob", ("chem",)))
    job = world.submit(held=True)
    by = (ALICE, JobRef(job))
    assert world.send(UpdateJob(*by, qos="high", account="chem", nice=5)) == Changed(1)
    spec = world.job(job).spec
    assert (spec.account, spec.qos, spec.nice) == ("chem", "high", 5)
    assert "--nice" in problem(world.send(UpdateJob(*by, nice=-1)))
    assert "'none' does not exist" in problem(world.send(UpdateJob(*by, qos="none")))
    assert "--deadline" in problem(world.send(UpdateJob(*by, deadline_us=world.now_us)))
    assert "does not exist" in problem(world.send(UpdateJob(*by, reservation="r")))
    assert world.send(UpdateJob(ROOT, JobRef(job), nice=-7)) == Changed(1)
    assert world.state.mentions.counts == {("account", "chem"): 1, ("qos", "high"): 1}


def test_an_update_may_not_go_around_a_limit() -> None:
    world = world_with(
        *PHYSICS,
        Limit("chem", "account", "chem", "cores", Amount(1)),
        Limit("few", "user", "alice", "jobs", Amount(1)),
    )
    job = world.submit(held=True, account="physics", request=Request(tasks=2))
    assert "chem" in problem(world.send(UpdateJob(ALICE, JobRef(job), account="chem")))
    assert world.send(UpdateJob(ALICE, JobRef(job), name="new")) == Changed(1)


def test_who_has_too_many_since_a_limit_was_lowered_may_still_change_them() -> None:
    world = world_with(*PHYSICS, Limit("chem", "account", "chem", "jobs", Amount(1)))
    first, second = (world.submit(held=True, account="physics", time_limit_s=60) for _ in range(2))
    world.submit(held=True, account="chem")
    world.send(put(Limit("few", "user", "alice", "jobs", Amount(1))))
    assert "limit few" in refusal(world)
    assert world.send(UpdateJob(ALICE, JobRef(first), comment="mine")) == Changed(1)
    assert world.send(UpdateJob(ALICE, JobRef(second), time_limit_s=30)) == Changed(1)
    assert "limit chem: account chem may have 1 jobs" in problem(
        world.send(UpdateJob(ALICE, JobRef(second), account="chem"))
    )


def test_a_start_that_has_passed_does_not_hinder_other_changes() -> None:
    world = World()
    job = world.submit(held=True, start_at_us=world.now_us + 10 * SECOND, time_limit_s=60)
    world.pass_time(60)
    assert world.send(UpdateJob(ALICE, JobRef(job), comment="late")) == Changed(1)
