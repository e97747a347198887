"""The scoreboard: what is counted, over which time, and what is said of nothing."""

from __future__ import annotations

import pytest

from eslurm.core.prediction.score import BUCKETS, Period, PredictorScore, Scoreboard, Share, wilson
from eslurm.core.prediction.union import NOTHING, Prediction
from eslurm.core.relay.construct import TreeShape
from eslurm.core.relay.grouping import BALANCED

NODES = tuple(range(100))
SHAPE = TreeShape(4, grouping=BALANCED)
HOUR_US = 3600 * 1_000_000


def prediction(**by_name: set[int]) -> Prediction:
    frozen = {name: frozenset(nodes) for name, nodes in by_name.items()}
    return Prediction(frozenset().union(*frozen.values()), frozen)


def score(period: Period, name: str = "union") -> PredictorScore:
    return next(one for one in period.predictors if one.name == name)


def board(*records: tuple[Prediction, tuple[int, ...]], **options: int) -> Scoreboard:
    made = Scoreboard(0)
    for at_us, (predicted, failed) in enumerate(records):
        made.record(at_us, NODES, failed, predicted, SHAPE, **options)
    return made


def test_precision_and_recall_per_predictor_and_for_the_union() -> None:
    total = board((prediction(a={1, 2, 3, 4}, b={5}), (1, 5, 6))).report(1).total
    assert (total.broadcasts, total.failed_nodes) == (1, 3)
    assert [one.name for one in total.predictors] == ["union", "a", "b"]
    union, a, b = total.predictors
    assert (union.precision.hits, union.precision.of) == (2, 5)
    assert (union.recall.hits, union.recall.of) == (2, 3)
    assert (a.precision.hits, a.precision.of, a.recall.hits) == (1, 4, 1)
    assert (b.precision.value, b.recall.value) == (1.0, 1 / 3)


def test_nothing_counted_is_none_and_never_a_share() -> None:
    nothing = Share(0, 0)
    assert wilson(0, 0) == nothing and nothing.value is nothing.low is nothing.high is None
    assert board().report(1).total.predictors == ()
    union = score(board((NOTHING, ())).report(1).total)
    assert union == PredictorScore("union", nothing, nothing, nothing, nothing)
    union = score(board((NOTHING, (1,))).report(1).total)
    assert union.precision == nothing and union.recall.value == 0.0
    union = score(board((prediction(a={1}), ())).report(1).total)
    assert union.precision.value == 0.0 and union.recall == nothing and union.lift is None


def test_a_broadcast_of_which_nothing_was_foretold_and_in_which_nothing_failed_is_counted_all_the_same() -> (
    None
):
    quiet = prediction(a=set(), b=set())
    total = (
        board((NOTHING, ()), (quiet, ()), (quiet, (3,)), (prediction(a={3}, b=set()), ()), (quiet, ()))
        .report(5)
        .total
    )
    assert (total.broadcasts, total.failed_nodes, total.new_failures) == (5, 1, 1)
    assert [one.name for one in total.predictors] == ["union", "a", "b"]
    assert [(one.recall.hits, one.recall.of) for one in total.predictors] == [(0, 1)] * 3
    assert [(one.precision.hits, one.precision.of) for one in total.predictors] == [(0, 1), (0, 1), (0, 0)]


def test_predicted_nodes_that_were_not_asked_do_not_count() -> None:
    union = score(board((prediction(a={1, 700}), ())).report(1).total)
    assert union.precision.of == 1


def test_silent_nodes_that_were_not_asked_do_not_count() -> None:
    total = board((NOTHING, (1, 700))).report(1).total
    assert total.failed_nodes == total.new_failures == 1


def test_a_first_encounter_is_told_from_the_later_ones() -> None:
    dead = (prediction(a={7}), (7,))
    total = board((NOTHING, (7,)), dead, dead, (NOTHING, ()), dead).report(9).total
    union = score(total)
    assert (union.recall.hits, union.recall.of) == (3, 4)
    assert total.new_failures == 2 and (union.recall_new.hits, union.recall_new.of) == (1, 2)


def test_a_silent_node_that_is_not_asked_is_not_back() -> None:
    made = Scoreboard(0)
    made.record(0, (1, 2), (2,), NOTHING, SHAPE)
    made.record(1, (1,), (), NOTHING, SHAPE)
    made.record(2, (1, 2), (2,), NOTHING, SHAPE)
    assert made.report(3).total.new_failures == 1
    made.keep_known((1,))
    made.record(4, (1, 2), (2,), NOTHING, SHAPE)
    assert made.report(5).total.new_failures == 2


def test_a_foreseen_failure_is_on_a_leaf_and_lift_compares_with_random_places() -> None:
    # Node 0 would be an inner one, as the first of the list always is.
    union = score(board((prediction(a={0}), (0,))).report(1).total)
    assert union.leaf_share.value == 1.0
    # 100 nodes below a root, four children each: 24 nodes have some.
    assert union.random_leaf_share == pytest.approx(0.76)
    assert union.lift == pytest.approx(1 / 0.76)
    assert union.lift_low < 1 < union.lift == union.lift_high, "one success proves little"
    overlooked = score(board((NOTHING, (0,))).report(1).total)
    assert overlooked.leaf_share.value == 0.0 == overlooked.lift


def test_each_predictor_is_judged_by_the_places_that_it_alone_would_have_given() -> None:
    total = board((prediction(a={0}, b={99}), (0,))).report(1).total
    assert score(total, "a").leaf_share.value == 1.0
    assert score(total, "b").leaf_share.value == 0.0
    assert score(total).leaf_share.value == 1.0


def test_the_random_share_is_weighted_by_failures_not_by_broadcasts() -> None:
    made = Scoreboard(0)
    wide, narrow = TreeShape(50, grouping=BALANCED), TreeShape(2, grouping=BALANCED)
    made.record(0, NODES, (1, 2, 3), NOTHING, wide)
    made.record(1, NODES, (4,), NOTHING, narrow)
    made.record(2, NODES, (), NOTHING, narrow)
    random = score(made.report(3).total).random_leaf_share
    assert random == pytest.approx((3 * 0.98 + 0.51) / 4, abs=0.01)


def test_trees_of_leaves_only_say_nothing_of_placement() -> None:
    made = Scoreboard(0)
    made.record(0, (1, 2, 3), (1,), prediction(a={1}), SHAPE)
    made.record(1, NODES, (1,), prediction(a={1}), SHAPE, shares=25)
    union = score(made.report(2).total)
    assert union.recall.value == 1.0 and union.leaf_share == Share(0, 0) and union.lift is None


def test_predicting_everything_has_no_lift() -> None:
    union = score(board((prediction(a=set(NODES)), NODES)).report(1).total)
    assert union.lift == pytest.approx(1.0) and union.precision.value == 1.0


def test_the_window_slides_and_the_total_does_not() -> None:
    made = Scoreboard(0, window_us=24 * HOUR_US)
    for hour in range(48):
        made.record(hour * HOUR_US, NODES, (1,) if hour < 24 else (), NOTHING, SHAPE)
    report = made.report(47 * HOUR_US)
    assert (report.total.broadcasts, report.total.failed_nodes, report.total.since_us) == (48, 24, 0)
    assert (report.window.broadcasts, report.window.failed_nodes) == (24, 0)
    assert report.window.since_us == 23 * HOUR_US
    later = made.report(1_000 * HOUR_US)
    assert later.window.broadcasts == 0 and later.window.predictors == () and later.total == report.total


def test_the_window_is_bounded_however_many_broadcasts_there_are() -> None:
    made = Scoreboard(0, window_us=BUCKETS)
    for at_us in range(1_000):
        made.record(at_us, (1,), (), NOTHING, SHAPE)
    assert made.report(1_000).window.broadcasts == BUCKETS - 1


def test_a_predictor_that_comes_later_is_judged_by_what_it_could_foresee() -> None:
    total = board((NOTHING, (1, 2)), (prediction(late={1}), (1, 2))).report(2).total
    assert score(total, "late").recall.of == 2 and score(total).recall.of == 4


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (817, 1000, 0.7918, 0.8397)],
)
def test_the_interval_is_wilsons(hits: int, of: int, low: float, high: float) -> None:
    share = wilson(hits, of)
    assert share.value == hits / of
    assert (share.low, share.high) == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))
