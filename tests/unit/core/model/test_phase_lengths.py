"""The estimate of prologs' and epilogs' lengths for plans: slow enough to be calm, fast enough to keep promises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.model.phase_lengths import SAMPLE_MAX_US, WINDOW_US, PhaseLength
from eslurm.core.model.units import SECOND_US


def after(*samples_s: float, every_us: int = SECOND_US, node: int = -1) -> PhaseLength:
    """Each sample is of another node, unless all are of one."""
    known, now_us = PhaseLength(), 10 * WINDOW_US
    for at, sample_s in enumerate(samples_s):
        known = known.after(round(sample_s * SECOND_US), at if node < 0 else node, now_us)
        now_us += every_us
    return known


@pytest.mark.parametrize(
    ("samples_s", "planned_s"),
    [
        ((), 0),
        ((30,), 0),
        ((20, 20), 20),
        ((29.2, 30), 32),
        ((0.2, 0.1), 1),
        # Rounded up: at most a quarter too long.
        ((33, 33), 40),
        # One slow node says nothing, two do.
        ((20, 20, 300), 20),
        ((20, 20, 300, 20, 20), 20),
        ((20, 20, 300, 310), 320),
        ((20, 20, 10**9, 10**9), SAMPLE_MAX_US // SECOND_US),
        ((-5, -5), 1),
    ],
)
def test_the_greatest_of_a_window_but_for_the_slowest_node_counts(
    samples_s: tuple[float, ...], planned_s: int
) -> None:
    assert after(*samples_s).planned_us == planned_s * SECOND_US


def test_one_slow_node_says_nothing_however_often_where_there_are_others() -> None:
    known = after(20, 20)
    for at in range(9):
        known = known.after((300 + 50 * at) * SECOND_US, 7, 10 * WINDOW_US + at)
    assert known.planned_us == 20 * SECOND_US
    assert known.after(20 * SECOND_US, 1, 11 * WINDOW_US + 9).planned_us == 20 * SECOND_US
    assert known.after(250 * SECOND_US, 1, 10 * WINDOW_US + 9).planned_us == 256 * SECOND_US
    assert after(300, 300, 300, node=1).planned_us == 0


def test_of_rare_samples_each_counts_when_its_window_is_over() -> None:
    assert after(40, 20, every_us=WINDOW_US).planned_us == 40 * SECOND_US
    assert after(40, 20, 20, every_us=WINDOW_US).planned_us == 20 * SECOND_US


def test_a_window_of_short_phases_ends_the_memory_of_long_ones() -> None:
    known = after(300, 300)
    now_us = 12 * WINDOW_US
    known = known.after(10 * SECOND_US, 1, now_us).after(10 * SECOND_US, 2, now_us + 1)
    assert known.planned_us == 320 * SECOND_US
    assert known.after(10 * SECOND_US, 1, now_us + WINDOW_US).planned_us == 10 * SECOND_US


def test_a_sample_that_says_nothing_new_changes_nothing() -> None:
    known = after(20, 20)
    assert known.after(19 * SECOND_US, 5, 10 * WINDOW_US + 5) is known


@given(st.lists(st.integers(1, 900), min_size=2, max_size=60))
def test_it_is_never_below_the_second_greatest_and_never_above_the_greatest_by_more_than_the_rounding(
    samples_s: list[int],
) -> None:
    planned_us = after(*samples_s, every_us=1).planned_us
    *_, second_s, _first_s = sorted(samples_s)
    assert second_s * SECOND_US <= planned_us <= max(second_s + 1, second_s * 1.25) * SECOND_US
