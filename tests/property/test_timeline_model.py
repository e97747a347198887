"""The RUSV timeline against a dense array: one entry per instant, no cleverness (C-18..C-24)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.resources.timeline import (
    INFINITY_US,
    Slot,
    Timeline,
    TimelineError,
    intersection,
    min_free,
)

SPAN = 24
TOTAL = 6

Interval = tuple[int, int, int]


def stop_of(end: int) -> int:
    return INFINITY_US if end >= SPAN else end


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    start = draw(st.integers(0, SPAN - 1))
    end = draw(st.integers(start + 1, SPAN))
    return (start, end, draw(st.integers(1, 4)))


class Dense:
    """Used items at each instant of [0, SPAN); the last one stands for ever."""

    def __init__(self, total: int = TOTAL) -> None:
        self.total = total
        self.used = [0] * SPAN

    def try_shift(self, start: int, end: int, delta: int) -> bool:
        changed = [used + delta if start <= at < end else used for at, used in enumerate(self.used)]
        if any(not 0 <= used <= self.total for used in changed):
            return False
        self.used = changed
        return True


def assert_same(timeline: Timeline, dense: Dense) -> None:
    timeline.check()
    assert timeline.total == dense.total
    assert [timeline.used_at(at) for at in range(SPAN)] == dense.used
    assert all(timeline.used_at(at) + timeline.free_at(at) == dense.total for at in range(SPAN))
    assert timeline.used_at(INFINITY_US - 1) == dense.used[-1]


def build(plan: list[tuple[bool, Interval]]) -> tuple[Timeline, Dense]:
    timeline, dense = Timeline(TOTAL), Dense()
    for more, (start, end, items) in plan:
        before = timeline.copy()
        done = dense.try_shift(start, end, items if more else -items)
        change: Callable[[int, int, int], None] = timeline.increment if more else timeline.decrement
        if done:
            change(start, stop_of(end), items)
        else:
            with pytest.raises(TimelineError):
                change(start, stop_of(end), items)
            assert timeline == before
        assert_same(timeline, dense)
    return timeline, dense


plans = st.lists(st.tuples(st.booleans(), intervals()), max_size=12)


@given(plans)
def test_increment_and_decrement_agree_with_the_model_and_refuse_without_a_trace(
    plan: list[tuple[bool, Interval]],
) -> None:
    timeline, _ = build(plan)
    slots = timeline.slots()
    for left, right in pairwise(slots):
        assert left.stop_us <= right.start_us
        assert left.stop_us < right.start_us or left.items != right.items
    assert all(slot.items > 0 and slot.start_us < slot.stop_us for slot in slots)
    assert Timeline.from_slots(TOTAL, slots) == timeline


@given(plans, intervals())
def test_book_then_revoke_is_identity(plan: list[tuple[bool, Interval]], booking: Interval) -> None:
    timeline, dense = build(plan)
    start, end, items = booking
    before = timeline.copy()
    if dense.try_shift(start, end, items):
        timeline.increment(start, stop_of(end), items)
        assert timeline != before
        timeline.decrement(start, stop_of(end), items)
    assert timeline == before


@given(plans, plans)
def test_addition_and_subtraction_are_pointwise_and_undo_each_other(
    left_plan: list[tuple[bool, Interval]], right_plan: list[tuple[bool, Interval]]
) -> None:
    left, dense_left = build(left_plan)
    right, dense_right = build(right_plan)
    together = [a + b for a, b in zip(dense_left.used, dense_right.used, strict=True)]
    if max(together) > TOTAL:
        with pytest.raises(TimelineError):
            left.plus(right)
    else:
        dense = Dense()
        dense.used = together
        added = left.plus(right)
        assert_same(added, dense)
        assert added.minus(right) == left
    if any(b > a for a, b in zip(dense_left.used, dense_right.used, strict=True)):
        with pytest.raises(TimelineError):
            left.minus(right)


@given(plans, plans, st.integers(0, TOTAL + 2))
def test_min_free_is_the_lesser_of_the_system_and_what_the_limit_leaves(
    system_plan: list[tuple[bool, Interval]], consumer_plan: list[tuple[bool, Interval]], limit: int
) -> None:
    system, dense_system = build(system_plan)
    consumer, dense_consumer = build(consumer_plan)
    result = min_free(system, consumer, limit)
    result.check()
    for at in range(SPAN):
        left = max(0, limit - dense_consumer.used[at])
        assert result.free_at(at) == min(TOTAL - dense_system.used[at], left)


@given(plans, plans, st.integers(0, 4))
def test_intersection_is_the_pointwise_minimum_of_free_items(
    left_plan: list[tuple[bool, Interval]], right_plan: list[tuple[bool, Interval]], more: int
) -> None:
    left, dense_left = build(left_plan)
    narrow, dense_right = build(right_plan)
    right = Timeline.from_slots(TOTAL + more, narrow.slots())
    result = intersection(left, right)
    result.check()
    for at in range(SPAN):
        assert result.free_at(at) == min(TOTAL - dense_left.used[at], TOTAL + more - dense_right.used[at])
    assert [result.free_at(at) for at in range(SPAN)] == [
        intersection(right, left).free_at(at) for at in range(SPAN)
    ]


def dense_windows(dense: Dense, items: int, duration: int, start: int, end: int) -> list[Slot]:
    """Maximal runs of instants with enough free; a run that reaches the end of time lasts for ever."""
    found = []
    at = start
    while at < end:
        stop = at
        while stop < end and dense.total - dense.used[stop] >= items:
            stop += 1
        if stop > at:
            for_ever = end == SPAN == stop
            if for_ever or stop - at >= duration:
                least = min(dense.total - used for used in dense.used[at:stop])
                found.append(Slot(at, stop_of(stop) if end == SPAN else stop, least))
        at = max(stop, at) + 1
    return found


@given(
    plans,
    st.integers(0, TOTAL + 1),
    st.integers(1, SPAN),
    st.integers(0, SPAN - 1),
    st.integers(1, SPAN),
)
def test_free_slots_and_earliest_fit_agree_with_the_model(
    plan: list[tuple[bool, Interval]], items: int, duration: int, start: int, length: int
) -> None:
    timeline, dense = build(plan)
    end = min(SPAN, start + length)
    windows = timeline.free_slots(items, duration, start, stop_of(end))
    assert windows == dense_windows(dense, items, duration, start, end)
    first = windows[0].start_us if windows else None
    assert timeline.earliest_fit(items, duration, start, stop_of(end)) == first
    for window in windows:
        assert timeline.least_free(window.start_us, window.stop_us) == window.items


@given(plans, st.integers(0, SPAN))
def test_normalising_only_closes_short_gaps_between_equals_and_is_idempotent(
    plan: list[tuple[bool, Interval]], min_gap: int
) -> None:
    timeline, dense = build(plan)
    joined = timeline.normalised(min_gap)
    joined.check()
    assert joined.normalised(min_gap) == joined
    assert timeline.normalised(0) == timeline
    for at in range(SPAN):
        if joined.used_at(at) != dense.used[at]:
            assert dense.used[at] == 0
            left = max(before for before in range(at) if dense.used[before])
            right = min(after for after in range(at, SPAN) if dense.used[after])
            assert right - left - 1 <= min_gap
            assert dense.used[left] == dense.used[right] == joined.used_at(at)
    slots = joined.slots()
    for before, after in pairwise(slots):
        gap = after.start_us - before.stop_us
        assert gap == 0 or gap > min_gap or before.items != after.items


@given(st.lists(intervals(), max_size=8))
def test_a_timeline_from_slots_is_their_sum(spans: list[Interval]) -> None:
    used = [sum(items for start, end, items in spans if start <= at < end) for at in range(SPAN)]
    slots = [Slot(start, stop_of(end), items) for start, end, items in spans]
    if max(used) > TOTAL:
        with pytest.raises(TimelineError):
            Timeline.from_slots(TOTAL, slots)
        return
    dense = Dense()
    dense.used = used
    assert_same(Timeline.from_slots(TOTAL, slots), dense)
