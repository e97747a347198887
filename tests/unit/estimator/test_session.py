"""A session asks and answers in batches, and a change of mind never reaches a question that was asked before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest

from eslurm.core.model.forecast import Forecast, Submitted, exactly
from eslurm.estimator.session import BadAnswer, Session
from eslurm.ports.estimator import Lesson, Model
from tests.kits.estimator import Scribe


def model(answer_s: int) -> Model:
    return Model({}, {"answer_s": answer_s})


class Desk:
    """A session, and what it delivered."""

    def __init__(self, scribe: Scribe, *, teach: bool = False, batch_max: int = 1_000) -> None:
        self.batches: list[list[tuple[str, Forecast]]] = []
        self.handed_out: list[Lesson] = []
        self.ticks = 0
        self.session: Session[str] = Session(
            scribe,
            self.batches.append,
            teach=self.handed_out.append if teach else None,
            batch_max=batch_max,
            cpu=self._cpu,
        )

    def _cpu(self) -> float:
        self.ticks += 1
        return float(self.ticks)

    def answers(self) -> list[tuple[str, int]]:
        return [(tag, forecast.estimate_s) for batch in self.batches for tag, forecast in batch]


def test_questions_are_answered_together_and_in_order() -> None:
    scribe = Scribe()
    desk = Desk(scribe, batch_max=3)
    for number in range(5):
        desk.session.submitted(Submitted(number, 10))
        desk.session.ask(f"job {number}", number, 10)
    assert [len(batch) for batch in desk.batches] == [3] and desk.session.open == 2
    desk.session.flush()
    desk.session.flush()
    assert [tag for tag, _ in desk.answers()] == [f"job {number}" for number in range(5)]
    assert scribe.only("answered") == [("answered", 3), ("answered", 2)]
    assert desk.session.spent.answers == 5 and desk.session.spent.per_answer_ms > 0


def test_what_is_open_is_answered_before_anything_changes() -> None:
    scribe = Scribe(answer_s=1)
    desk = Desk(scribe)
    desk.session.submitted(Submitted(1, 0))
    desk.session.ask("before", 1, 0)
    scribe.is_due, scribe.lessons = (lambda at_s: at_s == 5), [lambda: model(2)]
    desk.session.started(1, 5)
    desk.session.ask("after", 1, 6)
    desk.session.flush()
    assert desk.answers() == [("before", 1), ("after", 2)]
    assert [one[0] for one in scribe.told] == [
        *("submitted", "asked", "answered", "settled", "adopted", "started", "asked", "answered"),
    ]
    assert desk.session.spent.lessons == 1 and desk.session.spent.per_lesson_s == 1.0


def test_a_lesson_may_be_learnt_elsewhere_one_at_a_time() -> None:
    scribe = Scribe(answer_s=1)
    desk = Desk(scribe, teach=True)
    scribe.is_due, scribe.lessons = (
        (lambda at_s: True),
        [lambda: model(2), lambda: model(3), lambda: model(4)],
    )
    desk.session.tick(1)
    desk.session.tick(2)
    assert len(desk.handed_out) == 1 and desk.session.learning and len(scribe.lessons) == 2
    desk.session.submitted(Submitted(1, 3))
    scribe.is_due = lambda at_s: False
    desk.session.ask("meanwhile", 1, 3)
    desk.session.adopt(desk.handed_out[0]())
    assert desk.answers() == [("meanwhile", 1)] and not desk.session.learning
    scribe.is_due = lambda at_s: True
    desk.session.tick(4)
    assert len(desk.handed_out) == 2
    # It came to nothing: what is newer is learnt instead, and when there is nothing newer, the same once more.
    desk.session.again(desk.handed_out[1], 5)
    assert len(desk.handed_out) == 3 and not scribe.lessons
    desk.session.again(desk.handed_out[2], 6)
    assert desk.handed_out[3] is desk.handed_out[2] and desk.session.learning
    assert desk.session.spent.lessons == 4 and desk.session.spent.learn_s == 0


def test_a_model_that_is_refused_leaves_the_lesson_out() -> None:
    class Choosy(Scribe):
        def adopt(self, model: Model) -> None:
            raise ValueError("no")

    choosy = Choosy()
    desk = Desk(choosy, teach=True)
    choosy.is_due, choosy.lessons = (lambda at_s: True), [lambda: model(2), lambda: model(3)]
    desk.session.tick(1)
    with pytest.raises(ValueError, match="no"):
        desk.session.adopt(desk.handed_out[0]())
    desk.session.tick(2)
    assert desk.session.learning and len(desk.handed_out) == 1


class Odd(Scribe):
    """Answers as it is told to."""

    def __init__(self, answers: Sequence[Forecast]) -> None:
        super().__init__()
        self._answers = answers

    def answer(self, questions: Sequence[int]) -> list[Forecast]:
        return list(self._answers)


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([], "estimator scribe: 0 answers to 1 questions"),
        ([exactly(1), exactly(1)], "2 answers to 1 questions"),
        ([Forecast(0, 1, 1, 1)], "1 <= p10 <= p50 <= p90"),
        ([Forecast(1, 3, 2, 1)], "1 <= p10 <= p50 <= p90"),
        ([Forecast(1, 1, 1, 0)], "an estimate from 1 s"),
        ([Forecast(1, 1, 1, cast(int, 2.5))], "whole seconds"),
        ([exactly(cast(int, np.float64(7)))], "whole seconds"),
        ([exactly(cast(int, np.int64(7)))], "whole seconds"),
    ],
)
def test_an_estimator_that_breaks_its_contract_is_named(answers: list[Forecast], told: str) -> None:
    desk = Desk(Odd(answers))
    desk.session.submitted(Submitted(1, 0))
    desk.session.ask("job", 1, 0)
    with pytest.raises(BadAnswer, match=told):
        desk.session.flush()
    assert desk.session.open == 0 and not desk.batches
