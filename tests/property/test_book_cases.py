"""The book of the future on chosen cases: refusals, what it forgets, how coarse it gets, what it costs."""

from __future__ import annotations

import pytest

from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.placement.compiled_request import CompiledRequest, compile_request
from eslurm.core.plan.placement.protocols import Closure
from eslurm.core.plan.profile.profile import ProfileError, ResourceProfile
from eslurm.core.resources.nodes import NodeView, Topology
from eslurm.core.resources.timeline import INFINITY_US, Slot

MINUTE_US = 60_000_000


def topology(nodes: int = 4, cores: int = 4) -> Topology:
    return Topology([NodeView(10 + i, f"cn{i}", (cores, 64), True, ("main",)) for i in range(nodes)])


def need(nodes: Topology, tasks: int = 1, width: int = 0, *, exclusive: bool = False) -> CompiledRequest:
    request = Request(tasks=tasks, nodes_min=width, nodes_max=width, exclusive=exclusive)
    return compile_request(request, PartitionView("main"), nodes)


def test_a_clash_names_node_and_amounts_and_changes_nothing() -> None:
    book = ResourceProfile(topology(), now_us=0)
    book.book([(10, (3, 8))], 5, 20)
    with pytest.raises(
        ProfileError, match=r"node cn0: cannot book \(2, 0\) on it: \(1, 56\) free of \(4, 64\)"
    ):
        book.book([(11, (4, 0)), (10, (2, 0))], 10, 15)
    with pytest.raises(ProfileError, match="no node number 99"):
        book.book([(11, (4, 0)), (99, (1, 0))], 10, 15)
    with pytest.raises(ProfileError, match="cannot be booked"):
        book.book([(11, (-1, 0))], 10, 15)
    with pytest.raises(ProfileError, match="cannot be booked"):
        book.book([(11, (1, 0, 1))], 10, 15)
    assert book.slots == 3
    assert book.used(0).slots() == (Slot(5, 20, 3),)
    book.check()


def test_only_what_was_booked_is_revoked() -> None:
    book = ResourceProfile(topology(), (2,), now_us=0)
    book.book([(10, (3, 8))], 5, 20, (1,))
    with pytest.raises(ProfileError, match="no booking lasts from 5 to 19"):
        book.revoke([(10, (3, 8))], 5, 19, (1,))
    with pytest.raises(ProfileError, match=r"node cn1: cannot revoke \(3, 8\)"):
        book.revoke([(11, (3, 8))], 5, 20, (1,))
    with pytest.raises(ProfileError, match="2 items that belong to no node are not booked"):
        book.revoke([(10, (3, 8))], 5, 20, (2,))
    book.check()
    book.revoke([(10, (3, 8))], 5, 20, (1,))
    assert book.slots == 1


def test_how_long_nodes_stay_free() -> None:
    book = ResourceProfile(topology(), now_us=0)
    book.book([(10, (2, 0)), (11, (2, 0))], 10, 20)
    book.book([(11, (2, 0))], 15, 30)
    spans = [(10, (3, 0)), (11, (2, 0)), (12, (4, 64))]
    assert book.free_until_us(spans, 0, 100) == 10
    assert book.free_until_us(spans, 0, 8) == 8
    assert book.free_until_us(spans, 12, 100) == 12
    assert book.free_until_us(spans, 20, 100) == 100
    assert book.free_until_us(spans[1:], 0, 100) == 15
    assert book.free_until_us(spans[2:], 0, INFINITY_US) == INFINITY_US
    assert book.free_until_us([], 5, 50) == 50


def test_licences_that_are_not_free_are_not_booked() -> None:
    book = ResourceProfile(topology(), (2,), now_us=0)
    book.book([(10, (1, 0))], 0, 20, (2,))
    with pytest.raises(ProfileError, match="1 of 2 items that belong to no node are not free"):
        book.book([(11, (1, 0))], 10, 30, (1,))
    assert book.wide_used(0).slots() == (Slot(0, 20, 2),)
    assert book.used(0).slots() == (Slot(0, 20, 1),)


def test_what_began_in_the_past_is_revoked_from_now_on() -> None:
    book = ResourceProfile(topology(), now_us=0)
    book.book([(10, (4, 64))], 0, 50)
    book.book([(11, (1, 1))], 5, 10)
    book.advance(20)
    assert (book.now_us, book.slots) == (20, 2)
    book.revoke([(11, (1, 1))], 5, 10)
    book.revoke([(10, (4, 64))], 0, 50)
    assert book.slots == 1
    book.advance(3)
    assert book.now_us == 20
    book.book([(10, (1, 1))], 0, 10)
    assert book.slots == 1


def test_a_stay_leaves_out_nodes_that_close_while_it_lasts() -> None:
    nodes = topology(2)
    book = ResourceProfile(nodes, now_us=0)
    closed = (Closure(10, 30, 0b01, "maintenance"),)
    assert book.earliest(need(nodes), 10, 0, closed=closed) == (0, [(0, (1, 0), 1)])
    assert book.earliest(need(nodes), 11, 0, closed=closed) == (0, [(1, (1, 0), 1)])
    whole = need(nodes, 8, 2, exclusive=True)
    found = book.earliest(whole, 11, 0, closed=closed)
    assert found is not None
    assert found[0] == 30
    assert book.fits_at(whole, 29, 1, closed) is None
    assert book.fits_at(whole, 30, 1, closed) is not None


def test_a_job_without_limit_waits_until_nothing_comes_any_more() -> None:
    nodes = topology(1)
    book = ResourceProfile(nodes, now_us=0)
    book.book([(10, (4, 0))], 50, 60)
    book.book([(10, (1, 0))], 80, INFINITY_US)
    assert book.earliest(need(nodes), INFINITY_US, 0) == (60, [(0, (1, 0), 1)])
    assert book.earliest(need(nodes, 4), INFINITY_US, 0) is None
    assert book.earliest(need(nodes, 4), 20, 0) == (0, [(0, (4, 0), 4)])
    assert book.earliest(need(nodes, 4), 51, 0) is None
    assert book.earliest(need(nodes), INFINITY_US, 0, until_us=1000) is None


def test_beyond_its_slots_a_book_is_coarse_far_ahead_and_fine_near_by() -> None:
    """Ends are late by less than a sixteenth of their distance or about a second, and the slots stay few."""
    nodes = topology(1000, 1)
    book = ResourceProfile(nodes, now_us=0, slots_max=8)
    stays = [(1 + number * 7) * MINUTE_US + number for number in range(1000)]
    for number, stop_us in enumerate(stays):
        book.book([(10 + number, (1, 1))], 0, stop_us)
    assert book.slots < 250
    for number, stop_us in enumerate(stays):
        end_us = stop_us + max(1 << 20, stop_us // 16)
        assert (
            book.free_on(10 + number, 0, stop_us)
            == book.free_on(10 + number, stop_us - 1, stop_us)
            == (0, 63)
        )
        assert book.free_on(10 + number, end_us, INFINITY_US) == (1, 64)
    for number, stop_us in enumerate(stays):
        book.revoke([(10 + number, (1, 1))], 0, stop_us)
    assert book.slots == 1
    book.check()


def test_a_coarse_booking_that_clashes_leaves_no_trace() -> None:
    book = ResourceProfile(topology(1), now_us=0, slots_max=1)
    book.book([(10, (3, 0))], 0, 5)
    with pytest.raises(ProfileError):
        book.book([(10, (3, 0))], 2, 7)
    book.advance(1 << 30)
    assert book.slots == 1
    book.check()


def test_the_number_of_bookings_leaves_no_mark_on_the_slots() -> None:
    """C-32: a thousand bookings of one interval are one slot more than none."""
    nodes = topology(1000, 1)
    book = ResourceProfile(nodes, now_us=0)
    for number in nodes.numbers:
        book.book([(number, (1, 1))], 100, 200)
    assert book.slots == 3
    assert book.earliest(need(nodes), 150, 0) == (200, [(0, (1, 0), 1)])
