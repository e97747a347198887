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


def test_what_is_out_of_service_is_not_free_and_what_it_ran_stays_used() -> None:
    timeline = Timeline(10)
    timeline.increment(0, 20, 8)
    timeline.defect = 4
    assert (timeline.available, timeline.used_at(0), timeline.free_at(0), timeline.free_at(20)) == (
        6,
        8,
        0,
        6,
    )
    assert timeline.least_free(10, 30) == 0
    assert timeline.earliest_fit(6, 5, 0) == 20
    assert timeline.earliest_fit(7, 5, 0) is None
    assert timeline.free_slots(1, 1, 0, 40) == [Slot(20, 40, 6)]
    with pytest.raises(TimelineError, match="9 of 6"):
        timeline.increment(5, 10, 1)
    timeline.decrement(0, 20, 8)
    timeline.increment(0, 20, 6)
    assert timeline.copy() == timeline
    assert timeline != Timeline.from_slots(10, timeline.slots())
    assert timeline.normalised(1).available == 6
    assert min_free(timeline, Timeline(10), 8).free_at(20) == 6
    with pytest.raises(ValueError, match="defect"):
        Timeline(3, 4)


HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
WEEK_US = 7 * DAY_US


def test_every_monday_and_friday_from_7_to_11_for_eight_years() -> None:
    """C-46. Instant 0 is a Thursday: the week of the template has its Friday on day 1 and its Monday on day 4."""
    template = Timeline(1)
    for day in (1, 4):
        template.increment(day * DAY_US + 7 * HOUR_US, day * DAY_US + 11 * HOUR_US, 1)
    first_us = 17_532 * DAY_US  # 1.1.2018, a Monday
    last_us = 20_454 * DAY_US  # 1.1.2026
    windows = template.transposed(WEEK_US, 12, first_us, last_us)
    windows.check()
    slots = windows.slots()
    assert slots[0] == Slot(first_us + 7 * HOUR_US, first_us + 11 * HOUR_US, 12)
    assert slots[1].start_us == first_us + 4 * DAY_US + 7 * HOUR_US
    assert len(slots) == 418 + 417
    assert windows.total == 12


def test_a_template_is_cut_at_both_ends_and_joined_where_periods_meet() -> None:
    always = Timeline(1)
    always.increment(0, 10, 1)
    assert always.transposed(10, 3, 25, 47).slots() == (Slot(25, 47, 3),)
    half = Timeline(1)
    half.increment(5, 10, 1)
    assert half.transposed(10, 2, 7, 17).slots() == (Slot(7, 10, 2), Slot(15, 17, 2))
    assert Timeline(1).transposed(10, 2, 7, 17).slots() == ()
    for period_us, start_us, stop_us in ((9, 0, 20), (0, 0, 20), (10, 20, 20), (10, 0, INFINITY_US)):
        with pytest.raises(ValueError, match="period"):
            half.transposed(period_us, 1, start_us, stop_us)


def test_the_past_is_forgotten_and_the_present_is_not() -> None:
    timeline = Timeline(4)
    timeline.increment(0, 10, 1)
    timeline.increment(20, 30, 2)
    timeline.forget(5)
    assert timeline.slots() == (Slot(0, 10, 1), Slot(20, 30, 2))
    timeline.forget(15)
    assert timeline.slots() == (Slot(20, 30, 2),)
    timeline.check()
    timeline.forget(30)
    assert timeline == Timeline(4)
    timeline.forget(40)
    assert timeline == Timeline(4)


def test_what_is_held_already_counts_though_there_are_fewer() -> None:
    timeline = Timeline(2)
    timeline.hold(0, 10, 3)
    timeline.hold(5, 10, 1)
    timeline.check()
    assert (timeline.available, timeline.free_at(0), timeline.free_at(7), timeline.free_at(10)) == (
        2,
        0,
        0,
        2,
    )
    with pytest.raises(TimelineError):
        timeline.increment(10, 20, 3)
    timeline.decrement(0, 10, 3)
    assert (timeline.free_at(0), timeline.free_at(7)) == (2, 1)
    assert timeline.earliest_fit(2, 3, 3) == 10


def test_a_timeline_from_changes_checks_its_range() -> None:
    assert Timeline.from_changes(4, [0, 5, 7, 9], [0, 3, 0, -3]).slots() == (Slot(5, 9, 3),)
    with pytest.raises(TimelineError, match="5 of 4"):
        Timeline.from_changes(4, [0, 5], [3, 2])
    assert Timeline.from_slots(4, [Slot(5, 9, 3)]).least_used(0, 9) == 0
