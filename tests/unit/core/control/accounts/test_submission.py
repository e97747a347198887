"""Limits and pools at submission: refusals, defaults and force values, and the count of jobs."""

from __future__ import annotations

import pytest

from eslurm.core.control.accounts.defaults import OPTIONS, with_defaults
from eslurm.core.model.accounts import Account, Amount, Defaults, FreePool, Limit, Validity
from eslurm.core.model.job import JobSpec, Principal
from eslurm.core.model.messages import ChangePolicies, PolicyChange
from eslurm.core.model.request import Chunk, Request
from tests.kits.core import ALICE, BOB, ROOT, SECOND, World, refused
from tests.unit.core.control.accounts.test_policies import put

HOUR = 3600


def limited(*policies: Limit | FreePool) -> World:
    world = World()
    world.send(put(*policies))
    return world


def test_jobs_in_the_system_are_counted_until_they_end() -> None:
    world = limited(Limit("few", "user", "*", "jobs", Amount(3)))
    first = world.submit()
    world.submit(tasks=((0, 1),))
    text = refused(world.try_submit())
    assert "limit few: user alice may have 3 jobs in the system, 3 are there and 1 would come" in text
    world.submit(user=BOB)
    world.cancel(first)
    world.submit()
    assert "limit few" in refused(world.try_submit())


def test_jobs_of_accounts_below_count_for_those_above() -> None:
    world = World()
    world.send(put(Account("physics"), Account("atoms", "physics"), Account("quarks", "atoms")))
    world.send(put(Limit("few", "account", "physics", "jobs", Amount(3))))
    world.submit(account="physics")
    world.submit(account="atoms")
    world.submit(account="quarks", user=BOB)
    assert "limit few: account physics may have 3 jobs" in refused(world.try_submit(account="quarks"))
    world.submit()
    moved = Account("atoms")
    world.send(ChangePolicies(ROOT, (PolicyChange("set", "account", "atoms", moved),)))
    world.submit(account="quarks")
    world.submit(account="physics")


def test_an_array_has_a_bound_of_its_own() -> None:
    world = limited(Limit("arrays", "user", "*", "arrayjobs", Amount(10)))
    world.submit(tasks=((0, 9),))
    world.submit(tasks=((0, 9),))
    text = refused(world.try_submit(tasks=((0, 10),)))
    assert (
        "--array: 11 tasks are more than limit arrays lets user alice have in one array (10): split it"
        in text
    )


def test_a_bound_for_a_name_overrides_that_for_each_while_it_is_in_force() -> None:
    later = Validity(2_000 * SECOND)
    world = limited(
        Limit("each", "user", "*", "jobs", Amount(1)),
        Limit("alices", "user", "alice", "jobs", Amount(3), validity=later),
    )
    world.submit()
    assert "limit each" in refused(world.try_submit())
    world.now_us = 2_000 * SECOND
    world.submit()
    world.submit()
    assert "limit alices" in refused(world.try_submit())


def test_what_a_limit_never_lets_run_is_refused_with_the_most_it_would() -> None:
    world = limited(Limit("two", "user", "*", "cores", Amount(2), duration_s=HOUR, area_s=HOUR))
    assert "limit two: user alice may use 2 cores at a time, 3 are asked for: ask for at most 2" in refused(
        world.try_submit(request=Request(tasks=3), time_limit_s=600)
    )
    assert "use --time of at most 1 h" in refused(world.try_submit(time_limit_s=HOUR + 1))
    assert "no end is asked for" in refused(world.try_submit(time_limit_s=0))
    assert "with so many use --time of at most 30 min" in refused(
        world.try_submit(request=Request(tasks=2), time_limit_s=HOUR - 1)
    )
    world.submit(request=Request(tasks=2), time_limit_s=1800)


def test_a_limit_that_ends_only_moves_the_job() -> None:
    """C-14."""
    world = limited(Limit("two", "user", "*", "cores", Amount(2), validity=Validity(0, 5_000 * SECOND)))
    large, small = world.submit(request=Request(tasks=3)), world.submit(request=Request(tasks=2))
    assert world.start() == [small], "what the limit lets through starts at once"
    world.end(small)
    world.now_us = 4_999 * SECOND
    assert world.start() == []
    world.now_us = 5_000 * SECOND
    assert world.start() == [large] and world.state_of(large) == "RUNNING"


def test_a_pool_that_keeps_everything_refuses_those_outside() -> None:
    world = limited(FreePool("all", "cores", Amount(-1, 75.0)))
    world.submit(request=Request(tasks=4))
    assert "pool all keeps 12 cores of 16 free for others, 5 are asked for: ask for at most 4" in refused(
        world.try_submit(request=Request(tasks=5))
    )


def spec(**said: object) -> JobSpec:
    request, user, partition = (said.pop(key, "") for key in ("request", "user", "partition"))
    return JobSpec("j", user or ALICE, partition, (request or Request(),), b"", b"", "/", **said)  # type: ignore[arg-type]


SITE = Defaults(
    "site", values=(("time", "3600"), ("partition", "main"), ("nice", "5")), forced=(("requeue", "no"),)
)
GROUP = Defaults("staff", "group", "1000", (("time", "7200"), ("mem-per-cpu", "100")), (("qos", "staff"),))
USER = Defaults("alice", "user", "alice", (("time", "600"),), (("qos", "mine"), ("constraint", "ib")))


def test_defaults_fill_what_is_not_said_and_force_values_overwrite() -> None:
    """C-29."""
    found = with_defaults(spec(qos="high"), (SITE, GROUP, USER))
    assert (found.time_limit_s, found.partition, found.nice) == (600, "main", 5)
    assert (found.qos, found.requeue) == ("mine", False)
    assert (found.components[0].memory_per_cpu_mib, found.components[0].constraint) == (100, "ib")
    assert with_defaults(found, (USER, GROUP, SITE)) == found


def test_what_is_said_stays_unless_it_is_forced() -> None:
    said = spec(time_limit_s=60, partition="gpu", nice=1, request=Request(memory_per_node_mib=7))
    found = with_defaults(said, (SITE, GROUP))
    assert (found.time_limit_s, found.partition, found.nice) == (60, "gpu", 1)
    assert found.components[0] == Request(memory_per_node_mib=7)


def test_a_force_value_of_the_system_wins_over_a_default_of_the_user() -> None:
    forced = Defaults("site", forced=(("time", "60"),))
    assert with_defaults(spec(), (USER, forced)).time_limit_s == 60


def test_of_groups_the_primary_one_counts_first_and_names_before_each() -> None:
    carol = Principal("carol", 7, 20, (20, 30, 10))
    ten, thirty = (Defaults(f"g{gid}", "group", gid, (("time", gid),)) for gid in ("10", "30"))
    each = Defaults("any", "group", "*", (("time", "1"), ("qos", "any")))
    found = with_defaults(spec(user=carol), (each, ten, thirty))
    assert (found.time_limit_s, found.qos) == (30, "any")
    assert with_defaults(spec(user=BOB), (ten, thirty)).time_limit_s == 0


def test_chunks_say_their_own_memory() -> None:
    request = Request(chunks=(Chunk(2),))
    forced = Defaults("site", forced=(("mem-per-cpu", "100"),))
    assert with_defaults(spec(request=request), (forced,)).components == (request,)


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_can_be_forced(option: str) -> None:
    value = {"time": "60", "mem-per-cpu": "5", "nice": "-3", "requeue": "no"}.get(option, "word")
    assert with_defaults(spec(), (Defaults("site", forced=((option, value),)),)) != spec()
