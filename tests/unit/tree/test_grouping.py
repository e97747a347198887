"""The positional tree: golden trees, and the properties every hop relies on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.tree.grouping import POSITIONAL, depth, shape, split

widths = st.integers(1, 40)


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


def test_golden_tree() -> None:
    edges = list(shape([9, 4, 7, 1, 3, 8, 2], 2))
    assert edges == [(None, 9), (None, 3), (3, 8), (3, 2), (9, 4), (9, 1), (4, 7)]


@given(st.lists(st.integers(), max_size=300), widths)
def test_groups_keep_the_list_and_differ_by_at_most_one(nodes: list[int], width: int) -> None:
    groups = split(nodes, width)
    assert [node for group in groups for node in group] == nodes
    assert len(groups) == min(width, len(nodes))
    sizes = [len(group) for group in groups]
    assert not sizes or (max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True))
    assert POSITIONAL.split(nodes, width) == groups


@given(st.integers(0, 2000), st.integers(1, 40))
def test_shape_reaches_every_node_once_and_depth_is_its_height(count: int, width: int) -> None:
    level: dict[int | None, int] = {None: 0}
    for parent, child in shape(range(count), width):
        assert child not in level
        level[child] = level[parent] + 1
    assert len(level) == count + 1
    assert depth(count, width) == max(level.values())


def test_depth_grows_with_the_logarithm() -> None:
    assert depth(20_480, 32) == 3
    assert depth(1, 32) == 1
    assert depth(0, 32) == 0


@pytest.mark.parametrize("function", [lambda: split([1], 0), lambda: depth(1, 0)])
def test_a_width_below_one_is_refused(function) -> None:
    with pytest.raises(ValueError, match="width"):
        function()
