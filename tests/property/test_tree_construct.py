"""The FP-Tree constructor on random lists, predictions and shapes, against naive twins.

Goal: whatever is predicted, a tree's list stays a permutation with healthy nodes in order, predicted nodes
are inner only when leaves do not suffice, and every look-up says what the whole construction would.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.relay.construct import TreeShape, arrange, leaf_positions, leaves_of, place, share_out
from eslurm.core.relay.grouping import BALANCED, POSITIONAL, shape, split

shapes = st.builds(TreeShape, st.integers(1, 40), st.integers(0, 40), st.sampled_from([POSITIONAL, BALANCED]))
shares_of_all = st.sampled_from([0.0, 0.02, 0.3, 0.8, 0.95, 1.0])


@st.composite
def predictions(draw: st.DrawFn) -> tuple[list[int], set[int]]:
    """A list in any order, and a prediction that also names strangers."""
    nodes = draw(st.lists(st.integers(0, 5000), max_size=400, unique=True))
    rng = draw(st.randoms(use_true_random=False))
    predicted = set(rng.sample(nodes, round(len(nodes) * draw(shares_of_all))))
    return nodes, predicted | draw(st.sets(st.integers(6000, 6010)))


def naive_leaves(count: int, tree: TreeShape) -> list[int]:
    """The leaf locator as the paper tells it: divide and conquer, position by position (E-23)."""
    leaves = [0] * count

    def visit(start: int, sizes: list[int]) -> None:
        for size in sizes:
            if size == 1:
                leaves[start] = 1
            else:
                visit(start + 1, list(tree.grouping.sizes(size - 1, tree.width)))
            start += size

    visit(0, list(tree.root_sizes(count)))
    return leaves


def naive_arrangement(nodes: list[int], leaves: list[int], predicted: set[int]) -> list[int]:
    """The rearranger as the paper tells it: one pass, two sets to take from (E-24)."""
    healthy = [node for node in nodes if node not in predicted]
    failing = [node for node in nodes if node in predicted]
    arranged = []
    for is_leaf in leaves:
        first, second = (failing, healthy) if is_leaf else (healthy, failing)
        arranged.append((first or second).pop(0))
    return arranged


@given(st.integers(0, 600), shapes)
def test_the_leaf_locator_agrees_with_the_naive_one_and_with_the_tree(count: int, tree: TreeShape) -> None:
    leaves = leaf_positions(count, tree)
    assert list(leaves) == naive_leaves(count, tree)
    edges = list(shape(range(count), tree.width, tree.grouping, tree.root_width))
    parents = {parent for parent, _ in edges}
    assert list(leaves) == [int(node not in parents) for node in range(count)]
    assert leaves_of(count, tree) == sum(leaves)


@given(predictions(), shapes)
def test_an_arrangement_is_the_naive_one(case: tuple[list[int], set[int]], tree: TreeShape) -> None:
    nodes, predicted = case
    expected = naive_arrangement(nodes, naive_leaves(len(nodes), tree), predicted)
    assert arrange(nodes, predicted, tree) == expected


@given(predictions(), shapes)
def test_predicted_nodes_are_on_leaves_whenever_leaves_suffice(
    case: tuple[list[int], set[int]], tree: TreeShape
) -> None:
    nodes, predicted = case
    before = list(nodes)
    arranged = arrange(nodes, predicted, tree)
    assert nodes == before
    assert sorted(arranged) == sorted(nodes)
    parents = {parent for parent, _ in shape(arranged, tree.width, tree.grouping, tree.root_width)}
    present = predicted.intersection(nodes)
    assert len(parents & present) == max(0, len(present) - leaves_of(len(nodes), tree))


@given(predictions(), shapes)
def test_topology_survives(case: tuple[list[int], set[int]], tree: TreeShape) -> None:
    """Healthy nodes keep their order; at most two neighbourhoods change for a predicted node (E-30)."""
    nodes, predicted = case
    arranged = arrange(nodes, predicted, tree)
    assert [node for node in arranged if node not in predicted] == [
        node for node in nodes if node not in predicted
    ]
    assert [node for node in arranged if node in predicted] == [node for node in nodes if node in predicted]

    def neighbours(order: list[int]) -> set[tuple[int, int]]:
        return {pair for pair in pairwise(order) if predicted.isdisjoint(pair)}

    present = len(predicted.intersection(nodes))
    broken = neighbours(nodes) - neighbours(arranged)
    made = neighbours(arranged) - neighbours(nodes)
    assert len(broken) <= present
    assert len(broken) + len(made) <= 2 * present


@given(predictions(), shapes, st.data())
def test_look_ups_say_what_the_construction_does(
    case: tuple[list[int], set[int]], tree: TreeShape, data: st.DataObject
) -> None:
    nodes, predicted = case
    if not nodes:
        return
    asked = data.draw(st.sampled_from(nodes))
    is_predicted = asked in predicted
    rank = sum((node in predicted) == is_predicted for node in nodes[: nodes.index(asked)])
    position = arrange(nodes, predicted, tree).index(asked)
    placement = place(len(nodes), len(predicted.intersection(nodes)), tree)
    assert bool(placement.leaf_flags(is_predicted)[rank]) == bool(leaf_positions(len(nodes), tree)[position])


@given(st.integers(0, 300), st.integers(0, 300), shapes)
def test_flags_are_of_every_rank(count: int, predicted: int, tree: TreeShape) -> None:
    predicted = min(count, predicted)
    placement = place(count, predicted, tree)
    for is_predicted, kind in ((True, predicted), (False, count - predicted)):
        assert len(placement.leaf_flags(is_predicted)) == kind
    together = sum(placement.leaf_flags(True)) + sum(placement.leaf_flags(False))
    assert together == leaves_of(count, tree)


@given(predictions(), st.integers(1, 60))
def test_shares_are_an_even_partition_of_healthy_and_predicted(
    case: tuple[list[int], set[int]], shares: int
) -> None:
    nodes, predicted = case
    parts = share_out(nodes, predicted, shares)
    assert len(parts) == min(shares, len(nodes))
    if predicted.isdisjoint(nodes):
        assert parts == split(nodes, shares)
    place_of = {node: place for place, node in enumerate(nodes)}
    for part in parts:
        places = [place_of[node] for node in part]
        assert places == sorted(places)
    for kind in (set(nodes) - predicted, predicted.intersection(nodes)):
        kept = [[node for node in part if node in kind] for part in parts]
        assert [node for part in kept for node in part] == [node for node in nodes if node in kind]
        assert max(map(len, kept), default=0) - min(map(len, kept), default=0) <= 1
    sizes = [len(part) for part in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert not sizes or sizes[0] - sizes[-1] <= 1
