"""Changes of policies by operators: all or nothing, checked as a whole, kept like every other record."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.calendar import SiteCalendar
from eslurm.core.control.planning import take_snapshot
from eslurm.core.control.timers import drop_stale, next_timer_us
from eslurm.core.model import facts
from eslurm.core.model.accounts import (
    Access,
    Account,
    Amount,
    Defaults,
    FreePool,
    Limit,
    Policy,
    Qos,
    Reservation,
    User,
    Validity,
    kind_of,
)
from eslurm.core.model.config import NodeConfig, Partition, Resource
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import (
    Changed,
    ChangePolicies,
    ConfigLoaded,
    PolicyChange,
    RefusalCode,
    Refused,
    ReservedNodes,
    ReservedTime,
    Tick,
)
from eslurm.core.model.request import Request
from eslurm.core.state.boundaries import set_calendar, standing
from tests.kits.core import ALICE, ROOT, SECOND, World, refused

HOUR = 3600
DAY = 86_400


def put(*policies: Policy) -> ChangePolicies:
    return ChangePolicies(ROOT, tuple(PolicyChange("add", kind_of(one), one.name, one) for one in policies))


def change(action: str, policy: Policy, *given: str, added: str = "", removed: str = "") -> ChangePolicies:
    one = PolicyChange(
        action,
        kind_of(policy),
        policy.name,
        policy,
        given,
        (added,) if added else (),
        (removed,) if removed else (),
    )
    return ChangePolicies(ROOT, (one,))


def delete(*names: str) -> ChangePolicies:
    pairs = [name.split(" ") for name in names]
    return ChangePolicies(ROOT, tuple(PolicyChange("delete", kind, name) for kind, name in pairs))


def reserve(
    world: World,
    name: str,
    start_s: int,
    duration_s: int,
    *,
    nodes: tuple[str, ...] = (),
    choose: ReservedNodes | None = None,
    action: str = "add",
    **more: object,
) -> Changed | Refused:
    made = Reservation(name, Validity(), nodes, **more)  # type: ignore[arg-type]
    time = ReservedTime(world.now_us + start_s * SECOND, 0, duration_s)
    one = PolicyChange(
        action, "reservation", name, made, ("nodes",) if nodes else (), choose=choose, time=time
    )
    answer = world.send(ChangePolicies(ROOT, (one,)))
    assert isinstance(answer, Changed | Refused)
    return answer


def found(world: World, kind: str, name: str) -> Policy:
    return world.state.policies[kind][name]


def test_policies_are_facts_and_a_change_wants_a_plan() -> None:
    world = World()
    before = world.state.generation
    answer = world.send(put(Account("physics"), User("ada", ("physics",)), Qos("high", 100)))
    assert answer == Changed(3)
    assert world.kinds()[-3:] == ["PolicySet"] * 3
    assert found(world, "user", "ada") == User("ada", ("physics",))
    assert world.state.generation > before
    world.restart()
    assert found(world, "qos", "high") == Qos("high", 100)


def test_only_other_rules_have_everything_planned_anew() -> None:
    world = World()
    world.send(put(Account("physics", shares=3), User("ada", ("physics",)), Qos("high"), Defaults("d")))
    assert world.state.policies_changed == 0
    world.send(put(Limit("few", "account", "physics", "cores", Amount(3)), Account("atoms", "physics")))
    limited = world.state.policies_changed
    assert limited == world.state.generation
    world.send(change("modify", Account("atoms", shares=7), "shares"))
    world.send(delete("user ada", "qos high", "defaults d"))
    assert world.state.policies_changed == limited < world.state.generation
    world.send(change("modify", Account("atoms"), "parent"))
    assert world.state.policies_changed == world.state.generation
    world.send(put(Account("quarks", "atoms")))
    world.send(delete("limit few"))
    assert world.state.policies_changed == world.state.generation


def test_what_is_set_as_it_was_makes_no_fact() -> None:
    world = World()
    world.send(put(Account("physics", shares=3)))
    count = len(world.log)
    assert world.send(change("set", Account("physics", shares=3), "shares")) == Changed(1)
    assert len(world.log) == count


def test_only_operators_change_policies() -> None:
    world = World()
    for by in (ALICE, Principal("root", 0, 0, via="agent")):
        answer = world.send(ChangePolicies(by, (PolicyChange("add", "account", "a", Account("a")),)))
        assert isinstance(answer, Refused) and answer.code is RefusalCode.DENIED


def test_all_changes_or_none_and_their_order_does_not_matter() -> None:
    world = World()
    assert "'nowhere' does not exist" in refused(world.send(put(Account("a"), User("ada", ("a", "nowhere")))))
    assert not world.state.policies["account"]
    assert world.send(put(User("ada", ("child",)), Account("child", "parent"), Account("parent"))) == Changed(
        3
    )
    set_facts = [fact.policy.name for fact in world.log if isinstance(fact, facts.PolicySet)]
    assert set_facts == ["parent", "child", "ada"]
    assert world.send(delete("account parent", "account child", "user ada")) == Changed(3)
    removed = [fact.name for fact in world.log if isinstance(fact, facts.PolicyRemoved)]
    assert removed == ["ada", "child", "parent"]
    assert not any(world.state.policies.values())


def test_only_what_is_given_changes() -> None:
    world = World()
    world.send(put(Account("a"), Account("b"), Account("c"), User("ada", ("a", "b"), 7)))
    world.send(change("modify", User("ada", ("c", "a")), "accounts", added="accounts"))
    assert found(world, "user", "ada") == User("ada", ("a", "b", "c"), 7)
    world.send(change("modify", User("ada", ("a",)), "accounts", removed="accounts"))
    assert found(world, "user", "ada") == User("ada", ("b", "c"), 7)
    world.send(change("modify", User("ada", shares=2), "shares"))
    assert found(world, "user", "ada") == User("ada", ("b", "c"), 2)


def test_defaults_are_changed_option_by_option() -> None:
    world = World()
    world.send(put(Defaults("site", values=(("time", "60"), ("nice", "5")))))
    world.send(
        change("modify", Defaults("site", values=(("time", "90"), ("nice", ""), ("requeue", "no"))), "values")
    )
    assert found(world, "defaults", "site") == Defaults("site", values=(("time", "90"), ("requeue", "no")))


def test_adding_twice_and_changing_nothing_known_is_refused() -> None:
    world = World()
    world.send(put(Account("a")))
    assert "exists already" in refused(world.send(put(Account("a"))))
    assert "there are a" in refused(world.send(change("modify", Account("b"), "shares")))
    assert "does not exist" in refused(world.send(delete("account b")))


@pytest.mark.parametrize(
    ("policies", "said"),
    [
        ((Account("a", "a"),), ("a > a", "circle")),
        ((Account("a", "b"), Account("b", "c"), Account("c", "a")), ("a > b > c > a", "circle")),
        ((Qos("x", preempts=("y",)), Qos("y", preempts=("x",))), ("x > y > x", "push each other out")),
        (
            (Limit("l", "qos", "none", "cores"),),
            ("limit l", "qos 'none' does not exist", "esctl qos add none"),
        ),
        (
            (Limit("l", "user", "ada", "gpus"),),
            ("resource: 'gpus'", "cores, memory_mib, nodes, jobs", "tesla"),
        ),
        ((Limit("l", "partition", "p", "cores"),), ("partition: 'p'", "use one of main")),
        ((FreePool("p", access=(Access(accounts=("a",)),)),), ("pool p", "access: account 'a'")),
        ((FreePool("p", feature="ib"),), ("no node has 'ib'",)),
        ((FreePool("p", nodes="cn[1-9]"),), ("cn[4-9] do not exist",)),
        ((FreePool("p", nodes="cn1", feature="ib"),), ("exclude each other",)),
        ((FreePool("p", "jobs"),), ("'jobs' is unknown",)),
        ((Account("a", validity=Validity(0, 500 * SECOND)),), ("account a", "ended on 1970-01-01T00:08:20")),
        ((Defaults("d", values=(("qos", "x"),)),), ("qos 'x' does not exist",)),
        ((Defaults("d", forced=(("partition", "x"),)),), ("partition: 'x' does not exist",)),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(
    policies: tuple[Policy, ...], said: tuple[str, ...]
) -> None:
    world = World(resources=(Resource("tesla"),))
    text = refused(world.send(put(*policies)))
    for word in said:
        assert word in text, text


def test_accounts_lie_below_a_bounded_number_of_others() -> None:
    world = World()
    chain = [Account("a0"), *(Account(f"a{depth}", f"a{depth - 1}") for depth in range(1, 70))]
    assert "at most 64" in refused(world.send(put(*chain)))
    assert world.send(put(*chain[:60])) == Changed(60)


def test_what_is_used_is_not_deleted() -> None:
    world = World()
    world.send(
        put(Account("a"), Qos("q"), User("ada", ("a",)), Limit("l", "account", "a", "cores", Amount(1)))
    )
    text = refused(world.send(delete("account a")))
    assert "limit l, user ada" in text and "first" in text
    jobs = [world.submit(account="", qos="q") for _ in range(7)]
    text = refused(world.send(delete("qos q")))
    assert "7 jobs" in text and "1, 2, 3, 4, 5, ..." in text
    for job in jobs[:-1]:
        world.cancel(job)
    assert "1 job that has not ended uses it (7)" in refused(world.send(delete("qos q")))
    world.cancel(jobs[-1])
    assert world.send(delete("qos q")) == Changed(1)


# ---- reservations ----


def test_a_reservation_gets_its_time_and_keeps_it_when_other_things_change() -> None:
    world = World()
    assert reserve(world, "r", 100, HOUR, nodes=("cn1",)) == Changed(1)
    made = found(world, "reservation", "r")
    start_us = world.now_us + 100 * SECOND
    assert made == Reservation("r", Validity(start_us, start_us + HOUR * SECOND), ("cn1",))
    world.send(change("modify", Reservation("r", Validity(), users=("ada",)), "users"))
    assert found(world, "reservation", "r").validity == Validity(start_us, start_us + HOUR * SECOND)
    moved = PolicyChange("modify", "reservation", "r", made, time=ReservedTime(start_us + SECOND))
    world.send(ChangePolicies(ROOT, (moved,)))
    assert found(world, "reservation", "r").validity == Validity(
        start_us + SECOND, start_us + (HOUR + 1) * SECOND
    )


@pytest.mark.parametrize(
    ("time", "said"),
    [
        (ReservedTime(), "has no end"),
        (ReservedTime(2_000 * SECOND, 1_500 * SECOND), "ends before it begins"),
        (ReservedTime(100 * SECOND, 900 * SECOND), "is over already"),
        (ReservedTime(0, 5_000 * SECOND, 60), "exclude each other"),
    ],
)
def test_a_time_that_makes_no_sense_is_refused(time: ReservedTime, said: str) -> None:
    world = World()
    one = PolicyChange("add", "reservation", "r", Reservation("r", Validity(), ("cn1",)), time=time)
    assert said in refused(world.send(ChangePolicies(ROOT, (one,))))


def test_one_that_recurs_for_ever_needs_no_end_and_takes_no_start() -> None:
    world = World()
    set_calendar(world.state, SiteCalendar())
    weekly = Reservation("r", Validity(cron="0 8 * * 1", duration_s=HOUR), ("cn1",))
    assert world.send(put(weekly)) == Changed(1)
    one = PolicyChange("modify", "reservation", "r", weekly, time=ReservedTime(2_000 * SECOND))
    assert "recurs" in refused(world.send(ChangePolicies(ROOT, (one,))))
    clash = Reservation("s", Validity(cron="30 8 * * 1", duration_s=HOUR), ("cn1",))
    assert "reservation r has cn1 then" in refused(world.send(put(clash)))
    assert world.send(
        put(Reservation("s", Validity(cron="0 9 * * 1", duration_s=HOUR), ("cn1",)))
    ) == Changed(1)


def test_nodes_must_exist_and_be_nobody_elses_then() -> None:
    world = World()
    assert "nope do not exist" in refused(reserve(world, "r", 0, HOUR, nodes=("nope",)))
    assert "has no nodes" in refused(reserve(world, "r", 0, HOUR))
    reserve(world, "r", 0, HOUR, nodes=("cn0", "cn1"))
    text = refused(reserve(world, "s", 1800, HOUR, nodes=("cn1", "cn2")))
    assert "reservation r has cn1 then" in text and "1970-01-01T00:46:40" in text
    assert reserve(world, "s", HOUR, HOUR, nodes=("cn1", "cn2")) == Changed(1)
    assert reserve(world, "m", 0, HOUR, nodes=("cn1",), maintenance=True) == Changed(1)


def test_running_jobs_are_in_the_way_until_their_end() -> None:
    world = World(nodes=2)
    job = world.submit(time_limit_s=HOUR)
    world.start()
    text = refused(reserve(world, "r", 60, HOUR, nodes=("cn0",)))
    assert f"job {job} on cn0 may run until 1970-01-01T01:16:40" in text and "ignore_running" in text
    assert reserve(world, "late", HOUR + 1, HOUR, nodes=("cn0",)) == Changed(1)
    assert reserve(world, "over", 60, 600, nodes=("cn0",), flags=("ignore_running",)) == Changed(1)
    endless = world.submit(request=Request(exclusive=True))
    world.start()
    assert f"job {endless} on cn1 has no time limit" in refused(
        reserve(world, "r", 9 * HOUR, 60, nodes=("cn1",))
    )


def test_jobs_inside_it_do_not_hinder_changing_it() -> None:
    world = World(nodes=2)
    reserve(world, "r", 0, HOUR, nodes=("cn0", "cn1"), flags=())
    inside = world.submit(time_limit_s=60, reservation="r")
    world.start()
    assert world.state_of(inside) == "RUNNING"
    assert world.send(change("modify", Reservation("r", Validity(), users=("ada",)), "users")) == Changed(1)


def test_nodes_by_number_are_those_that_are_free_soonest() -> None:
    names = tuple(f"cn{number}" for number in range(5))
    world = World(
        nodes=5,
        partitions=(Partition("main", names, default=True), Partition("some", names[2:])),
    )
    job = world.submit(request=Request(include=("cn1",)), time_limit_s=60)
    world.start()
    assert world.state_of(job) == "RUNNING"
    reserve(world, "taken", 0, HOUR, nodes=("cn0",))
    assert reserve(world, "r", 120, HOUR, choose=ReservedNodes(2)) == Changed(1)
    assert found(world, "reservation", "r").nodes == ("cn2", "cn3")
    assert reserve(world, "s", 120, HOUR, choose=ReservedNodes(2)) == Changed(1)
    assert found(world, "reservation", "s").nodes == ("cn1", "cn4")
    text = refused(reserve(world, "t", 120, HOUR, choose=ReservedNodes(1, "some")))
    assert "1 nodes in partition some are wanted, 0 are free" in text
    assert reserve(world, "later", 2 * HOUR, HOUR, choose=ReservedNodes(0, "some")) == Changed(1)
    assert found(world, "reservation", "later").nodes == ("cn2", "cn3", "cn4")
    assert "'no' does not exist" in refused(reserve(world, "u", 0, 60, choose=ReservedNodes(1, "no")))


def test_nodes_by_feature() -> None:
    nodes = tuple(NodeConfig(f"cn{at}", (4, 1000), ("ib",) if at % 2 else ()) for at in range(4))
    world = World(nodes=4)
    world.send(ConfigLoaded(replace(world.state.config, nodes=nodes)))
    assert reserve(world, "r", 0, HOUR, choose=ReservedNodes(0, "", "ib")) == Changed(1)
    assert found(world, "reservation", "r").nodes == ("cn1", "cn3")


# ---- time ----


def test_beginnings_and_ends_want_a_plan_when_they_come() -> None:
    world = World()
    reserve(world, "r", 100, 200, nodes=("cn0",))
    assert next_timer_us(world.state) == world.now_us + 100 * SECOND
    drop_stale(world.state)
    assert next_timer_us(world.state) == world.now_us + 100 * SECOND
    for seconds in (100, 200):
        world.state.plan_wanted = False
        world.now_us += seconds * SECOND
        count = len(world.log)
        world.send(Tick())
        assert world.state.plan_wanted and len(world.log) == count
    assert next_timer_us(world.state) is None


def test_a_restart_notices_the_next_boundary_too() -> None:
    world = World()
    world.send(put(FreePool("p", validity=Validity(0, world.now_us + 50 * SECOND))))
    world.restart(epoch=False)
    assert next_timer_us(world.state) == world.now_us + 50 * SECOND


def test_what_recurs_is_asked_for_again_and_again() -> None:
    world = World()
    set_calendar(world.state, SiteCalendar())
    world.send(put(Limit("l", "user", "*", "cores", Amount(1), validity=Validity(cron="0 0 1 1 *"))))
    at_us = world.state.policy_due_us
    assert at_us == world.now_us + 8 * DAY * SECOND
    world.now_us = at_us
    world.send(Tick())
    assert world.state.policy_due_us == at_us + 8 * DAY * SECOND


def test_people_are_told_whether_something_is_in_force() -> None:
    calendar = SiteCalendar()
    now_us = 10 * DAY * SECOND
    assert standing(calendar, Validity(), now_us) == "active"
    assert standing(calendar, Validity(0, now_us), now_us) == "expired"
    assert standing(calendar, Validity(now_us + 1), now_us) == "waiting"
    assert standing(calendar, Validity(cron="0 12 * * *"), now_us) == "idle"


def test_a_planning_cycle_keeps_the_policies_it_began_with() -> None:
    """It works in slices, and what is decided between two of them is for the next cycle."""
    world = World()
    first, second = (
        Limit("each", "user", "*", "cores", Amount(4)),
        Limit("more", "user", "*", "jobs", Amount(1)),
    )
    world.send(put(first))
    snapshot = take_snapshot(world.state, world.now_us, None)
    world.send(put(second))
    assert set(snapshot.policies["limit"]) == {"each"}
    later = take_snapshot(world.state, world.now_us, None)
    world.send(change("modify", Limit("each", "user", "*", "cores", Amount(8)), "amount"))
    world.send(delete("limit more"))
    assert later.policies["limit"] == {"each": first, "more": second}
    assert set(take_snapshot(world.state, world.now_us, None).policies["limit"]) == {"each"}
