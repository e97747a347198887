"""Bookings of jobs of several parts on one node: what the profile, the ledger and the rules are asked is the sum."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.model.job import Span
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.assignments import assignment_of
from eslurm.core.plan.cycle.beginnings import Beginnings
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.plan.cycle.policy import Cycle
from eslurm.core.plan.cycle.queue import PendingPart, PendingQueue
from eslurm.core.plan.cycle.reconcile import reconcile
from eslurm.core.plan.cycle.schedule import Booking, Schedule, charge_of
from eslurm.core.plan.cycle.snapshot import Running, Snapshot
from eslurm.core.plan.profile.profile import ProfileError
from eslurm.core.plan.slices import exhaust
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import sum_per_node
from tests.kits.plan_building import NOW, job, nodes, runs

SPANS = (Span(1, (2, 0), 2), Span(0, (3, 0), 3, component=1), Span(1, (2, 0), 1, component=1))
BOTH = Booking(1, NOW, NOW + 100, SPANS)


def test_amounts_of_one_node_are_added_in_the_order_of_their_first_mention() -> None:
    assert sum_per_node([(7, (1, 2)), (3, (4, 0)), (7, (2, 1, 5))]) == ((7, (3, 3, 5)), (3, (4, 0)))
    assert BOTH.pairs == ((1, (4, 0)), (0, (3, 0)))
    assert charge_of(BOTH).spans == BOTH.pairs


def test_the_pairs_of_a_job_of_one_part_are_its_spans() -> None:
    one = Booking(1, NOW, NOW + 100, (Span(1, (2, 0), 2), Span(0, (3, 0), 3)))
    assert not one.has_parts
    assert one.pairs == ((1, (2, 0)), (0, (3, 0)))
    assert not Booking(1, NOW, NOW + 1, ()).pairs


def test_an_assignment_names_each_node_once_in_the_order_of_positions() -> None:
    topology = Topology(nodes(2))
    assert assignment_of(BOTH, topology) == [(0, (3, 0), 3), (1, (4, 0), 3)]


def cycle_with(*running: Running) -> Cycle:
    schedule = Schedule()
    view = Snapshot.build(nodes(2), [PartitionView("main")], running, [job(1)], now_us=NOW)
    exhaust(reconcile(schedule, view, 10))
    return Cycle(view, schedule, PlanLimits())


@pytest.mark.parametrize(("taken", "fits"), [(0, True), (1, False)])
def test_two_parts_on_one_node_fit_together_or_not(taken: int, fits: bool) -> None:
    """Each of them alone fits beside what holds one of the four cores."""
    cycle = cycle_with(*([runs(1, taken, NOW + 10)] if taken else []))
    assert Beginnings(cycle)._fits(BOTH) is fits


def test_what_runs_past_its_end_displaces_parts_that_fit_singly_only() -> None:
    cycle = cycle_with()
    schedule = cycle.schedule
    entry = cycle.snapshot.known[1]
    schedule.add(entry, BOTH)
    late = Booking(900, NOW, NOW + 50, (Span(1, (1, 0)),))
    with pytest.raises(ProfileError):
        exhaust(schedule.taking(None, late))
    exhaust(schedule.claiming(None, late))
    assert schedule.displaced == {1: (NOW, NOW + 50)}
    schedule.book.check()


def test_an_attempt_of_several_parts_is_known_by_its_sums() -> None:
    """The next cycle takes what it placed for what runs, and holds it once."""
    cycle = cycle_with()
    schedule = cycle.schedule
    waiting = job(1)
    schedule.start(waiting, BOTH)
    exhaust(cycle.place(BOTH))
    assert [placement.spans for placement in cycle.placements] == [SPANS]
    assert [cycle.ledger.free_on(position) for position in (0, 1)] == [(1, 0), (0, 0)]
    attempt = Running(1, BOTH.pairs, 0, job=waiting)
    view = Snapshot.build(
        nodes(2), [PartitionView("main")], [attempt], [], now_us=NOW + 1, topology=cycle.ledger.topology
    )
    exhaust(reconcile(schedule, view, 10))
    (held,) = schedule.held.values()
    assert held.booking.spans == SPANS
    assert schedule.book.free_on(1, NOW + 1, NOW + 50) == (0, 0)
    schedule.book.check()


def test_jobs_that_differ_in_a_part_differ_in_their_shape() -> None:
    queue = PendingQueue()
    parts = tuple(PendingPart(Request(tasks=count), "main") for count in (1, 2))
    for number, own in enumerate([(), parts, parts, parts[::-1]], 1):
        queue.add(replace(job(number), parts=own))
    shapes = [queue.entry(number) for number in (1, 2, 3, 4)]
    assert [entry.shape for entry in shapes if entry] == [0, 1, 1, 2]
    assert replace(job(1), parts=(PendingPart(Request(), "b"), *parts)).partitions == ("b", "main")
