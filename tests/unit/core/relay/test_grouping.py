"""The groupings: golden trees, and the properties every hop relies on."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.relay.grouping import (
    BALANCED,
    GROUPINGS,
    POSITIONAL,
    Grouping,
    depth,
    find_grouping,
    shape,
    split,
)

widths = st.integers(1, 40)
groupings = st.sampled_from([POSITIONAL, BALANCED])


def levels_of(count: int, width: int, grouping: Grouping, root_width: int = 0) -> dict[int | None, int]:
    """The level of every node, from the edges; the root is on level 0."""
    level: dict[int | None, int] = {None: 0}
    for parent, child in shape(range(count), width, grouping, root_width):
        assert child not in level
        level[child] = level[parent] + 1
    return level


def inner_nodes(count: int, width: int, grouping: Grouping) -> int:
    return len({parent for parent, _ in shape(range(count), width, grouping)} - {None})


@pytest.mark.parametrize(
    ("count", "width", "groups"),
    [
        (0, 3, []),
        (3, 3, [[0], [1], [2]]),
        (4, 3, [[0, 1], [2], [3]]),
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (5, 1, [[0, 1, 2, 3, 4]]),
    ],
)
def test_golden_groups(count: int, width: int, groups: list[list[int]]) -> None:
    assert split(range(count), width) == groups


@pytest.mark.parametrize(
    ("count", "width", "below", "sizes"),
    [
        (0, 3, 0, []),
        (3, 3, 0, [1, 1, 1]),
        (4, 3, 0, [2, 1, 1]),
        (8, 3, 0, [4, 3, 1]),
        (12, 3, 0, [4, 4, 4]),
        (13, 3, 0, [5, 4, 4]),
        (25, 3, 0, [13, 8, 4]),
        (5, 1, 0, [5]),
        (9, 4, 2, [3, 3, 2, 1]),
        (29, 4, 2, [8, 7, 7, 7]),
        (9, 2, 5, [6, 3]),
        (7, 3, 1, [3, 2, 2]),
    ],
)
def test_golden_sizes_of_the_balanced_grouping(count: int, width: int, below: int, sizes: list[int]) -> None:
    assert BALANCED.sizes(count, width, below) == sizes


def test_golden_tree() -> None:
    edges = list(shape([9, 4, 7, 1, 3, 8, 2], 2))
    assert edges == [(None, 9), (None, 3), (3, 8), (3, 2), (9, 4), (9, 1), (4, 7)]


def test_golden_balanced_tree() -> None:
    edges = list(shape([9, 4, 7, 1, 3, 8, 2], 2, BALANCED))
    assert edges == [(None, 9), (None, 3), (3, 8), (3, 2), (9, 4), (9, 1), (4, 7)]
    edges = list(shape([9, 4, 7, 1], 3, BALANCED))
    assert edges == [(None, 9), (None, 7), (None, 1), (9, 4)]


@given(st.lists(st.integers(), max_size=300), widths)
def test_groups_keep_the_list_and_differ_by_at_most_one(nodes: list[int], width: int) -> None:
    groups = split(nodes, width)
    assert [node for group in groups for node in group] == nodes
    assert len(groups) == min(width, len(nodes))
    sizes = [len(group) for group in groups]
    assert not sizes or (max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True))
    assert POSITIONAL.split(nodes, width) == groups


@given(st.integers(0, 3000), widths, st.integers(0, 40), groupings)
def test_sizes_are_positive_sum_to_the_list_and_never_grow(
    count: int, width: int, below: int, grouping: Grouping
) -> None:
    sizes = grouping.sizes(count, width, below)
    assert sum(sizes) == count
    assert len(sizes) == min(width, count)
    assert all(size >= 1 for size in sizes)
    assert all(left >= right for left, right in pairwise(sizes))
    assert len(set(sizes)) <= 3
    groups = grouping.split(range(count), width, below)
    assert [len(group) for group in groups] == list(sizes)
    assert [node for group in groups for node in group] == list(range(count))


@given(st.integers(0, 2000), st.integers(1, 40), st.integers(0, 40), groupings)
def test_shape_reaches_every_node_once_and_depth_is_its_height(
    count: int, width: int, root_width: int, grouping: Grouping
) -> None:
    level = levels_of(count, width, grouping, root_width)
    assert len(level) == count + 1
    assert depth(count, width, grouping, root_width) == max(level.values())


@given(st.integers(1, 10**7), st.integers(2, 300), groupings)
def test_depth_is_at_most_one_above_the_logarithm(count: int, width: int, grouping: Grouping) -> None:
    logarithm = 0
    while width**logarithm < count:
        logarithm += 1
    assert depth(count, width, grouping) <= logarithm + 1


@given(st.integers(1, 2000), st.integers(1, 30), st.integers(1, 30))
def test_balanced_levels_are_full_but_the_last(count: int, width: int, root_width: int) -> None:
    level = levels_of(count, width, BALANCED, root_width)
    sizes = Counter(level.values())
    deepest = max(sizes)
    for number in range(1, deepest):
        assert sizes[number] == root_width * width ** (number - 1)


@given(st.integers(1, 2000), st.integers(2, 30))
def test_balanced_inner_nodes_are_as_few_as_possible(count: int, width: int) -> None:
    inner = inner_nodes(count, width, BALANCED)
    assert inner == max(0, -(-(count - width) // width))
    assert inner <= inner_nodes(count, width, POSITIONAL)


@given(st.integers(1, 2000), st.integers(2, 30))
def test_balanced_is_never_deeper_than_positional(count: int, width: int) -> None:
    assert depth(count, width, BALANCED) <= depth(count, width)


def test_depth_grows_with_the_logarithm() -> None:
    assert depth(20_480, 32) == 3
    assert depth(1, 32) == 1
    assert depth(0, 32) == 0
    assert depth(5000, 50, BALANCED, 200) == 2


@pytest.mark.parametrize("grouping", GROUPINGS.values())
def test_a_chain_is_as_deep_as_it_is_long(grouping: Grouping) -> None:
    assert depth(300, 1, grouping) == 300
    assert depth(300, 1, grouping, 100) == 3


@pytest.mark.parametrize("grouping", GROUPINGS.values())
def test_a_grouping_is_found_by_its_name(grouping: Grouping) -> None:
    assert find_grouping(grouping.name) is grouping


def test_an_unknown_grouping_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="grouping 'sorted' is unknown: use balanced or positional"):
        find_grouping("sorted")


@pytest.mark.parametrize(
    "function",
    [
        lambda: split([1], 0),
        lambda: depth(1, 0),
        lambda: BALANCED.sizes(1, 0),
        lambda: BALANCED.sizes(9, 3, -1),
        lambda: POSITIONAL.sizes(9, 3, -1),
        lambda: list(shape([1], 0)),
    ],
)
def test_a_width_below_one_is_refused(function) -> None:
    with pytest.raises(ValueError, match="width"):
        function()
