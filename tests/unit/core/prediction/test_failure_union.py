"""Several predictors together: the union, the guard around each, and what people are told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from eslurm.core.prediction.predictor import BroadcastSeen, NodesKnown, Observation
from eslurm.core.prediction.union import NOTHING, WORDS_CHARS_MAX, Predictors

KNOWN = NodesKnown({number: f"cn{number}" for number in range(10)})


class Fake:
    """Says what it is told to, or raises it."""

    def __init__(self, answer: Any = (), on_observe: Exception | None = None) -> None:
        self.answer = answer
        self.on_observe = on_observe
        self.seen: list[Observation] = []

    def observe(self, observation: Observation) -> None:
        self.seen.append(observation)
        if self.on_observe is not None:
            raise self.on_observe

    def predict(self, now_us: int) -> Iterable[int]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def predictors(**fakes: Fake) -> tuple[Predictors, list[str]]:
    notices: list[str] = []
    made = Predictors(notices.append)
    made.observe(KNOWN)
    for name, fake in fakes.items():
        made.add(name, fake)
    return made, notices


def test_without_predictors_nobody_is_predicted() -> None:
    made, _ = predictors()
    assert made.predicted(0) == NOTHING and made.states() == {}


def test_the_union_counts_and_each_is_known_by_name() -> None:
    made, notices = predictors(a=Fake({1, 2}), b=Fake([2, 3]), c=Fake())
    prediction = made.predicted(0)
    assert prediction.all == {1, 2, 3}
    assert prediction.by_name == {"a": {1, 2}, "b": {2, 3}, "c": set()}
    assert notices == [] and made.states() == {"a": "on", "b": "on", "c": "on"}


def test_unknown_nodes_are_dropped() -> None:
    made, _ = predictors(a=Fake({1, 99, -1, "cn3", None}))
    assert made.predicted(0).all == {1}


def test_a_predictor_hears_of_the_nodes_when_it_is_added_and_of_everything_after() -> None:
    fake = Fake()
    made, _ = predictors(a=fake)
    seen = BroadcastSeen(1, (1, 2), (2,))
    made.observe(seen)
    assert fake.seen == [KNOWN, seen]


def test_a_name_is_taken_once_also_by_one_that_is_off() -> None:
    made, _ = predictors(a=Fake())
    for _ in range(2):
        with pytest.raises(ValueError, match="'a' is there twice"):
            made.add("a", Fake())
        made.switch_off("a", "unwanted")


@pytest.mark.parametrize("answer", [RuntimeError("broken"), 3, None, [[1]]])
def test_one_that_raises_or_answers_nonsense_is_switched_off_and_the_others_go_on(answer: Any) -> None:
    bad = Fake(answer)
    made, notices = predictors(bad=bad, good=Fake({1}))
    assert made.predicted(0).by_name == {"good": {1}}
    (notice,) = notices
    assert notice.startswith("failure predictor 'bad' was switched off: it raised ")
    bad.answer = {2}
    assert made.predicted(1).all == {1} and len(notices) == 1, "off for good, said once"
    assert made.states()["good"] == "on" and made.states()["bad"] in notice


def test_one_that_raises_while_it_is_told_is_switched_off_and_its_prediction_dropped() -> None:
    bad, good = Fake({5}), Fake({1})
    made, notices = predictors(bad=bad, good=good)
    assert made.predicted(0).all == {1, 5}
    bad.on_observe = KeyError("x" * 10_000)
    made.observe(BroadcastSeen(1, (1,)))
    made.observe(BroadcastSeen(2, (1,)))
    assert made.predicted(2).all == {1}
    assert len(notices) == 1 and len(notices[0]) < WORDS_CHARS_MAX + 100
    assert len(bad.seen) == 2 and len(good.seen) == 3


def test_an_answer_that_raises_half_way_counts_as_raising() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise OSError

    made, notices = predictors(a=Fake(numbers()))
    assert made.predicted(0).all == set()
    assert notices == ["failure predictor 'a' was switched off: it raised OSError"]


def test_equal_predictions_are_the_same_object() -> None:
    frozen, listed = Fake(frozenset({1})), Fake([2])
    made, _ = predictors(a=frozen, b=listed)
    first = made.predicted(0)
    assert made.predicted(1) is first
    frozen.answer = frozenset([1])
    assert made.predicted(2) is first
    listed.answer.append(3)
    second = made.predicted(3)
    assert second.all == {1, 2, 3} and second.by_name["a"] is first.by_name["a"]


def test_a_set_that_its_predictor_goes_on_to_change_is_read_anew() -> None:
    fake = Fake({1})
    made, _ = predictors(a=fake)
    made.predicted(0)
    fake.answer.add(2)
    assert made.predicted(1).all == {1, 2}


def test_a_new_configuration_is_in_force_at_once() -> None:
    made, _ = predictors(a=Fake(frozenset({1, 2, 50})))
    assert made.predicted(0).all == {1, 2}
    made.observe(NodesKnown({2: "cn2", 3: "cn3", 50: "cn50"}))
    assert made.predicted(1).all == {2, 50}


def test_who_predicts_everybody_is_left_out_with_one_notice() -> None:
    fake = Fake(set(range(10)))
    made, notices = predictors(a=fake, b=Fake({1}))
    first = made.predicted(0)
    assert first.all == {1} == made.predicted(1).all
    assert len(first.by_name["a"]) == 10, "it is scored all the same"
    assert made.states() == {"a": "left out while it predicts nearly all nodes", "b": "on"}
    assert len(notices) == 1 and "'a' predicts 10 of 10 nodes" in notices[0]
    fake.answer = set(range(6))
    assert made.predicted(2).all == set(range(6))
    assert made.states()["a"] == "on"
    fake.answer = set(range(10))
    made.predicted(3)
    assert len(notices) == 2
