"""Usage that fades: closed form, no matter in which order or pieces it is charged, or when one looks."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.model.accounts import Usage
from eslurm.core.state.usage import LN_2, as_of, charged, decay, stay

SECOND = 1_000_000
DAY = 86_400 * SECOND
HALF_LIVES = st.sampled_from([0, 60, 3_600, 604_800])
moments = st.integers(0, 30 * DAY)
Stay = tuple[float, int, int]


@st.composite
def stays(draw: st.DrawFn) -> Stay:
    begin = draw(moments)
    return draw(st.floats(0.0, 1e5)), begin, begin + draw(st.integers(0, 5 * DAY))


def book(every: list[Stay], half_life_s: int) -> Usage:
    usage = Usage("a", "u", 0.0, 0)
    for rate, begin, end in every:
        usage = charged(usage, stay(rate, begin, end, half_life_s), end, half_life_s)
    return usage


def close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


@given(st.lists(stays(), max_size=6), HALF_LIVES, st.randoms(use_true_random=False))
def test_order_does_not_matter(every: list[Stay], half_life_s: int, shuffler: random.Random) -> None:
    at_us = max((end for _, _, end in every), default=0)
    found = as_of(book(every, half_life_s), at_us, half_life_s)
    mixed = every.copy()
    shuffler.shuffle(mixed)
    assert close(as_of(book(mixed, half_life_s), at_us, half_life_s), found)
    closed = sum(
        stay(rate, begin, end, half_life_s) * decay(at_us - end, half_life_s) for rate, begin, end in every
    )
    assert close(found, closed)
    assert found >= 0.0


@given(stays(), HALF_LIVES, st.floats(0.0, 1.0))
def test_a_stay_can_be_cut_anywhere(one: Stay, half_life_s: int, share: float) -> None:
    rate, begin, end = one
    cut = begin + int((end - begin) * share)
    parts = stay(rate, begin, cut, half_life_s) * decay(end - cut, half_life_s)
    parts += stay(rate, cut, end, half_life_s)
    assert math.isclose(parts, stay(rate, begin, end, half_life_s), rel_tol=1e-6, abs_tol=1e-6)


@given(stays(), HALF_LIVES, moments, moments)
def test_looking_changes_nothing(one: Stay, half_life_s: int, first: int, second: int) -> None:
    rate, begin, end = one
    usage = charged(Usage("a", "u", 0.0, begin), stay(rate, begin, end, half_life_s), end, half_life_s)
    later = end + first + second
    between = Usage("a", "u", as_of(usage, end + first, half_life_s), end + first)
    assert close(as_of(between, later, half_life_s), as_of(usage, later, half_life_s))


@pytest.mark.parametrize("half_life_s", [1, 100])
def test_what_was_used_counts_half_one_half_life_later(half_life_s: int) -> None:
    usage = charged(Usage("a", "u", 0.0, 0), 8.0, 0, half_life_s)
    assert as_of(usage, 3 * half_life_s * SECOND, half_life_s) == 1.0
    # For ever at rate 1: the integral of the decay from the beginning of time.
    assert stay(1.0, 0, 100 * half_life_s * SECOND, half_life_s) == pytest.approx(half_life_s / LN_2)
    assert stay(1.0, 10, 5, half_life_s) == 0.0


def test_without_a_half_life_nothing_fades() -> None:
    assert stay(3.0, 0, 7 * SECOND, 0) == 21.0
    assert as_of(Usage("a", "u", 21.0, 0), 365 * DAY, 0) == 21.0
