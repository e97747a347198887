"""The published framework: its gate follows its record, and its record holds what was estimated before jobs ended."""

from __future__ import annotations

import pytest

from eslurm.core.model.forecast import Submitted
from eslurm.estimator.clustered_svr.estimator import ClusteredSvr, make
from eslurm.estimator.clustered_svr.model import elbow_of, load
from eslurm.estimator.jobs import Ended
from eslurm.ports.estimator import Setting

LIMIT_S = 36_000
BEGAN_S = 90_000
"""All that was learnt at first lies before."""


def job(job_id: int, at_s: int, user: str = "ann", limit_s: int = LIMIT_S) -> Submitted:
    return Submitted(job_id, at_s, user=user, name=user, nodes=len(user), cores=len(user), limit_s=limit_s)


def trained(**settings: Setting) -> ClusteredSvr:
    """Has learnt that jobs of ann run 500 s and those of benjamin 5,000 s, and has judged none of its estimates yet."""
    estimator = make({"k": 2, "retrain_every_s": 200_000, **settings})
    for number in range(60):
        user = ("ann", "benjamin")[number % 2]
        estimator.submitted(job(number, number * 1_440, user))
    for number in range(60):
        estimator.ended(number, BEGAN_S, 5_000 if number % 2 else 500)
    learn(estimator, BEGAN_S)
    return estimator


def learn(estimator: ClusteredSvr, at_s: int) -> None:
    lesson = estimator.lesson(at_s)
    assert lesson is not None
    estimator.adopt(lesson())


def estimate(estimator: ClusteredSvr, one: Submitted) -> int:
    estimator.submitted(one)
    (answer,) = estimator.answer([estimator.ask(one.job_id, one.at_s)])
    return answer.estimate_s


def test_without_a_limit_the_model_is_used_at_once() -> None:
    estimator = trained()
    assert estimator.record.aeas == (0.0, 0.0)
    assert estimate(estimator, job(100, 90_000, limit_s=0)) == pytest.approx(525, abs=15)
    assert estimate(estimator, job(101, 90_000)) == LIMIT_S


def test_the_gate_opens_for_the_cluster_that_was_accurate() -> None:
    estimator = trained()
    held = job(99, 90_000)
    estimator.submitted(held)
    early = estimator.ask(held.job_id, 90_000)
    for number in range(100, 110):
        estimator.submitted(job(number, 90_000))
        estimator.submitted(job(200 + number, 90_000, "benjamin"))
        estimator.ended(number, 90_500, 505)
        estimator.ended(200 + number, 90_600, 600)
    assert sorted(estimator.record.jobs) == [10, 10]
    assert max(estimator.record.aeas) > 0.9 > min(estimator.record.aeas)
    assert estimate(estimator, job(300, 91_000)) == pytest.approx(525, abs=15)
    assert estimate(estimator, job(301, 91_000, "benjamin")) == LIMIT_S
    assert estimator.answer([early])[0].estimate_s == LIMIT_S, "as the record was when it was asked"
    (later,) = estimator.answer([estimator.ask(held.job_id, 91_000)])
    assert later.estimate_s < LIMIT_S


def test_an_open_gate_and_the_slack() -> None:
    plain = estimate(trained(gate=0, alpha=1.0), job(100, 90_000))
    assert plain == pytest.approx(500, abs=15)
    assert estimate(trained(gate=0, alpha=1.2), job(100, 90_000)) == pytest.approx(1.2 * plain, abs=1)


def test_a_new_model_keeps_the_record_of_the_window() -> None:
    estimator = trained(window_jobs=40)
    for number in range(100, 120):
        estimator.submitted(job(number, 120_000))
    for number in range(100, 120):
        estimator.ended(number, 120_600, 500)
    aea = max(estimator.record.aeas)
    assert aea > 0.9
    learn(estimator, 310_000)
    assert sum(estimator.record.jobs) == 20, "the others of the window had no estimate"
    assert max(estimator.record.aeas) == pytest.approx(aea)
    assert estimate(estimator, job(300, 310_000)) == pytest.approx(525, abs=15)


def test_a_job_is_judged_by_the_model_of_its_submission() -> None:
    estimator = trained(gate=0, alpha=1.0, window_jobs=60)
    waiting = job(100, 90_000)
    first = estimate(estimator, waiting)
    for number in range(200, 260):
        estimator.submitted(job(number, 120_000))
        estimator.ended(number, 130_000, 9_000)
    learn(estimator, 310_000)
    assert estimate(estimator, job(300, 310_000)) > 5 * first
    before = dict(zip(estimator.record.aeas, estimator.record.jobs, strict=True))
    estimator.ended(100, 320_000, first)
    after = dict(zip(estimator.record.aeas, estimator.record.jobs, strict=True))
    assert sum(after.values()) == sum(before.values()) + 1
    assert max(after) > max(before), "its estimate was exact, whatever the model says by now"


def test_the_elbow_of_a_window_and_what_is_learnt_by_it() -> None:
    estimator = trained(k="elbow")
    window = [
        Ended(job(number, number, "u" * (1 + number % 4)), 100 * (1 + number % 4)) for number in range(80)
    ]
    curve = elbow_of(window, 10)
    assert curve.ks == list(range(1, 11))
    assert curve.inertias[0] > curve.inertias[-1]
    assert 2 <= curve.k <= 5
    assert estimate(estimator, job(100, 90_000, limit_s=0)) == pytest.approx(525, abs=60)


def test_a_record_that_names_no_cluster_is_refused() -> None:
    estimator = trained()
    for number in range(100, 103):
        estimator.submitted(job(number, 120_000))
        estimator.ended(number, 120_600, 500)
    lesson = estimator.lesson(310_000)
    assert lesson is not None
    model = lesson()
    for name, wrong in (("record_cluster", 7), ("record_s", -1.0)):
        rotten = model.arrays[name].copy()
        rotten.flat[0] = wrong
        with pytest.raises(ValueError, match="damaged"):
            load(model._replace(arrays={**model.arrays, name: rotten}))
