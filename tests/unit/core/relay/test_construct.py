"""The FP-Tree constructor's three parts (E-22), each by examples and against a naive twin."""

from __future__ import annotations

import pytest

from eslurm.core.relay import construct
from eslurm.core.relay.construct import (
    CACHED_COUNT_MAX,
    TreeShape,
    arrange,
    leaf_positions,
    leaves_of,
    place,
    rearrange,
    share_out,
)
from eslurm.core.relay.grouping import BALANCED, POSITIONAL, Grouping, shape, split

BOTH = pytest.mark.parametrize("grouping", [POSITIONAL, BALANCED])


def bits(text: str) -> bytes:
    """A leaf pattern as it is read: 1 is a leaf."""
    return bytes(int(digit) for digit in text.replace(" ", ""))


@pytest.mark.parametrize(
    ("count", "tree", "pattern"),
    [
        (0, TreeShape(3), ""),
        (1, TreeShape(3), "1"),
        (3, TreeShape(3), "111"),
        (4, TreeShape(3), "01 1 1"),
        (8, TreeShape(3), "011 011 01"),
        (8, TreeShape(3, 0, BALANCED), "0111 011 1"),
        (13, TreeShape(3, 0, BALANCED), "00111 0111 0111"),
        (9, TreeShape(2, 4), "011 01 01 01"),
        (9, TreeShape(2, 4, BALANCED), "011 011 01 1"),
        (5, TreeShape(1), "00001"),
        (5, TreeShape(1, 2), "001 01"),
        (5, TreeShape(1, 2, BALANCED), "001 01"),
    ],
)
def test_golden_leaf_patterns(count: int, tree: TreeShape, pattern: str) -> None:
    assert leaf_positions(count, tree) == bits(pattern)
    assert leaves_of(count, tree) == pattern.count("1")


@BOTH
def test_patterns_too_long_to_keep_are_the_same_and_are_not_kept(grouping: Grouping) -> None:
    tree = TreeShape(16, 40, grouping)
    construct._cached_positions.cache_clear()
    count = CACHED_COUNT_MAX + 1
    children = {parent for parent, _ in shape(range(count), 16, grouping, 40)}
    assert leaf_positions(count, tree) == bytes(node not in children for node in range(count))
    assert construct._cached_positions.cache_info().currsize == 0
    assert leaf_positions(100, tree) is leaf_positions(100, tree)
    assert construct._cached_positions.cache_info().currsize == 1


@BOTH
def test_a_long_chain_needs_no_deep_recursion(grouping: Grouping) -> None:
    assert leaf_positions(20_000, TreeShape(1, 0, grouping)) == bytes(19_999) + b"\x01"


@pytest.mark.parametrize(
    ("predicted", "arranged"),
    [
        (set(), [1, 2, 3, 4, 5, 6, 7, 8]),
        ({99}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({1, 4}, [2, 1, 4, 3, 5, 6, 7, 8]),
        ({1, 4, 7, 99}, [2, 1, 4, 3, 7, 5, 6, 8]),
        ({1, 2, 3, 4, 5}, [6, 1, 2, 7, 3, 4, 8, 5]),
        ({1, 2, 3, 4, 5, 6}, [7, 1, 2, 8, 3, 4, 5, 6]),
        ({1, 2, 3, 4, 5, 6, 7, 8}, [1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_golden_arrangements(predicted: set[int], arranged: list[int]) -> None:
    # The tree of eight at width 3: 0, 3 and 6 are inner positions.
    nodes = [1, 2, 3, 4, 5, 6, 7, 8]
    assert rearrange(nodes, bits("01101101"), predicted) == arranged
    assert arrange(tuple(nodes), list(predicted), TreeShape(3)) == arranged


def test_the_order_that_was_given_is_kept_not_that_of_numbers() -> None:
    assert arrange([7, 3, 9, 1, 8, 2], {9, 7}, TreeShape(2)) == [3, 7, 9, 1, 8, 2]


def test_with_nothing_predicted_the_very_list_is_returned() -> None:
    nodes = [3, 1, 2]
    assert arrange(nodes, (), TreeShape(2)) is nodes
    assert arrange(nodes, {77}, TreeShape(2)) is nodes
    assert arrange((3, 1, 2), (), TreeShape(2)) == nodes


def test_positions_for_another_list_are_refused() -> None:
    with pytest.raises(ValueError, match="2 positions for 3 nodes"):
        rearrange([1, 2, 3], b"\x01\x01", {1})


@BOTH
def test_a_root_cuts_its_own_level_by_its_own_width(grouping: Grouping) -> None:
    tree = TreeShape(3, 5, grouping)
    assert [len(group) for group in tree.split_root(range(40))] == list(tree.root_sizes(40))
    assert len(tree.root_sizes(40)) == 5
    assert len(TreeShape(3, 0, grouping).root_sizes(40)) == 3
    assert tree.depth(40) == 3
    children = [child for parent, child in shape(range(40), 3, grouping, 5) if parent is None]
    assert [group[0] for group in tree.split_root(range(40))] == children


@BOTH
def test_look_ups_know_every_place_of_a_small_tree(grouping: Grouping) -> None:
    tree = TreeShape(3, 0, grouping)
    leaves = leaf_positions(20, tree)
    for predicted in range(21):
        placement = place(20, predicted, tree)
        arranged = arrange(list(range(20)), set(range(predicted)), tree)
        on_leaf = {node: bool(leaf) for node, leaf in zip(arranged, leaves, strict=True)}
        assert list(placement.leaf_flags(True)) == [on_leaf[node] for node in range(predicted)]
        assert list(placement.leaf_flags(False)) == [on_leaf[node] for node in range(predicted, 20)]


def test_no_more_nodes_are_predicted_than_there_are() -> None:
    for predicted in (-1, 11):
        with pytest.raises(ValueError, match="predicted"):
            place(10, predicted, TreeShape(3))


@pytest.mark.parametrize(
    ("nodes", "predicted", "shares", "parts"),
    [
        ([], {1}, 3, []),
        ([5, 4, 3, 2, 1], (), 2, [[5, 4, 3], [2, 1]]),
        ([5, 4, 3, 2, 1], {5, 4}, 2, [[5, 3, 2], [4, 1]]),
        ([5, 4, 3, 2, 1], {2, 1, 8}, 2, [[5, 4, 2], [3, 1]]),
        ([5, 4], {4}, 5, [[4], [5]]),
        ([5, 4, 3], {5, 4, 3}, 2, [[5, 4], [3]]),
    ],
)
def test_golden_shares(nodes: list[int], predicted: set[int], shares: int, parts: list[list[int]]) -> None:
    assert share_out(nodes, predicted, shares) == parts


def test_shares_without_a_prediction_are_the_plain_cut() -> None:
    nodes = list(range(100, 0, -1))
    assert share_out(nodes, (), 7) == split(nodes, 7)


@pytest.mark.parametrize("predicted", [(), (1,)])
def test_less_than_one_share_is_refused(predicted: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        share_out([1, 2], predicted, 0)
