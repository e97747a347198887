"""`user` and `last-2`: small enough to be checked by hand."""

from __future__ import annotations

import pytest

from eslurm.core.model.forecast import Submitted
from eslurm.estimator.overrun import STEPS_S, corrected
from eslurm.estimator.registry import make
from eslurm.ports.estimator import Estimator, Model


def asked(estimator: Estimator, job_id: int, at_s: int) -> int:
    (forecast,) = estimator.answer([estimator.ask(job_id, at_s)])
    return forecast.estimate_s


def ran(estimator: Estimator, job_id: int, user: str, runtime_s: int) -> None:
    estimator.submitted(Submitted(job_id, 0, user=user, limit_s=10_000))
    estimator.started(job_id, 0)
    estimator.ended(job_id, runtime_s, runtime_s)


def test_the_user_says_the_limit() -> None:
    user = make("user", {"default_s": 70})
    user.submitted(Submitted(1, 0, user="ann", limit_s=600))
    user.submitted(Submitted(2, 0, user="ann"))
    assert (asked(user, 1, 0), asked(user, 2, 0)) == (600, 70)
    user.started(1, 100)
    assert asked(user, 1, 100) == 600
    assert asked(user, 1, 700) == 660, "it runs beyond its limit: a minute more than the limit"


def test_last_two_is_the_mean_of_the_last_two_that_ended() -> None:
    last = make("last-2")
    last.submitted(Submitted(9, 0, user="ann", limit_s=500))
    assert asked(last, 9, 0) == 500, "the first one: the limit"
    ran(last, 1, "ann", 100)
    assert asked(last, 9, 0) == 100
    ran(last, 2, "ann", 201)
    assert asked(last, 9, 0) == 151, "rounded up"
    ran(last, 3, "ann", 401)
    ran(last, 4, "bob", 9_999)
    assert asked(last, 9, 0) == 301
    ran(last, 5, "ann", 2_000)
    assert asked(last, 9, 0) == 500, "never more than the limit"


def test_last_two_counts_no_job_that_never_ran_and_nobody_unknown() -> None:
    last = make("last-2", {"default_s": 77})
    ran(last, 1, "ann", 0)
    ran(last, 2, "", 50)
    last.submitted(Submitted(3, 0, user="ann"))
    last.submitted(Submitted(4, 0))
    assert (asked(last, 3, 0), asked(last, 4, 0)) == (77, 77)


def test_a_job_that_outlives_its_estimate_is_corrected_step_by_step() -> None:
    last = make("last-2")
    ran(last, 1, "ann", 100)
    last.submitted(Submitted(2, 0, user="ann", limit_s=5_000))
    last.started(2, 1_000)
    found = [asked(last, 2, 1_000 + elapsed_s) for elapsed_s in (0, 99, 100, 160, 400, 1_000, 3_700)]
    assert found == [100, 100, 160, 400, 1_000, 1_900, 5_000]
    assert asked(last, 2, 7_000) == 7_300, "beyond the limit"


def test_corrections_exceed_what_has_passed_for_ever() -> None:
    for elapsed_s in (10, 10**6, 10**9):
        assert corrected(10, elapsed_s, 0) > elapsed_s
        assert corrected(10, elapsed_s, 100) > elapsed_s
    assert corrected(10, 10**9, 0) == 10**9 + STEPS_S[-1]


def test_jobs_that_are_not_known_are_passed_over() -> None:
    user = make("user")
    user.started(5, 1)
    user.ended(5, 2, 1)
    assert user.lesson(3) is None
    with pytest.raises(ValueError, match="has no models"):
        user.adopt(Model({}, {}))
