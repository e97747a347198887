"""Coordinators: the jobs and users of their accounts and of those below, and nothing else; administrators and operators."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.control.rights import Level, coordinates, level_of
from eslurm.core.model.accounts import (
    Account,
    Amount,
    Limit,
    Policy,
    Qos,
    Reservation,
    User,
    Validity,
    kind_of,
)
from eslurm.core.model.job import ATTESTED, Principal
from eslurm.core.model.messages import (
    CancelJobs,
    Changed,
    ChangePolicies,
    JobRef,
    PolicyChange,
    RefusalCode,
    Refused,
    SuspendJobs,
    UpdateJob,
)
from tests.kits.core import ALICE, ROOT, World, problem, refused

CARL = Principal("carl", 2001, 2001)
"""Coordinates physics, and so the account below it."""
ADMIN = Principal("admin", 3001, 3001)
OPERATOR = Principal("op", 3002, 3002)
POLICIES: tuple[Policy, ...] = (
    Qos("fast"),
    Account("physics", coordinators=("carl",)),
    Account("lasers", "physics"),
    Account("biology"),
    User("carl", ("physics",)),
    User("alice", ("lasers", "biology")),
    User("bob", ("lasers",), qos=("fast",)),
    Limit("each", "user", "*", "cores", Amount(4), duration_s=3600),
)


def put(*policies: Policy, by: Principal = ROOT, action: str = "set") -> ChangePolicies:
    return ChangePolicies(by, tuple(PolicyChange(action, kind_of(one), one.name, one) for one in policies))


def site(**config: object) -> World:
    world = World(
        **{
            "operators": (0, OPERATOR.uid),
            "administrators": (0, ADMIN.uid),
            "accounts_enforced": True,
            **config,
        }
    )
    assert isinstance(world.send(put(*POLICIES)), Changed)
    return world


def count(answer: BatchAnswer) -> int:
    assert isinstance(answer, Changed) and not answer.problems, answer
    return answer.count


# ---- levels ----


def test_each_level_has_what_the_ones_before_it_have() -> None:
    state = site().state
    levels = [level_of(state, who) for who in (ALICE, CARL, OPERATOR, ADMIN, ROOT)]
    assert levels == [Level.USER, Level.COORDINATOR, Level.OPERATOR, Level.ADMINISTRATOR, Level.ADMINISTRATOR]


@pytest.mark.parametrize("via", sorted(ATTESTED))
def test_no_level_comes_through_a_node_or_a_login_host(via: str) -> None:
    world = site()
    for who in (CARL, OPERATOR, ADMIN, ROOT):
        assert level_of(world.state, replace(who, via=via)) is Level.USER
    job = world.submit(time_limit_s=60, account="lasers")
    assert "belongs to alice" in problem(world.cancel(job, by=replace(CARL, via=via)))
    assert "neither an operator" in refused(world.send(put(by=replace(CARL, via=via))))


def test_a_coordinator_has_the_accounts_below_and_loses_them_with_the_record() -> None:
    world = site()
    found = [
        name for name in ("physics", "lasers", "biology", "", "none") if coordinates(world.state, CARL, name)
    ]
    assert found == ["physics", "lasers"]
    world.restart()
    assert coordinates(world.state, CARL, "lasers")
    world.send(put(replace(POLICIES[1], coordinators=())))  # type: ignore[call-arg]
    assert level_of(world.state, CARL) is Level.USER and not world.state.coordinators


def test_coordinators_are_users_that_exist_and_stay() -> None:
    world = site()
    assert "user 'zoe' does not exist" in refused(
        world.send(put(Account("chemistry", coordinators=("zoe",))))
    )
    delete = ChangePolicies(ROOT, (PolicyChange("delete", "user", "carl"),))
    assert "is still used by account physics" in refused(world.send(delete))


# ---- jobs ----


def test_a_coordinator_manages_the_jobs_of_the_account() -> None:
    world = site()
    mine = world.submit(time_limit_s=60, account="lasers", name="ours")
    other = world.submit(time_limit_s=60, account="biology")
    world.start()
    text = f"job {other} belongs to alice: only its user"
    assert problem(world.cancel(other, by=CARL)).startswith(text)
    assert problem(world.requeue(other, by=CARL)).startswith(text)
    assert problem(world.send(UpdateJob(CARL, JobRef(other), comment="x"))).startswith(text)
    assert count(world.requeue(mine, by=CARL)) == 1
    assert count(world.send(CancelJobs(CARL, user="alice"))) == 1
    assert world.attempt(mine).stop is not None and world.attempt(other).stop is None


def test_a_coordinator_is_no_operator_for_these_jobs() -> None:
    world = site()
    job = world.submit(time_limit_s=60, account="lasers", held=True)
    assert count(world.send(UpdateJob(CARL, JobRef(job), nice=10))) == 1
    assert "only operators may go below 0" in problem(world.send(UpdateJob(CARL, JobRef(job), nice=-10)))
    assert "only operators may raise" in problem(world.send(UpdateJob(CARL, JobRef(job), priority=2000)))
    assert "no coordinator of 'biology'" in problem(
        world.send(UpdateJob(CARL, JobRef(job), account="biology"))
    )
    assert "not open to user alice" in problem(world.send(UpdateJob(CARL, JobRef(job), qos="fast")))
    assert "is no operator" in refused(world.send(SuspendJobs(CARL, (JobRef(job),))))


def test_each_hold_is_lifted_by_those_who_could_have_set_it() -> None:
    world = site()
    job = world.submit(time_limit_s=60, account="lasers")
    assert count(world.hold(job, by=CARL)) == 1 and world.job(job).hold == "account"
    assert "held by a coordinator" in problem(world.hold(job, release=True))
    assert count(world.hold(job)) == 1 and world.job(job).hold == "account"
    assert count(world.hold(job, by=CARL, release=True)) == 1 and not world.job(job).hold
    world.hold(job, by=OPERATOR)
    world.hold(job, by=CARL)
    assert world.job(job).hold == "admin"
    assert "held by an administrator" in problem(world.hold(job, by=CARL, release=True))
    assert count(world.hold(job, by=OPERATOR, release=True)) == 1
    world.hold(job)
    assert world.job(job).hold == "user" and count(world.hold(job, by=CARL, release=True)) == 1


# ---- policies ----


@pytest.mark.parametrize(
    "policy",
    [
        User("dora", ("lasers", "physics")),
        User("alice", ("lasers", "biology", "physics")),
        User("bob", (), qos=("fast",)),
        Limit("bob", "user", "bob", "cores", Amount(2), duration_s=60),
        Limit("bob", "user", "bob", "memory_mib", Amount(100)),
        Limit("bob", "user", "bob", "jobs", Amount(100)),
    ],
    ids=str,
)
def test_what_a_coordinator_may_change(policy: Policy) -> None:
    world = site()
    assert count(world.send(put(policy, by=CARL))) == 1
    assert world.state.policies[kind_of(policy)][policy.name] == policy


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (Account("lasers", "physics", shares=9), "changes users and limits of users only"),
        (Account("physics", coordinators=("carl", "bob")), "changes users and limits of users only"),
        (Account("new", "physics"), "changes users and limits of users only"),
        (Qos("fast", 100), "changes users and limits of users only"),
        (Reservation("r", Validity(until_us=10**18), ("cn0",)), "changes users and limits of users only"),
        (User("dora", ("biology",)), "no coordinator of 'biology'"),
        (User("alice", ("biology", "lasers")), "no coordinator of 'biology'"),
        (User("alice", ("lasers",)), "no coordinator of 'biology'"),
        (User("dora", ("lasers",), qos=("fast",)), "the user's accounts only"),
        (User("bob", ("lasers",), shares=99, qos=("fast",)), "the user's accounts only"),
        (User("bob", ("lasers",)), "the user's accounts only"),
        (Limit("l", "user", "*", "cores", Amount(1)), "single other users only"),
        (Limit("l", "user", "carl", "cores", Amount(1), 60), "single other users only"),
        (Limit("l", "account", "lasers", "cores", Amount(1)), "single other users only"),
        (Limit("each", "user", "bob", "cores", Amount(1), 60), "single other users only"),
        (Limit("l", "user", "alice", "cores", Amount(1), 60), "is in account 'biology', too"),
        (Limit("l", "user", "zoe", "cores", Amount(1), 60), "is in no account"),
        (Limit("l", "user", "bob", "cores", Amount(5), 60), "allows more than limit each"),
        (Limit("l", "user", "bob", "cores", Amount(1)), "allows more than limit each"),
        (Limit("l", "user", "bob", "cores", Amount(), 60), "allows more than limit each"),
        (Limit("l", "user", "bob", "cores", Amount(1, 50.0), 60), "allows more than limit each"),
        (Limit("l", "user", "bob", "*", Amount(9), 60), "allows more than limit each"),
    ],
    ids=str,
)
def test_what_a_coordinator_may_not_change(policy: Policy, text: str) -> None:
    world = site()
    before = {kind: dict(named) for kind, named in world.state.policies.items()}
    answer = world.send(put(policy, by=CARL))
    assert isinstance(answer, Refused) and answer.code is RefusalCode.DENIED and text in answer.text
    assert world.state.policies == before
    assert count(world.send(put(policy, by=OPERATOR))) == 1


def test_a_coordinator_deletes_limits_and_no_users() -> None:
    world = site()
    world.send(put(Limit("bob", "user", "bob", "cores", Amount(2), 60)))
    assert count(world.send(ChangePolicies(CARL, (PolicyChange("delete", "limit", "bob"),)))) == 1
    for name in ("bob", "each", "physics"):
        kind = {"each": "limit", "physics": "account"}.get(name, "user")
        answer = world.send(ChangePolicies(CARL, (PolicyChange("delete", kind, name),)))
        assert isinstance(answer, Refused) and answer.code is RefusalCode.DENIED


def test_where_accounts_are_free_a_coordinator_registers_nobody() -> None:
    """A record binds its user: a stranger's would take away what the user may do now."""
    world = site(accounts_enforced=False)
    assert "is not registered" in refused(world.send(put(User("dora", ("lasers",)), by=CARL)))


def test_one_change_too_many_refuses_all_of_them() -> None:
    world = site()
    assert "no coordinator" in refused(
        world.send(put(User("dora", ("lasers",)), User("eve", ("biology",)), by=CARL))
    )
    assert "dora" not in world.state.policies["user"]
