"""Places without lists: for any list, prediction, shape and shares the look-ups agree with the constructor.

Goal: the counterfactual placement of the scoreboard is what `share_out` and `arrange` would really have done.
"""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from eslurm.core.prediction.places import Forest
from eslurm.core.prediction.score import Scoreboard
from eslurm.core.prediction.union import Prediction
from eslurm.core.relay.construct import TreeShape, arrange, leaf_positions, share_out
from eslurm.core.relay.grouping import BALANCED, POSITIONAL

shapes = st.builds(
    TreeShape, st.integers(2, 9), st.sampled_from([0, 2, 3, 12]), st.sampled_from([POSITIONAL, BALANCED])
)
lists = st.lists(st.integers(0, 400), unique=True, min_size=1, max_size=150)


def leaves_built(nodes: list[int], predicted: frozenset[int], shape: TreeShape, shares: int) -> set[int]:
    """The nodes on leaves, by building every share's list."""
    found: set[int] = set()
    for share in share_out(nodes, predicted, shares):
        pattern = leaf_positions(len(share), shape)
        arranged = arrange(share, predicted, shape)
        found.update(node for node, is_leaf in zip(arranged, pattern, strict=True) if is_leaf)
    return found


@example([0, 1, 2, 3], frozenset({0, 1, 2}), TreeShape(2, 0, POSITIONAL), 1)  # more predicted than leaves
@given(lists, st.frozensets(st.integers(0, 400)), shapes, st.integers(1, 12))
def test_look_ups_agree_with_the_lists(
    nodes: list[int], predicted: frozenset[int], shape: TreeShape, shares: int
) -> None:
    leaves = leaves_built(nodes, predicted, shape, shares)
    forest = Forest(len(nodes), len(predicted.intersection(nodes)), shape, shares)
    assert forest.leaf_share == len(leaves) / len(nodes)
    assert forest.is_flat == (len(leaves) == len(nodes))
    for is_predicted in (False, True):
        kind = [node for node in nodes if (node in predicted) == is_predicted]
        assert forest.leaf_flags(is_predicted) == bytes(node in leaves for node in kind)


@example(
    [0, 1, 2, 3], frozenset(), frozenset({0, 1, 2}), frozenset({3}), TreeShape(2, 0, POSITIONAL), 1
)  # the only other node is not on a leaf
@given(
    lists,
    st.frozensets(st.integers(0, 400)),
    st.frozensets(st.integers(0, 400)),
    st.frozensets(st.integers(0, 400)),
    shapes,
    st.integers(1, 12),
)
def test_the_scores_of_a_broadcast_are_those_counted_by_hand(
    nodes: list[int],
    one: frozenset[int],
    other: frozenset[int],
    failed: frozenset[int],
    shape: TreeShape,
    shares: int,
) -> None:
    board = Scoreboard(0)
    silent = failed.intersection(nodes)
    board.record(1, nodes, silent, Prediction(one | other, {"one": one, "other": other}), shape, shares)
    scores = {score.name: score for score in board.report(2).total.predictors}
    for name, predicted in (("union", one | other), ("one", one), ("other", other)):
        score = scores[name]
        asked = predicted.intersection(nodes)
        assert (score.precision.hits, score.precision.of) == (len(asked & silent), len(asked))
        assert (score.recall.hits, score.recall.of) == (len(asked & silent), len(silent))
        leaves = leaves_built(nodes, predicted, shape, shares)
        if len(leaves) == len(nodes):
            assert score.leaf_share.of == 0
        else:
            assert (score.leaf_share.hits, score.leaf_share.of) == (len(leaves & silent), len(silent))
