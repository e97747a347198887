"""Jobs that exclude each other, each larger than half of all nodes, under schedules that are drawn against them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.core.federation.strategies.interface import GiveBack, Take
from eslurm.core.federation.strategies.table import STRATEGIES
from tests.kits.searches import Hunter, meet

SIZES = st.lists(st.integers(1, 6), min_size=2, max_size=5)
PICKS = st.lists(st.integers(0, 10), max_size=60)
MOST = 20_000
SOME = 1_500


def _big_jobs(sizes: list[int], count: int, seed: int) -> list[tuple[int, int]]:
    draws, whole = random.Random(seed), sum(sizes)
    return [(draws.randrange(len(sizes)), draws.randint(whole // 2 + 1, whole)) for _ in range(count)]


def _schedule(picks: list[int], seed: int) -> Iterator[int]:
    """First as drawn against them, then at random: an adversary that never lets one go on has nothing to show."""
    draws = random.Random(seed)
    return chain(picks, iter(lambda: draws.randrange(11), -1))


def _met(name: str, sizes: list[int], count: int, picks: list[int], seed: int) -> tuple[int, list[Hunter]]:
    return meet(name, sizes, _big_jobs(sizes, count, seed), _schedule(picks, seed), seed, MOST)


@pytest.mark.parametrize("name", ["joint", "balanced", "tickets"])
@given(sizes=SIZES, count=st.integers(2, 5), picks=PICKS, seed=st.integers(0, 10_000))
def test_big_jobs_that_exclude_each_other_all_find_their_nodes(
    name: str, sizes: list[int], count: int, picks: list[int], seed: int
) -> None:
    steps, hunters = _met(name, sizes, count, picks, seed)
    assert steps < MOST
    assert all(one.is_done for one in hunters)


@given(sizes=SIZES, count=st.integers(2, 5), picks=PICKS, seed=st.integers(0, 10_000))
def test_a_joint_search_holds_everything_or_nothing(
    sizes: list[int], count: int, picks: list[int], seed: int
) -> None:
    _, hunters = _met("joint", sizes, count, picks, seed)
    for one in hunters:
        assert not any(isinstance(step, GiveBack) for step in one.steps)
        assert all(
            sum(nodes for _, nodes in step.parts) == one.need.nodes
            for step in one.steps
            if isinstance(step, Take)
        )


@settings(max_examples=20)
@pytest.mark.parametrize(
    "name", [name for name in STRATEGIES if name not in ("joint", "balanced", "tickets")]
)
@given(sizes=SIZES, count=st.integers(2, 4), picks=PICKS, seed=st.integers(0, 10_000))
def test_searches_that_hold_and_wait_give_back_in_bounded_time(
    name: str, sizes: list[int], count: int, picks: list[int], seed: int
) -> None:
    # They promise no more: how long it takes until one finds its nodes is in the study.
    _, hunters = meet(name, sizes, _big_jobs(sizes, count, seed), _schedule(picks, seed), seed, SOME)
    for one in hunters:
        for held, steps in groupby(one.holds):
            assert not held or len(list(steps)) < 100, "it holds nodes, gets no more, and does not give up"
