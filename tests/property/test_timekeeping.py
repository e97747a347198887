"""`now` against walls that jump and clocks that stand: what its keeper promises, over random readings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.timekeeping import BOUND_US, SLEW, ClockAlarm, Timekeeper, leap_bound_us

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
START = 1_750_000_000 * SECOND

steps = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 50), st.integers(0, 10 * SECOND), st.integers(0, 2 * HOUR)),
        st.one_of(
            st.just(0),
            st.integers(-100, 100),
            st.integers(-90 * SECOND, 90 * SECOND),
            st.integers(-5 * HOUR, 5 * HOUR),
        ),
    ),
    max_size=40,
)


@given(steps, st.integers(-5 * HOUR, 5 * HOUR), st.integers(0, 2 * MINUTE))
@settings(deadline=None)
def test_now_never_goes_back_and_moves_nearly_as_monotonic_time_does(
    steps: list[tuple[int, int]], floor: int, bound: int
) -> None:
    keeper = Timekeeper(START + floor, bound)
    monotonic, wall = 0, START
    first = keeper.read(wall, monotonic)
    assert first == max(START, START + floor)
    told = [(0, first)]
    for elapsed, jump in steps:
        monotonic += elapsed
        wall += elapsed + jump
        told.append((monotonic, keeper.read(wall, monotonic)))
    for at, (before, was) in enumerate(told):
        for after, now in told[at + 1 :]:
            passed = after - before
            assert was <= now
            assert passed - passed // SLEW - 1 <= now - was <= passed + passed // SLEW + 1 + bound


@given(steps, st.integers(-5 * HOUR, 5 * HOUR))
@settings(deadline=None)
def test_a_wall_that_jumps_no_more_is_caught_up_with(steps: list[tuple[int, int]], floor: int) -> None:
    keeper = Timekeeper(START + floor)
    monotonic, wall = 0, START
    for elapsed, jump in [(0, 0), *steps]:
        monotonic += elapsed
        wall += elapsed + jump
        now = keeper.read(wall, monotonic)
    away = abs(wall - now)
    monotonic, wall = monotonic + SLEW * away + SLEW, wall + SLEW * away + SLEW
    assert keeper.read(wall, monotonic) == wall and not keeper.is_slewing
    assert keeper.read(wall + SECOND, monotonic + SECOND) == wall + SECOND


def test_a_wall_that_never_jumps_is_now() -> None:
    keeper = Timekeeper()
    for at in range(0, HOUR, 7 * SECOND):
        # A tenth of a per mille too fast, then too slow, as clocks are.
        drift = min(at, HOUR - at) // 10_000
        assert keeper.read(START + at + drift, at) == START + at + drift
        assert keeper.take_alarm() is None


def test_a_jump_above_the_bound_is_an_alarm_and_moves_now_slowly() -> None:
    keeper = Timekeeper()
    keeper.read(START, 0)
    assert keeper.read(START + HOUR + SECOND, SECOND) == START + SECOND + SECOND // SLEW
    assert keeper.take_alarm() == ClockAlarm(HOUR, HOUR)
    assert keeper.take_alarm() is None and keeper.is_slewing
    assert keeper.read(START + HOUR + 11 * SECOND, 11 * SECOND) == START + 12 * SECOND + SECOND // SLEW
    assert keeper.take_alarm() is None, "one jump is one alarm"
    assert keeper.read(START + HOUR + 10 * HOUR, 10 * HOUR) == START + 11 * HOUR
    assert not keeper.is_slewing


def test_small_jumps_forward_are_followed_at_once_but_not_many_in_a_row() -> None:
    keeper = Timekeeper()
    assert keeper.read(START, 0) == START
    assert keeper.read(START + 40 * SECOND, 0) == START + 40 * SECOND
    assert keeper.read(START + 80 * SECOND, 0) == START + 40 * SECOND, "that would be 80 s within an instant"
    assert keeper.take_alarm() is None and keeper.is_slewing
    assert keeper.read(START + 80 * SECOND + 400 * SECOND, 400 * SECOND) == START + 480 * SECOND


def test_a_successor_whose_wall_is_behind_neither_stands_still_nor_goes_back() -> None:
    keeper = Timekeeper(START + 30 * SECOND)
    assert keeper.read(START, 0) == START + 30 * SECOND
    assert keeper.take_alarm() is None
    assert keeper.read(START + 10 * SECOND, 10 * SECOND) == START + 39 * SECOND
    assert keeper.read(START + 310 * SECOND, 310 * SECOND) == START + 310 * SECOND


def test_a_predecessor_who_was_far_ahead_is_an_alarm() -> None:
    keeper = Timekeeper(START + HOUR)
    keeper.read(START, 0)
    assert keeper.take_alarm() == ClockAlarm(-HOUR, -HOUR)


def test_after_a_long_time_without_a_leader_the_wall_is_believed() -> None:
    keeper = Timekeeper(START)
    assert keeper.read(START + HOUR, 0) == START + HOUR
    assert keeper.take_alarm() is None


def test_a_monotonic_clock_that_goes_back_stands() -> None:
    keeper = Timekeeper()
    keeper.read(START, 100)
    assert keeper.read(START, 50) == START
    assert keeper.read(START + SECOND, 100 + SECOND) == START + SECOND


def test_a_leap_never_uses_up_the_time_that_keeps_jobs_from_running_twice() -> None:
    assert leap_bound_us(ClusterConfig("c")) == BOUND_US
    tight = ClusterConfig("c", node_lost_after_s=45.0, orphan_timeout_s=22.0, kill_grace_s=3.0)
    assert leap_bound_us(tight) == 5 * SECOND
    with pytest.raises(ValueError, match="-1"):
        Timekeeper(0, -1)
