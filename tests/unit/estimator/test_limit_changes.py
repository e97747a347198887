"""A running job's new time limit: estimators go by it from then on, and learn from what was asked for."""

from __future__ import annotations

from typing import Any

import pytest

from eslurm.core.model.forecast import Forecast, Submitted
from eslurm.estimator import registry
from eslurm.estimator.history import make as history
from eslurm.estimator.session import Session
from eslurm.ports.estimator import HeedsLimits, Model
from tests.kits.estimator import Scribe

HOUR_S = 3_600


def asked(estimator: Any, job_id: int, at_s: int) -> Forecast:
    (forecast,) = estimator.answer([estimator.ask(job_id, at_s)])
    assert isinstance(forecast, Forecast)
    return forecast


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_every_built_in_estimator_goes_by_the_limit_as_it_is(name: str) -> None:
    estimator = registry.make(name)
    assert isinstance(estimator, HeedsLimits)
    estimator.submitted(Submitted(1, 0, user="ann", limit_s=HOUR_S))
    estimator.started(1, 0)
    before = asked(estimator, 1, 10).estimate_s
    estimator.limit_changed(1, 20, 10 * HOUR_S)
    assert asked(estimator, 1, 20).estimate_s == 10 * before
    estimator.limit_changed(1, 30, HOUR_S // 2)
    assert asked(estimator, 1, 30).estimate_s == before // 2
    estimator.limit_changed(1, 40, 0)
    assert asked(estimator, 1, 40).estimate_s > 40
    # It is forgotten with the job, or when the job comes again; of others nothing is known.
    estimator.limit_changed(7, 40, 5)
    estimator.ended(1, 50, 0)
    estimator.submitted(Submitted(1, 60, user="ann", limit_s=HOUR_S))
    assert asked(estimator, 1, 60).estimate_s == before


def test_what_is_learnt_is_what_was_asked_for() -> None:
    lessons: list[Model] = []
    for extended in (False, True):
        estimator = registry.make("clustered-svr", {"limits": True})
        assert isinstance(estimator, HeedsLimits)
        for number in range(1, 41):
            at_s = 1_000 * number
            estimator.submitted(Submitted(number, at_s, user="ann", cores=number % 3, limit_s=HOUR_S))
            estimator.started(number, at_s)
            if extended:
                estimator.limit_changed(number, at_s + 5, 7 * HOUR_S)
            estimator.ended(number, at_s + 100 + number, 100 + number)
        lesson = estimator.lesson(10**6)
        assert lesson is not None
        lessons.append(lesson())
    same, other = lessons
    assert {key: array.tolist() for key, array in same.arrays.items()} == {
        key: array.tolist() for key, array in other.arrays.items()
    }


def test_history_does_not_learn_from_a_job_that_was_given_another_limit() -> None:
    """Its questions hold the limit of its row, and that is no longer the one that it asked for."""
    estimator = history({})
    for number in range(1, 161):
        estimator.submitted(Submitted(number, 1_000 * number, user="ann", limit_s=HOUR_S))
        estimator.started(number, 1_000 * number)
        if number % 2:
            estimator.limit_changed(number, 1_000 * number, 2 * HOUR_S)
        estimator.ended(number, 1_000 * number + 100, 100)
    lesson = estimator.lesson(10**6)
    assert lesson is not None
    assert lesson().facts["window_jobs"] == 80


class Heeding(Scribe):
    def limit_changed(self, job_id: int, at_s: int, limit_s: int) -> None:
        self.told.append(("limit", job_id, at_s, limit_s))


def test_a_session_answers_what_was_asked_under_the_old_limit_first() -> None:
    for scribe in (Heeding(), Scribe()):
        delivered: list[Any] = []
        session: Session[str] = Session(scribe, delivered.append)
        session.submitted(Submitted(1, 0))
        session.started(1, 0)
        session.ask("before", 1, 5)
        session.limit_changed(1, 9, 500)
        assert len(delivered) == 1
        heard = [one[0] for one in scribe.told]
        assert heard == [
            "submitted",
            "started",
            "asked",
            "answered",
            *["limit"] * isinstance(scribe, Heeding),
        ]
