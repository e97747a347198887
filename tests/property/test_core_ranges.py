"""Ranges against plain sets of numbers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.model import ranges

numbers = st.sets(st.integers(0, 40))


@given(numbers, numbers, st.integers(0, 40))
def test_ranges_behave_like_sets(left: set[int], right: set[int], number: int) -> None:
    a, b = ranges.from_numbers(left), ranges.from_numbers(right)
    for found, expected in (
        (ranges.union(a, b), left | right),
        (ranges.intersection(a, b), left & right),
        (ranges.difference(a, b), left - right),
        (ranges.add(a, number), left | {number}),
        (ranges.remove(a, number), left - {number}),
    ):
        assert found == ranges.from_numbers(expected)
    assert list(ranges.iterate(a)) == sorted(left)
    assert ranges.count(a) == len(left)
    assert ranges.contains(a, number) == (number in left)


@given(numbers)
def test_ranges_are_canonical(found: set[int]) -> None:
    canonical = ranges.from_numbers(found)
    for (_, last), (first, _) in pairwise(canonical):
        assert last + 1 < first
