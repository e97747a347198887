"""Promises as they are kept: what is written of a booking, and a book that leaves room for all of them."""

from __future__ import annotations

import pytest

from eslurm.core.model.job import Span
from eslurm.core.model.promise import Promise, PromisedStart, Run
from eslurm.core.plan.cycle.restored_bookings import STARTS_MAX, kept_of
from eslurm.core.plan.cycle.schedule import Booking
from eslurm.core.plan.profile.profile import ProfileError, ResourceProfile
from eslurm.core.resources.nodes import Topology
from tests.kits.plan_building import nodes


def test_spans_are_kept_in_their_order_and_in_few_pieces() -> None:
    one, two = (4, 0), (2, 0)
    spans = (
        *(Span(node, one, 4) for node in (7, 8, 9, 3)),
        Span(4, one, 2),
        Span(5, two, 2),
        Span(6, two, 2),
    )
    promise = kept_of(1, [Booking(1, 50, 60, spans)])
    runs = (Run(7, 3, 4, one), Run(3, 1, 4), Run(4, 1, 2), Run(5, 2, 2, two))
    assert promise == Promise(1, (PromisedStart(50, runs),))
    assert list(promise.nodes()) == [7, 8, 9, 3, 4, 5, 6]


def test_of_many_starts_the_next_ones_are_kept() -> None:
    bookings = [Booking(1, start_us, start_us + 5, (Span(0, (1, 0), 1),)) for start_us in range(30, 10, -1)]
    assert [one.start_us for one in kept_of(1, bookings).starts] == list(range(11, 11 + STARTS_MAX))
    assert kept_of(1, bookings).start_us == 11
    assert kept_of(2, []) == Promise(2)


def test_no_end_is_rounded_beyond_the_next_promised_start() -> None:
    place = ((0, (4, 0)),)
    book = ResourceProfile(Topology(nodes(1)), now_us=0, slots_max=1)
    book.book(place, 0, 90)
    with pytest.raises(ProfileError):
        book.book(place, 100, 200)
    book.revoke(place, 0, 90)
    book.mark([0, 100])
    book.book(place, 0, 90)
    book.book(place, 100, 200)
    book.unmark([0, 100])
    book.check()
    book.revoke(place, 0, 90)
    book.revoke(place, 100, 200)
    book.check()
    assert book.slots == 1
