"""Logs replayed under a site's rules: each kind of rule does in a replay what it does in a cluster.

Four processors, unless a test says otherwise; the log begins on Monday 1970-01-05 at 00:00 UTC.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.core.model.config import ClusterConfig, NodeConfig, Partition, PriorityWeights
from eslurm.core.model.job import Span
from eslurm.core.model.placement import Placement
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.lab.workloads import loop
from eslurm.lab.workloads.core_driver import CoreDriver
from eslurm.lab.workloads.loop import Broken, Result, replay
from eslurm.lab.workloads.machine import from_config, uniform
from eslurm.lab.workloads.metrics import measure, measure_by
from eslurm.lab.workloads.notes import notes_of
from eslurm.lab.workloads.overdue import Overdue
from eslurm.lab.workloads.rules import Rules, RulesError, plain_config
from eslurm.lab.workloads.swf import Record
from eslurm.lab.workloads.watch import Watch, Who
from eslurm.lab.workloads.workload import MONDAY_S, Choices, Names
from tests.kits.workloads import record, records_of, ruled, run, workload
from tests.support.profiles import draws

POLICIES = ("fcfs", "easy", "conservative", "planned")
QUEUES = Names(qos_from="queue", qos=frozenset({"q1", "q2"}))


def begun(result: Result) -> dict[int, int]:
    """Job of the log -> second of its start, counted from the log's beginning."""
    return {one.job.record.job_id: one.start_us // 1_000_000 - MONDAY_S for one in result.ran}


# ---- limits ----

LIMITED = [record(number, 0, 100, 2, queue=2) for number in (1, 2)] + [record(3, 1, 100, 2, queue=1)]


@pytest.mark.parametrize("policy", POLICIES[1:])
def test_a_limit_moves_a_job_and_lets_others_pass(policy: str) -> None:
    qos = "[qos.q1]\n[qos.q2]\n"
    assert begun(ruled(LIMITED, qos, policy, names=QUEUES)) == {1: 0, 2: 0, 3: 100}
    half = qos + '[limit.half]\nqos = "q2"\nresource = "cores"\nitems = "0/50%"\n'
    assert begun(ruled(LIMITED, half, policy, names=QUEUES)) == {1: 0, 3: 1, 2: 100}


@pytest.mark.parametrize(
    ("consumer", "names"),
    [
        ('user = "u7"', Names()),
        ('user = "*"', Names()),
        ('group = "g5"', Names()),
        ('account = "g5"', Names(account_from="group")),
        ('partition = "all"', Names()),
    ],
)
def test_a_limit_is_on_whom_it_names(consumer: str, names: Names) -> None:
    log = [record(number, 0, 100, 1, user=7, group=5) for number in (1, 2, 3)]
    accounts = "[account.g5]\n" if names.account_from else ""
    limit = f'{accounts}[limit.one]\n{consumer}\nresource = "cores"\nitems = 2\n'
    assert begun(ruled(log, limit, names=names)) == {1: 0, 2: 0, 3: 100}


def test_a_limit_that_is_in_force_at_times_moves_jobs_out_of_them() -> None:
    # Nobody may run from 1 to 2 in the morning; what would reach into that waits.
    night = '[limit.night]\nuser = "*"\nresource = "cores"\nitems = 0\nvalidity = "cron(0 1 * * *)+1h"\n'
    log = [record(1, 0, 600, 4), record(2, 10, 3600, 4)]
    assert begun(ruled(log, night)) == {1: 0, 2: 7200}


def test_what_a_limit_never_lets_run_is_refused_and_told() -> None:
    rules = '[limit.small]\nuser = "*"\nresource = "cores"\nitems = 2\n'
    found = ruled([record(1, 0, 10, 3), record(2, 0, 10, 4), record(3, 0, 10, 1)], rules)
    assert begun(found) == {3: 0}
    assert found.happened is not None
    (one,) = found.happened.refused
    assert (one.count, one.job) == (2, "1")
    assert "limit small: user u1 may use 2 cores at a time, 3 are asked for: ask for at most 2" in one.text
    (sentence,) = found.happened.sentences()
    assert sentence.startswith("2 jobs refused at submission: left out; the first, 1: limit small: user u1")


def test_a_limit_on_jobs_in_the_system_refuses_those_that_are_too_many() -> None:
    rules = '[limit.jobs]\nuser = "*"\nresource = "jobs"\nitems = 2\n'
    log = [record(number, 0, 100, 4, user=1) for number in (1, 2, 3)] + [record(4, 150, 10, 1, user=1)]
    found = ruled(log, rules)
    assert begun(found) == {1: 0, 2: 100, 4: 200}
    assert found.happened is not None and found.happened.refused[0].count == 1


def test_the_configuration_s_limits_refuse_as_well() -> None:
    machine = uniform(4, 1)
    partition = Partition("all", tuple(machine.topology.names), True, time_limit_max_s=100)
    found = ruled([record(1, 0, 200, 1), record(2, 0, 50, 1)], partitions=(partition,))
    assert begun(found) == {2: 0}
    assert found.happened is not None and "--time: 200 s is more than" in found.happened.refused[0].text


# ---- pools, reservations, defaults ----


def test_a_pool_keeps_nodes_for_the_small() -> None:
    log = [record(1, 0, 100, 1), record(2, 0, 100, 3), record(3, 50, 10, 1)]
    assert begun(ruled(log)) == {1: 0, 2: 0, 3: 100}
    pool = '[pool.small]\nresource = "cores"\nitems = 1\naccess = "cores<2"\n'
    assert begun(ruled(log, pool)) == {1: 0, 3: 50, 2: 100}
    nodes = '[pool.three]\nnodes = "n3"\naccess = "time<1m"\n'
    assert begun(ruled(log, nodes)) == {1: 0, 3: 50, 2: 100}


def test_those_whom_a_pool_refuses_are_told_as_one_reason() -> None:
    rules = '[pool.small]\nresource = "cores"\nitems = 2\naccess = "cores<2"\n'
    found = ruled([record(1, 0, 10, 3), record(2, 0, 10, 4), record(3, 0, 10, 1)], rules)
    assert found.happened is not None
    assert [(one.count, one.job) for one in found.happened.refused] == [(2, "1")]


@pytest.mark.parametrize("maintenance", ["", "maintenance = true\n"])
def test_a_reservation_keeps_its_nodes_free(maintenance: str) -> None:
    course = (
        '[reservation.course]\nnodes = "n[0-1]"\nstart = "1970-01-05T00:05"\nduration = "10m"\n' + maintenance
    )
    # Job 1 would reach into it on these nodes and takes others, 2 needs them and waits until it is over.
    log = [record(1, 0, 600, 2), record(2, 0, 400, 2), record(3, 0, 200, 2)]
    assert begun(ruled(log, course)) == {1: 0, 3: 0, 2: 600}
    assert begun(ruled(log)) == {1: 0, 2: 0, 3: 400}


def test_defaults_say_what_jobs_do_not_and_force_what_they_do() -> None:
    rules = '[qos.q1]\n[defaults.all]\nqos = "q1"\n[defaults.one]\nuser = "u1"\n"force.time" = "1:00"\n'
    log = [record(1, 0, 100, 1, user=1), record(2, 0, 100, 1, user=2)]
    assert [one.qos for one in ruled(log, rules).ran] == ["q1", "q1"]
    # Who is killed at the limit is killed at the one that is forced.
    machine = uniform(4, 1)
    killed = workload(log, machine, Choices(names=Names(), kill_at_limit=True))
    found = replay(killed, machine, "easy", rules=Rules(plain_config(machine), records_of(rules)))
    assert sorted(one.run_us // 1_000_000 for one in found.ran) == [60, 100]


def test_who_is_killed_at_a_longer_limit_than_it_asked_for_runs_so_long() -> None:
    rules = '[defaults.one]\nuser = "u1"\n"force.time" = "3:00"\n'
    log = [record(1, 0, 500, 1, asked_s=60, user=1), record(2, 0, 500, 1, asked_s=60, user=2)]
    machine = uniform(4, 1)
    killed = workload(log, machine, Choices(names=Names(), kill_at_limit=True))
    found = replay(killed, machine, "easy", rules=Rules(plain_config(machine), records_of(rules)))
    assert {one.job.name: one.run_us // 1_000_000 for one in found.ran} == {"1": 180, "2": 60}


def test_records_may_send_jobs_to_partitions() -> None:
    machine = uniform(4, 1)
    names = tuple(machine.topology.names)
    partitions = (Partition("all", names, True), Partition("half", names[:2]))
    rules = Rules(plain_config(machine), records_of('[defaults.all]\n"force.partition" = "half"\n'))
    assert rules.route and not Rules(plain_config(machine)).route
    log = [record(number, 0, 100, 1) for number in (1, 2, 3)]
    text = '[defaults.all]\n"force.partition" = "half"\n'
    found = ruled(log, text, names=Names(routed=True), partitions=partitions)
    assert begun(found) == {1: 0, 2: 0, 3: 100}


# ---- priorities ----


def test_weights_change_the_order() -> None:
    log = [record(1, 0, 100, 4), record(2, 1, 100, 1), record(3, 2, 100, 4)]
    assert begun(ruled(log, policy="fcfs")) == {1: 0, 2: 100, 3: 200}
    large = PriorityWeights(size=1000)
    assert begun(ruled(log, policy="fcfs", priority=large)) == {1: 0, 3: 100, 2: 200}
    qos = "[qos.q1]\npriority = 1\n[qos.q2]\npriority = 9\n"
    queues = [record(1, 0, 100, 4, queue=1), record(2, 1, 100, 4, queue=1), record(3, 2, 100, 4, queue=2)]
    weights = PriorityWeights(qos=1000)
    assert begun(ruled(queues, qos, "fcfs", names=QUEUES, priority=weights)) == {1: 0, 3: 100, 2: 200}


def test_age_alone_keeps_the_order() -> None:
    log = [record(number, number, 50, 1 + number % 4) for number in range(12)]
    assert begun(ruled(log, priority=PriorityWeights(age=1000))) == begun(ruled(log))


def test_fair_share_alternates_users() -> None:
    # User 1 comes with all at once, user 2 right after; each run makes its user wait for the other's.
    log = [record(number, 0, 100, 4, user=1) for number in (1, 2, 3)]
    log += [record(number, 1, 100, 4, user=2) for number in (4, 5, 6)]
    assert [*begun(ruled(log, policy="fcfs"))] == [1, 2, 3, 4, 5, 6]
    fair = PriorityWeights(fairshare=1000, recompute_s=1.0)
    assert [*begun(ruled(log, policy="fcfs", priority=fair))] == [1, 4, 2, 5, 3, 6]


def test_usage_fades_with_its_half_life() -> None:
    # User 1 used much long ago, user 2 little just now: who remembers for long prefers 2, who forgets soon prefers 1.
    log = [record(1, 0, 20_000, 4, user=1), record(2, 100_000, 1_000, 4, user=2)]
    log += [record(3, 100_100, 10, 4, user=1), record(4, 100_100, 10, 4, user=2)]
    order = {}
    for half_life_s in (3_600, 10_000_000):
        fair = PriorityWeights(fairshare=1000, recompute_s=1.0, half_life_s=half_life_s)
        order[half_life_s] = [*begun(ruled(log, policy="fcfs", priority=fair))]
    assert order == {3_600: [1, 2, 3, 4], 10_000_000: [1, 2, 4, 3]}


# ---- making room ----


def preempting(mode: str, **more: object) -> str:
    lines = "".join(f"{key} = {value!r}\n" for key, value in more.items())
    return f'[qos.q1]\npreempt_mode = "{mode}"\n{lines}[qos.q2]\npreempts = "q1"\n'


CROWD = [record(1, 0, 100, 4, queue=1), record(2, 10, 50, 4, queue=2)]


def test_whoever_makes_room_begins_again() -> None:
    found = ruled(CROWD, preempting("requeue", preempt_grace="5s"), names=QUEUES)
    # Its grace is used; afterwards it runs from the start again.
    assert begun(found) == {2: 15, 1: 65}
    assert [one.run_us // 1_000_000 for one in found.ran] == [50, 100]
    happened = found.happened
    assert happened is not None
    assert (happened.requeued, happened.ended, happened.paused, happened.lost_s) == (1, 0, 0, 60)
    assert happened.sentences() == [
        "to make room: 1 run ended and begun again later (60 processor seconds of work were lost)"
    ]
    assert measure(found).wait_max_s == 65


def test_whoever_makes_room_may_be_ended_for_good() -> None:
    found = ruled(CROWD, preempting("cancel", preempt_grace="5s"), names=QUEUES)
    assert begun(found) == {1: 0, 2: 15}
    assert [one.run_us // 1_000_000 for one in found.ran] == [15, 50]
    assert found.happened is not None and found.happened.ended == 1


def test_whoever_makes_room_may_stand_still() -> None:
    found = ruled(CROWD, preempting("suspend"), names=QUEUES)
    assert begun(found) == {1: 0, 2: 10}
    first = next(one for one in found.ran if one.job.name == "1")
    assert (first.end_us - first.start_us, first.paused_us, first.run_us, first.wait_us) == (
        150_000_000,
        50_000_000,
        100_000_000,
        50_000_000,
    )
    assert found.happened is not None and found.happened.paused == 1
    assert measure(found).utilisation == 1.0


@pytest.mark.parametrize("mode", ["requeue", "suspend"])
def test_a_circle_of_those_who_make_room_is_never_believed(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "ROOM_MAX", 0)
    with pytest.raises(
        Broken, match="jobs make room for each other and none of them ends, at 345610000000 us"
    ):
        ruled(CROWD, preempting(mode), names=QUEUES)


def test_nobody_makes_room_before_the_time_that_is_its_own() -> None:
    found = ruled(CROWD, preempting("requeue", preempt_grace=0, preempt_exempt="30s"), names=QUEUES)
    assert begun(found)[2] == 30


def test_a_start_planned_for_at_once_is_tried_again_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = uniform(4, 1)
    begin_us = MONDAY_S * 1_000_000
    seat = CoreDriver(Rules(plain_config(machine)), "easy", begin_us)
    first, second = workload(CROWD, machine, Choices(names=Names())).jobs
    for job in (first, second):
        assert seat.arrive(job) == ""
    assert [change.job_id for change in seat.plan(begin_us)] == [1]
    monkeypatch.setattr(Overdue, "wake_us", lambda self, schedule, now_us: now_us + 1)
    waits = []
    for _ in range(8):
        assert list(seat.plan(begin_us)) == []
        waits.append((seat.wake_us(begin_us) - begin_us) // 1_000_000)
    assert waits == [2, 4, 8, 16, 32, 60, 60, 60]


def test_partitions_of_a_higher_tier_push_out() -> None:
    names = ("n0", "n1", "n2", "n3")
    partitions = (Partition("1", names, True, preempt_mode="requeue"), Partition("2", names, tier=1))
    nodes = tuple(NodeConfig(name, (1, 0)) for name in names)
    config = ClusterConfig("lab", nodes, partitions, kill_grace_s=7.0)
    machine = from_config(config)
    log = [record(1, 0, 100, 4, partition=1), record(2, 10, 50, 4, partition=2)]
    found = workload(log, machine, Choices(names=Names(), partition_from="partition"))
    assert begun(replay(found, machine, "easy", rules=Rules(config))) == {2: 17, 1: 67}


# ---- what is checked, told and refused ----


def test_jobs_that_never_start_are_told_with_the_reason() -> None:
    machine = uniform(4, 1)
    down = Partition("all", tuple(machine.topology.names), True, up=False)
    found = ruled([record(1, 0, 10, 1)], partitions=(down,))
    assert found.ran == () and found.happened is not None
    assert found.happened.sentences()[0].startswith("1 job never started; the first, 1: ")
    assert measure(found).jobs == 0


def test_nobody_is_given_up_while_more_is_to_come() -> None:
    day_s = 86_400
    log = [record(1, 0, 90 * day_s, 4), record(2, 10, 10, 4), record(3, 300 * day_s, 10, 4)]
    late = '[limit.x]\nuser = "*"\nresource = "jobs"\nitems = 9\nvalidity = "cron(0 * * * *)"\n'
    assert begun(ruled(log, late)) == {1: 0, 2: 90 * day_s, 3: 300 * day_s}
    assert len(run(log, "easy").ran) == 3


def test_use_beyond_a_limit_is_noticed_when_it_comes_into_force() -> None:
    machine = uniform(4, 1)
    night = '[limit.night]\nuser = "u1"\nresource = "nodes"\nitems = 1\nvalidity = "cron(0 1 * * *)+1h"\n'
    seat = CoreDriver(Rules(plain_config(machine), records_of(night)), "easy", MONDAY_S * 1_000_000)
    watch = Watch(machine, seat.policies, seat.calendar)
    who = Who("u1", ("1",), "", "", "all")
    midnight_us, one_us = MONDAY_S * 1_000_000, (MONDAY_S + 3_600) * 1_000_000
    placement = Placement(1, tuple(Span(node, (1, 0), 1) for node in (0, 1)), INFINITY_US)
    assert watch.start(who, placement, midnight_us, INFINITY_US) == ""
    assert watch.at(midnight_us) == watch.at(one_us - 1) == ""
    assert watch.at(one_us) == "limit night: user u1 uses 2 nodes, 1 are allowed"
    # Whoever should have been gone by then is in nobody's plan.
    watch = Watch(machine, seat.policies, seat.calendar)
    assert watch.start(who, placement, midnight_us, one_us) == watch.at(midnight_us) == watch.at(one_us) == ""


def test_a_planner_that_breaks_a_limit_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful = type("Forgetful", (Watch,), {"_in_force": lambda self, *one, **more: list(self._limits)})
    monkeypatch.setattr(loop, "Watch", forgetful)
    night = '[limit.day]\nuser = "*"\nresource = "cores"\nitems = 1\nvalidity = "cron(0 1 * * *)+1h"\n'
    with pytest.raises(
        Broken, match=r"limit day: user u1 uses 4 cores, 1 are allowed, at .* when job 1 starts"
    ):
        ruled([record(1, 0, 10, 4)], night)


def test_a_planner_that_ignores_a_reservation_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Blind(CoreDriver):
        def plan(self, now_us: int):  # type: ignore[no-untyped-def]
            for one in super().plan(now_us):
                yield one if not isinstance(one, Placement) else Placement(one.job_id, one.spans, 1 << 60)

    monkeypatch.setattr(loop, "CoreDriver", Blind)
    course = '[reservation.course]\nnodes = "n[0-3]"\nstart = "1970-01-05T01:00"\nduration = "1h"\n'
    with pytest.raises(Broken, match="reservation course has one of its nodes from 349200000000 us on"):
        ruled([record(1, 0, 10, 4)], course)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[limit.x]\nuser = "u1"\nitems = "many"\n', "limit x: items: 'many'"),
        ('[limit.x]\ngroup = "staff"\nitems = 1\n', "limit x: group: 'staff' is no group here"),
        ('[limit.x]\nqos = "none"\nitems = 1\n', "qos 'none' does not exist"),
        (
            '[reservation.x]\nnodes = "n9"\nstart = "1970-01-06"\nduration = "1h"\n',
            "n9 do not exist",
        ),
        (
            '[reservation.x]\nnodes = "n0"\nstart = "1970-01-01"\nend = "1970-01-04"\n',
            "reservation x: ends before it begins",
        ),
    ],
)
def test_wrong_records_are_refused_like_by_the_controller(text: str, told: str) -> None:
    with pytest.raises(RulesError, match=told):
        ruled([record(1, 0, 10, 1)], text)


def told_of(records: Sequence[Record], text: str, names: Names | None = None) -> tuple[str, ...]:
    machine = uniform(4, 1)
    found = workload(records, machine, Choices(names=names or Names()))
    return notes_of(Rules(plain_config(machine), records_of(text)), "easy", found)


def test_what_cannot_matter_is_named() -> None:
    log = [record(1, 0, 10, 1, user=1, group=2), record(2, 3600, 10, 1, user=1, group=2)]
    text = (
        '[user.ada]\n[limit.a]\nuser = "u1"\nresource = "cores"\nitems = 1\n'
        '[limit.b]\ngroup = "g9"\nresource = "cores"\nitems = 1\nvalidity = "2020-01-01.."\n'
        '[reservation.c]\nnodes = "n0"\nstart = "1970-01-05"\nduration = "1h"\n'
    )
    assert told_of(log, text) == (
        "limit b is never in force from the first submission (1970-01-05T00:00:00) to the last (1970-01-05T01:00:00)",
        "the records name user ada: no job of the log is theirs",
        "the records name group g9: no job of the log is theirs",
        "no job of a log names a reservation: what c keeps stays empty",
    )
    assert told_of(log, '[limit.a]\nuser = "u1"\nresource = "cores"\nitems = 1\n') == ()


def test_fields_of_the_log_name_accounts_and_qos() -> None:
    machine = uniform(4, 1)
    names = Names(account_from="group", qos_from="queue", accounts=frozenset({"3"}), qos=frozenset({"q1"}))
    log = [
        record(1, 0, 10, 1, group=3, queue=1),
        record(2, 0, 10, 1, group=4, queue=2),
        record(3, 0, 10, 1, user=-1),
    ]
    found = workload(log, machine, Choices(names=names))
    assert [(job.account, job.qos) for job in found.jobs] == [("3", "q1"), ("g4", ""), ("", "")]
    assert found.notes == (
        "1 job with a queue that is no QOS of the records: without a QOS",
        "1 job without a user: taken for those of one, called unknown",
        "1 job without a group: without an account",
        "1 job without a queue: without a QOS",
        "the log does not say when it began (UnixStartTime): taken for Monday 1970-01-05 00:00 UTC",
    )


def test_the_waits_of_parts_of_the_jobs() -> None:
    found = ruled(LIMITED, "[qos.q1]\n[qos.q2]\n", names=QUEUES)
    first, second = measure_by(found, lambda ran: ran.qos)
    assert (first.name, first.jobs, first.wait_mean_s) == ("q2", 2, 0.0)
    assert first.share == pytest.approx(2 / 3)
    assert (second.name, second.jobs, second.wait_mean_s, second.wait_max_s) == ("q1", 1, 99.0, 99.0)


# ---- without rules ----

LOGS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 40), st.integers(1, 6), st.integers(1, 60)),
    min_size=1,
    max_size=20,
)


def outline(result: Result) -> list[tuple[int, int, int, tuple[tuple[int, int], ...]]]:
    begin_us = result.ran[0].job.submit_us - result.ran[0].job.record.submit_s * 1_000_000
    return [
        (one.job.record.job_id, one.start_us - begin_us, one.end_us - begin_us, one.spans)
        for one in result.ran
    ]


@settings(max_examples=draws(40), deadline=None)
@given(LOGS, st.sampled_from(POLICIES), st.sampled_from([(6, 1), (3, 2), (2, 4)]))
def test_without_rules_the_core_does_what_the_planner_alone_does(
    drawn: list[tuple[int, int, int, int]], policy: str, shape: tuple[int, int]
) -> None:
    nodes, cores = shape
    log = [record(number, *fields) for number, fields in enumerate(drawn, start=1)]
    plain, found = (
        run(log, policy, nodes=nodes, cores=cores),
        ruled(log, "", policy, nodes=nodes, cores=cores),
    )
    assert outline(found) == outline(plain)
    assert (found.cycles, found.lost_us, found.waiting_max) == (
        plain.cycles,
        plain.lost_us,
        plain.waiting_max,
    )
    assert found.happened is not None and found.happened.sentences() == []


RULES = (
    '[qos.q1]\npreempt_mode = "requeue"\n[qos.q2]\npreempts = "q1"\npreempt_grace = "3s"\n'
    '[limit.u]\nuser = "*"\nresource = "cores"\nitems = 4\n'
    '[limit.q]\nqos = "q1"\nresource = "nodes"\nitems = "1/60%"\nvalidity = "cron(* */2 * * *)"\n'
    '[pool.p]\nresource = "cores"\nitems = 1\naccess = "cores<3"\n'
    '[reservation.r]\nnodes = "n0"\nvalidity = "cron(0 */5 * * *)+1h"\n'
)


@settings(max_examples=20, deadline=None)
@given(LOGS, st.sampled_from(POLICIES), st.sampled_from(["requeue", "cancel", "suspend"]))
def test_every_run_under_rules_holds_and_is_repeatable(
    drawn: list[tuple[int, int, int, int]], policy: str, mode: str
) -> None:
    log = [
        record(number, 60 * submit, 60 * run, size, 60 * asked, queue=1 + number % 2)
        for number, (submit, run, size, asked) in enumerate(drawn, start=1)
    ]
    text = RULES.replace("requeue", mode)
    weights = PriorityWeights(age=100, size=50, fairshare=200, recompute_s=1.0)
    first, second = (ruled(log, text, policy, nodes=6, names=QUEUES, priority=weights) for _ in range(2))
    assert outline(first) == outline(second) if first.ran else not second.ran
    happened = first.happened
    assert happened is not None
    left = sum(one.count for one in (*happened.refused, *happened.stuck))
    assert len(first.ran) + left == len(drawn)
    assert happened == second.happened
