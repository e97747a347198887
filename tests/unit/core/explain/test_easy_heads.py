"""Starts of the first waiting jobs under `easy` on a full cluster: as `eswhy` says, and as is promised later."""

from __future__ import annotations

from eslurm.core.explain.easy_heads import head_starts
from eslurm.core.model.accounts import Amount, Limit
from eslurm.core.model.config import Partition
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import exhaust
from tests.kits.asking import HOUR, Site
from tests.kits.core import BOB, SECOND, World
from tests.unit.core.control.accounts.test_policies import put
from tests.unit.core.explain.test_alternatives import submit

NAMES = ("cn0", "cn1", "cn2", "cn3")
WHOLE = Request(nodes_min=4, nodes_max=4, exclusive=True)
NODE = Request(exclusive=True)
HALVES = (Partition("left", NAMES[:2], default=True), Partition("right", NAMES[2:]))


def full(policy: str = "easy", **config: object) -> Site:
    """Every core is in use: of cn0 for an hour, of the others for two."""
    here = Site(World(restarts=False, policy=policy, **config))  # type: ignore[arg-type]
    here.world.submit(request=Request(include=("cn0",), exclusive=True), time_limit_s=HOUR)
    for name in NAMES[1:]:
        here.world.submit(request=Request(include=(name,), exclusive=True), time_limit_s=2 * HOUR)
    here.run()
    return here


def told(here: Site) -> dict[int, int]:
    """By job the hours from now to its start."""
    state, now_us = here.world.state, here.world.now_us
    found = exhaust(head_starts(state, here.schedule, now_us))
    return {one.job_id: (one.start_us - now_us) // (HOUR * SECOND) for one in found}


def test_the_first_in_the_queue_has_a_start_and_nobody_behind_it() -> None:
    here = full()
    first = here.world.submit(request=WHOLE, time_limit_s=HOUR)
    here.world.submit(request=NODE, time_limit_s=HOUR)
    here.run()
    before = here.schedule.bookings.copy()
    assert told(here) == {first: 2}
    answer = here.why(first)
    assert (answer.start_us - here.world.now_us, answer.is_estimate) == (2 * HOUR * SECOND, True)
    assert here.schedule.bookings == before == {}
    here.schedule.book.check()


def test_it_is_what_is_promised_as_soon_as_a_core_is_free() -> None:
    here = full()
    first = here.world.submit(request=WHOLE, time_limit_s=HOUR)
    here.run()
    assert told(here) == {first: 2}
    here.world.end(1)
    here.run()
    (promised,) = here.schedule.bookings[first]
    assert promised.start_us == here.world.now_us + 2 * HOUR * SECOND
    assert told(here) == {}


def test_other_policies_book_or_promise_nothing() -> None:
    for policy in ("planned", "conservative", "fcfs"):
        here = full(policy)
        here.world.submit(request=WHOLE, time_limit_s=HOUR)
        here.run()
        assert told(here) == {}


def test_partitions_without_common_nodes_have_one_each() -> None:
    here = Site(World(restarts=False, policy="easy", partitions=HALVES))
    for partition, hours in (("left", 1), ("left", 3), ("right", 2), ("right", 2)):
        submit(here, NODE, hours, partition)
    here.run()
    both = Request(nodes_min=2, nodes_max=2, exclusive=True)
    left, right = submit(here, both, 1, "left"), submit(here, NODE, 1, "right")
    submit(here, NODE, 1, "left")
    here.run()
    assert told(here) == {left: 3, right: 2}


def test_whom_a_limit_keeps_waiting_is_passed_over() -> None:
    here = full()
    here.world.send(put(Limit("few", "user", "alice", "nodes", Amount(1))))
    here.world.submit(request=NODE, time_limit_s=HOUR)
    fixed = here.world.submit(request=NODE, start_at_us=here.world.now_us + HOUR * SECOND, time_limit_s=60)
    other = here.world.submit(request=NODE, user=BOB, time_limit_s=HOUR)
    here.run()
    starts = told(here)
    assert fixed not in starts and starts == {other: 1}, starts
