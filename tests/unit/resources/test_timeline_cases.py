"""The timeline on chosen cases: every way two slots can overlap (C-25), bounds and refusals."""

from __future__ import annotations

from itertools import product

import pytest

from eslurm.core.resources.timeline import INFINITY_US, Slot, Timeline, TimelineError, min_free

INTERVALS = [(start, stop) for start in range(5) for stop in range(start + 1, 6)]


@pytest.mark.parametrize("items", [(1, 1), (1, 2), (2, 1)])
def test_every_overlap_of_two_slots(items: tuple[int, int]) -> None:
    for (a, b), (c, d) in product(INTERVALS, INTERVALS):
        timeline = Timeline(3)
        timeline.increment(a, b, items[0])
        timeline.increment(c, d, items[1])
        timeline.check()
        expected = [items[0] * (a <= at < b) + items[1] * (c <= at < d) for at in range(6)]
        assert [timeline.used_at(at) for at in range(6)] == expected
        timeline.decrement(a, b, items[0])
        assert timeline.slots() == (Slot(c, d, items[1]),)


def test_neighbours_of_equal_use_become_one_slot() -> None:
    timeline = Timeline(4)
    timeline.increment(10, 20, 2)
    timeline.increment(20, INFINITY_US, 2)
    assert timeline.slots() == (Slot(10, INFINITY_US, 2),)
    timeline.decrement(10, INFINITY_US, 2)
    assert timeline.slots() == ()
    assert timeline == Timeline(4)


def test_a_stay_for_ever_needs_a_window_without_end() -> None:
    timeline = Timeline(4)
    timeline.increment(0, 10, 3)
    timeline.increment(30, 40, 4)
    assert timeline.earliest_fit(1, 30, 0) == 0
    assert timeline.earliest_fit(2, 20, 0) == 10
    assert timeline.earliest_fit(2, 21, 0) == 40
    assert timeline.earliest_fit(1, INFINITY_US, 0) == 40
    assert timeline.earliest_fit(5, 1, 0) is None
    assert timeline.earliest_fit(2, 21, 0, until_us=60) is None


def test_free_slots_carry_the_fewest_items_free_in_them() -> None:
    timeline = Timeline(4)
    timeline.increment(0, 10, 3)
    timeline.increment(20, 30, 1)
    assert timeline.free_slots(2, 5, 0, 100) == [Slot(10, 100, 3)]
    assert timeline.free_slots(4, 5, 0, 100) == [Slot(10, 20, 4), Slot(30, 100, 4)]
    assert timeline.free_slots(4, 50, 0, 100) == [Slot(30, 100, 4)]


def test_a_consumer_over_its_lowered_limit_gets_nothing() -> None:
    consumer = Timeline(10)
    consumer.increment(0, 10, 8)
    view = min_free(Timeline(10), consumer, 5)
    assert (view.free_at(0), view.free_at(10)) == (0, 5)


def test_impossible_slots_are_refused() -> None:
    timeline = Timeline(4)
    for start, stop, items in ((5, 5, 1), (6, 5, 1), (0, 5, 0), (0, 5, -1)):
        with pytest.raises(ValueError, match="slot must"):
            timeline.increment(start, stop, items)
    with pytest.raises(TimelineError, match="5 of 4"):
        timeline.increment(0, 1, 5)
    with pytest.raises(TimelineError, match="-1 of 4"):
        timeline.decrement(0, 1, 1)
    with pytest.raises(ValueError, match="negative"):
        Timeline(-1)
    assert timeline.slots() == ()


def test_search_costs_slots_not_bookings() -> None:
    """C-32: a thousand bookings of one interval leave one slot."""
    timeline = Timeline(1000)
    for _ in range(1000):
        timeline.increment(100, 200, 1)
    assert timeline.slots() == (Slot(100, 200, 1000),)
    assert timeline.earliest_fit(1, 50, 60) == 200
    assert timeline.instants(100) == [200]
