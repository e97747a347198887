"""Ordered node lists as runs: nothing lost, nothing sorted, nothing unbounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.relay.nodelist import decode, encode


@given(st.lists(st.one_of(st.integers(0, 30), st.integers()), max_size=200))
def test_round_trip_keeps_order_and_repetitions(nodes: list[int]) -> None:
    assert decode(*encode(nodes)) == tuple(nodes)


def test_runs_go_upwards_and_are_maximal() -> None:
    assert encode([5, 6, 7, 3, 2, 3, 4, 9]) == ((5, 3, 2, 9), (3, 1, 3, 1))
    assert encode(range(20_000)) == ((0,), (20_000,))
    assert encode([]) == ((), ())


@pytest.mark.parametrize(
    ("starts", "lengths", "limit", "message"),
    [
        ((1, 2), (1,), 10, "2 run starts"),
        ((1,), (0,), 10, "a run of 0"),
        ((1,), (-4,), 10, "a run of -4"),
        ((1, 5), (3, 1 << 70), 10, "more than 10"),
    ],
)
def test_runs_from_a_broken_sender_are_refused(starts, lengths, limit, message) -> None:
    with pytest.raises(ValueError, match=message):
        decode(starts, lengths, limit)
