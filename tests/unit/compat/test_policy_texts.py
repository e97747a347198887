"""Policies as administrators write them, read and shown again. The paper's examples are among them (C-12, C-15)."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.compat.errors import OptionError
from eslurm.compat.policies import DEFAULT_OPTIONS, FORCE, KEYS, Site, read_change, shown
from eslurm.core.model.accounts import (
    EVERYONE,
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
from eslurm.core.model.dates import days_from_civil
from eslurm.core.model.messages import ReservedNodes, ReservedTime

HOUR = 3600
DAY = 86_400
US = 1_000_000
NOW_US = days_from_civil(2026, 3, 4) * DAY * US
GROUPS = {"G1": "1001", "G2": "1002"}


def _group_of(gid: str) -> str:
    return next((name for name, number in GROUPS.items() if number == gid), gid)


SITE = Site(NOW_US, lambda _: 0, GROUPS.__getitem__, _group_of)


def read(kind: str, *words: str, action: str = "add", present: Policy | None = None) -> Policy:
    change = read_change(action, kind, "x", pairs(*words), SITE, present)
    assert change.policy is not None
    return change.policy


def pairs(*words: str) -> list[tuple[str, str]]:
    return [(key, value) for key, _, value in (word.partition("=") for word in words)]


def problem(kind: str, *words: str, action: str = "add", name: str = "x") -> str:
    with pytest.raises(OptionError) as raised:
        read_change(action, kind, name, pairs(*words), SITE)
    return str(raised.value)


AUGUST = Validity(days_from_civil(2017, 8, 1) * DAY * US, days_from_civil(2017, 9, 1) * DAY * US)


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("resource=* items=unlimited duration=7d", Limit("x", "group", "1001", "*", Amount(), 7 * DAY)),
        (
            "resource=ncpus items=640 duration=4d3h validity=2017-08-01..2017-08-31",
            Limit("x", "group", "1001", "cores", Amount(640), 99 * HOUR, 0, AUGUST),
        ),
        (
            "resource=tesla items=unlimited area=500h",
            Limit("x", "group", "1001", "tesla", Amount(), 0, 500 * HOUR),
        ),
        ("resource=arrayjobs items=1000", Limit("x", "group", "1001", "arrayjobs", Amount(1000))),
        ("resource=jobs items=5000", Limit("x", "group", "1001", "jobs", Amount(5000))),
    ],
)
def test_the_five_limits_of_the_paper(words: str, limit: Limit) -> None:
    assert read("limit", "group=G1", *words.split()) == limit


@pytest.mark.parametrize(
    ("words", "pool"),
    [
        (
            ("resource=cores", "items=10/20%", "access=cores<4 and time<1h"),
            FreePool("x", "cores", Amount(10, 20.0), (Access(items_below=4, time_below_s=HOUR),)),
        ),
        (
            ("resource=gpus", "items=all", "access=group=G1,G2 or user=alice or time<=2h"),
            FreePool(
                "x",
                "gpu",
                Amount(),
                (Access(groups=("1001", "1002")), Access(users=("alice",)), Access(time_max_s=2 * HOUR)),
            ),
        ),
        (
            ("feature=gpu", "validity=cron(0 8 1-7 */2 mon)+10h"),
            FreePool("x", feature="gpu", validity=Validity(0, 0, "0 8 1-7 */2 1", 10 * HOUR)),
        ),
    ],
)
def test_the_three_pools_of_the_paper(words: tuple[str, ...], pool: FreePool) -> None:
    assert read("pool", *words) == pool
    assert read("pool", *(f"{key}={value}" for key, value in shown(pool, SITE).items())) == pool


def test_memory_has_units_and_other_names_of_resources_are_known() -> None:
    assert read("limit", "items=2G", "user=ada", "resource=mem") == Limit(
        "x", "user", "ada", "memory_mib", Amount(2048)
    )
    present = Limit("x", "user", "ada", "memory_mib", Amount(1))
    changed = read("limit", "items=3G", action="modify", present=present)
    assert isinstance(changed, Limit) and changed.amount == Amount(3072)


def test_a_change_says_what_is_given_joined_and_taken_away() -> None:
    change = read_change(
        "modify", "user", "ada", pairs("shares=3", "accounts+=chem", "qos-=high"), SITE, User("ada")
    )
    assert change.policy == User("ada", ("chem",), 3, ("high",))
    assert (set(change.given), change.added, change.removed) == (
        {"shares", "accounts", "qos"},
        ("accounts",),
        ("qos",),
    )


def test_a_reservation_by_number_and_by_times() -> None:
    change = read_change(
        "add",
        "reservation",
        "course",
        pairs(
            "nodes=4", "feature=gpu", "partition=batch", "start=2026-03-05T08:00", "duration=4h", "groups=G2"
        ),
        SITE,
    )
    assert change.choose == ReservedNodes(4, "batch", "gpu")
    assert change.time == ReservedTime(NOW_US + (DAY + 8 * HOUR) * US, 0, 4 * HOUR)
    assert isinstance(change.policy, Reservation) and change.policy.groups == ("1002",)
    named = read_change("add", "reservation", "r", pairs("nodes=cn[1-3]", "end=now+1hour"), SITE)
    assert named.choose is None and isinstance(named.policy, Reservation)
    assert named.policy.nodes == ("cn1", "cn2", "cn3")
    assert named.time == ReservedTime(0, NOW_US + HOUR * US)


def test_defaults_are_kept_in_one_form_and_shown_as_people_write_them() -> None:
    found = read("defaults", "group=G1", "time=1:30:00", "force.mem-per-cpu=2G", "requeue=No", "qos=")
    assert found == Defaults(
        "x", "group", "1001", (("time", "5400"), ("requeue", "no")), (("mem-per-cpu", "2048"),)
    )
    told = shown(Defaults("x", "group", "1001", (("time", "5400"),), (("mem-per-cpu", "2048"),)), SITE)
    assert told == {"group": "G1", "time": "1h30m", "force.mem-per-cpu": "2G"}


@pytest.mark.parametrize(
    ("kind", "words", "said"),
    [
        ("limit", ("items=1",), ("limit x", "on nobody", "user=*")),
        ("limit", ("user=ada",), ("limits nothing", "items=")),
        ("limit", ("user=ada", "group=G1", "items=1"), ("second consumer",)),
        ("limit", ("user=ada", "itmes=1"), ("itmes", "did you mean items?")),
        ("limit", ("user=ada", "items=3%/10"), ("items", "column 1")),
        ("limit", ("user=ada", "items=1", "items=2"), ("given twice",)),
        ("limit", ("user=ada", "items+=1"), ("is no list",)),
        ("limit", ("group=nobody_knows", "items=1"), ("is no group here", "getent")),
        ("limit", ("user=ada", "items=1", "validity=2026-02-30.."), ("validity", "column 1")),
        ("pool", ("access=cores<4 and",), ("access", "column")),
        ("pool", ("validity=cron(61 * * * *)",), ("validity", "column")),
        ("account", ("shares=0",), ("shares", "is no share")),
        ("account", ("parent=a b",), ("is not a name",)),
        ("user", ("accounts=a;b",), ("is not a name", "accounts=ada,bob")),
        ("qos", ("preempt_mode=shoot",), ("off, requeue, cancel, suspend",)),
        ("qos", ("usage_factor=-1",), ("factor",)),
        ("reservation", ("nodes=2",), ("start", "is missing")),
        ("reservation", ("start=now", "duration=1h"), ("nodes", "are missing")),
        ("reservation", ("nodes=2", "start=now", "duration=0"), ("is no length",)),
        ("reservation", ("nodes=2", "start=now", "end=now+1hour", "flags=none"), ("ignore_running",)),
        (
            "reservation",
            ("nodes=2", "start=now", "end=now+1hour", "maintenance=maybe"),
            ("neither yes nor no",),
        ),
        ("defaults", (), ("say nothing",)),
        ("defaults", ("requeue=maybe",), ("neither yes nor no",)),
        ("defaults", ("nice=x",), ("not a whole number",)),
        ("account", ("description=\a",), ("short text",)),
    ],
)
def test_what_is_wrong_is_named_with_the_way_out(
    kind: str, words: tuple[str, ...], said: tuple[str, ...]
) -> None:
    text = problem(kind, *words)
    for word in said:
        assert word in text, text
    assert text.startswith(f"{kind} x: "), text


def test_kinds_names_and_actions_are_checked() -> None:
    assert "use one of account" in problem("acount")
    assert "is not a name" in problem("account", name="a/b")
    assert "is not an action" in problem("account", action="drop")
    assert "changes nothing" in problem("account", action="modify")
    assert "mean nothing" in problem("account", "shares=2", action="delete")


# ---- the way back ----

WORD = st.text(string.ascii_lowercase, min_size=1, max_size=6)
WORDS = st.lists(WORD, max_size=3, unique=True).map(tuple)
GIDS = st.lists(st.sampled_from(["1001", "1002", "1234"]), max_size=3, unique=True).map(tuple)
NUMBER = st.integers(0, 10**6)
MOMENT_US = st.integers(1, 4_000_000_000).map(lambda seconds: seconds * US)
VALIDITY = st.one_of(
    st.just(Validity()),
    st.tuples(MOMENT_US, st.integers(1, 10**6)).map(lambda pair: Validity(pair[0], pair[0] + pair[1] * US)),
    st.integers(60, DAY).map(lambda seconds: Validity(0, 0, "30 7 * * 1,5", seconds)),
)
AMOUNT = st.one_of(
    st.just(Amount()), NUMBER.map(Amount), st.integers(1, 100).map(lambda percent: Amount(-1, float(percent)))
)
CONSUMER = st.one_of(
    st.tuples(st.sampled_from(["user", "account", "qos", "partition"]), st.one_of(WORD, st.just(EVERYONE))),
    st.tuples(st.just("group"), st.sampled_from(["1001", "9999", EVERYONE])),
)
ACCESS = st.lists(
    st.builds(
        Access,
        users=st.lists(WORD, min_size=1, max_size=2).map(tuple),
        groups=GIDS,
        items_below=NUMBER,
        time_max_s=NUMBER,
    ),
    max_size=3,
).map(tuple)
DEFAULTS = st.dictionaries(
    st.sampled_from([option for option in DEFAULT_OPTIONS if option in ("time", "mem-per-cpu", "nice")]),
    st.integers(1, 10**6).map(str),
    min_size=1,
).map(lambda values: tuple(values.items()))
POLICY = st.one_of(
    st.builds(Account, st.just("x"), parent=WORD, shares=st.integers(1, 99), validity=VALIDITY),
    st.builds(User, st.just("x"), accounts=WORDS, shares=st.integers(1, 99), qos=WORDS, validity=VALIDITY),
    st.builds(
        Qos,
        st.just("x"),
        priority=NUMBER,
        preempts=WORDS,
        preempt_mode=st.sampled_from(["off", "requeue", "cancel", "suspend"]),
        preempt_grace_s=st.one_of(st.just(-1), NUMBER),
        usage_factor=st.sampled_from([0.0, 0.5, 1.0, 2.25]),
        time_limit_max_s=NUMBER,
    ),
    st.builds(
        lambda who, resource, amount, seconds, validity: Limit(
            "x", *who, resource, amount, *seconds, validity
        ),
        CONSUMER,
        st.sampled_from(["*", "cores", "memory_mib", "jobs"]),
        AMOUNT,
        st.tuples(NUMBER, NUMBER),
        VALIDITY,
    ),
    st.builds(
        FreePool, st.just("x"), resource=WORD, amount=AMOUNT, access=ACCESS, feature=WORD, validity=VALIDITY
    ),
    st.builds(
        Reservation,
        st.just("x"),
        VALIDITY,
        nodes=st.sampled_from([("cn1",), ("cn1", "cn2", "cn7")]),
        users=WORDS,
        groups=GIDS,
        maintenance=st.booleans(),
        flags=st.sampled_from([(), ("ignore_running",)]),
    ),
    st.builds(
        lambda who, values, forced: Defaults("x", *who, values, forced),
        st.one_of(st.just(("system", EVERYONE)), CONSUMER.filter(lambda who: who[0] in ("user", "group"))),
        DEFAULTS,
        DEFAULTS,
    ),
)


@given(POLICY)
def test_what_is_shown_reads_as_the_same_policy(policy: Policy) -> None:
    settings = list(shown(policy, SITE).items())
    assert read_change("set", kind_of(policy), "x", settings, SITE).policy == policy


def test_every_key_is_named_once_and_forced_values_have_the_options_of_defaults() -> None:
    for kind, keys in KEYS.items():
        assert "state" not in keys, kind
        assert all(key == key.lower() for key in keys)
    assert {FORCE + option for option in DEFAULT_OPTIONS} <= KEYS["defaults"].keys()
