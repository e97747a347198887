"""A book with far too few slots: stays are rounded, and yet no cycle fails and all that was booked is given back."""

from __future__ import annotations

import random
from typing import Final

import pytest

from eslurm.core.model.job import Span
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.policies import BUILT_IN
from eslurm.core.plan.cycle.queue import Pending, PendingQueue, QueueEntry
from eslurm.core.plan.cycle.schedule import Booking, Schedule
from eslurm.core.plan.cycle.snapshot import NodeView
from eslurm.core.plan.profile.profile import ResourceProfile
from eslurm.core.plan.slices import exhaust
from eslurm.core.resources.nodes import Topology
from tests.property.test_plan_schedule import AHEAD, Site, happen

MINUTE_US: Final = 60_000_000
"""Ends are rounded to about a second: these histories last for hours."""
EVENTS: Final = 30
KINDS: Final = (
    *("submit",) * 6,
    *("array", "array", "end", "end", "wait", "wait", "wait"),
    *("after", "begin", "late", "out", "back", "cancel"),
)


class Rounding(Site):
    """The same cluster; for what starts later a little more may be taken than is asked, from now on even."""

    def _check(self, plan: Plan) -> None:
        book = self.schedule.book
        book.check()
        for position, node in enumerate(self.ledger.topology.numbers):
            free = book.free_on(node, self.now_us, self.now_us + 1)
            pairs = zip(free, self.ledger.free_on(position), strict=True)
            assert all(planned <= there for planned, there in pairs)
        for booking in plan.promises():
            assert booking.job_id in self.queue or booking.job_id in self.later
        if self.policy in AHEAD:
            self._check_everybody_is_planned(plan)


def live_on(site: Site, rng: random.Random) -> None:
    """Something happens; some of what ought to have ended goes on."""
    kind, number = rng.choice(KINDS), rng.randint(0, 40)
    length_us = rng.randint(1, 15) * MINUTE_US + rng.randint(0, 59) * 1_000_000
    request = Request(
        tasks=rng.randint(1, 5),
        cpus_per_task=rng.randint(1, 2),
        nodes_min=rng.randint(0, 2),
        exclusive=rng.random() < 0.25,
    )
    if kind == "wait":
        site.now_us += number * MINUTE_US
        for key in sorted(site.live):
            if site.live[key].until_us <= site.now_us and rng.random() < 0.8:
                site.end(key)
    elif kind == "begin":
        site.submit(request, length_us, not_before_us=site.now_us + number * MINUTE_US)
    else:
        happen(site, (kind, number, length_us, request))


@pytest.mark.parametrize("seed", range(80))
def test_no_cycle_fails_and_everything_is_given_back(seed: int) -> None:
    rng = random.Random(seed)
    limits = PlanLimits(overdue_grace_us=MINUTE_US // 2)
    site = Rounding(rng.choice(sorted(BUILT_IN)), rng.randint(2, 5), limits)
    site.schedule = Schedule(slots_max=rng.choice([1, 2, 4, 8]))
    site.cycle()
    for _ in range(EVENTS):
        live_on(site, rng)
        site.cycle()
    for key in list(site.live):
        site.end(key)
    for job_id in range(1, site.next_id):
        site.cancel(job_id)
    site.cycle()
    book = site.schedule.book
    assert book.slots == 1
    assert not book.used(0).slots()


def a_schedule() -> Schedule:
    """One of a single node of four cores, that rounds whatever is booked."""
    schedule = Schedule(slots_max=1)
    schedule.book = ResourceProfile(
        Topology([NodeView(0, "n0", (4, 0), True, ("all",))]), now_us=0, slots_max=1
    )
    return schedule


def an_entry(job_id: int) -> QueueEntry:
    queue = PendingQueue()
    queue.add(Pending(job_id, Request(), "all", MINUTE_US, startable=2))
    return queue.first(1)[0]


def a_booking(job_id: int, start_us: int, stop_us: int) -> Booking:
    return Booking(job_id, start_us, stop_us, (Span(0, (4, 0), 1),))


def test_starts_of_one_job_that_follow_each_other_can_be_booked_again() -> None:
    """Together, in any order: what comes first is not rounded up beyond the start of the next."""
    schedule, entry = a_schedule(), an_entry(1)
    places = [a_booking(1, at * MINUTE_US + at, at * MINUTE_US + MINUTE_US + at) for at in range(1, 4)]
    for order in (places, places[::-1]):
        exhaust(schedule.adding(entry, order))
        assert schedule.remove(1) == tuple(order)
        schedule.book.check()
        assert schedule.book.slots == 1


def test_what_was_rounded_up_is_given_back_after_the_end_too() -> None:
    schedule = a_schedule()
    late = a_booking(1, 0, 90_000_001)
    schedule.start(an_entry(1).job, late)
    schedule.book.advance(90_000_001)
    assert schedule.book.free_on(0, 90_000_001, 90_000_002) == (0, 0)
    exhaust(schedule.giving(None, late))
    assert schedule.book.free_on(0, 90_000_001, 90_000_002) == (4, 0)
    assert schedule.book.slots == 1


def test_a_plan_whose_start_was_rounded_down_gives_way_too() -> None:
    """By its own times it begins when the other one is over."""
    schedule = a_schedule()
    schedule.add(an_entry(2), a_booking(2, 50_000_000, 80_000_000))
    assert schedule.book.free_on(0, 0, 50_000_000) == (0, 0)
    schedule.start(an_entry(1).job, a_booking(1, 0, 50_000_000), must=True)
    assert 2 in schedule.displaced
    assert schedule.book.free_on(0, 0, 50_000_000) == (0, 0)
    schedule.book.check()
