"""The parts of `clustered-svr`: features without a look ahead, regressions as arrays beside scikit-learn's, clusters."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import SVR

from eslurm.core.model.forecast import Submitted
from eslurm.estimator.clustered_svr.clusters import bend, elbow, k_means, nearest
from eslurm.estimator.clustered_svr.features import Encoder, Scale, feature_names
from eslurm.estimator.clustered_svr.model import Regression
from eslurm.estimator.jobs import Ended
from eslurm.estimator.window import Window


def ended(count: int, seed: int = 1) -> list[Ended]:
    draw = random.Random(seed)
    return [
        Ended(
            Submitted(
                number,
                draw.randrange(10**6),
                user=draw.choice(("a", "b", "")),
                name=draw.choice(("x", "")),
                nodes=draw.randrange(9),
                cores=draw.randrange(99),
                limit_s=draw.choice((0, 60, 3_600)),
            ),
            draw.randrange(1, 9_999),
        )
        for number in range(count)
    ]


@settings(max_examples=20)
@given(st.integers(2, 60), st.booleans(), st.integers(1, 10**6))
def test_a_row_learnt_from_does_not_know_its_own_runtime(count: int, limits: bool, other_s: int) -> None:
    jobs = ended(count)
    encoder, rows = Encoder.learn(jobs, limits=limits)
    changed_encoder, changed_rows = Encoder.learn([*jobs[:-1], Ended(jobs[-1].job, other_s)], limits=limits)
    raw = rows[1:] * encoder.spread + encoder.middle
    changed = changed_rows[1:] * changed_encoder.spread + changed_encoder.middle
    assert np.allclose(raw, changed), "the last runtime is in no row"
    assert rows.shape == (count, len(feature_names(limits)))


def test_unknown_names_have_the_mean_and_so_have_limits_that_were_not_given() -> None:
    jobs = ended(50)
    encoder, _ = Encoder.learn(jobs, limits=True)
    row = encoder.rows([Submitted(1, 0, user="stranger", name="nothing")])[0]
    raw = row * encoder.spread + encoder.middle
    assert raw[:2] == pytest.approx(np.log([one.runtime_s for one in jobs]).mean())
    assert row[5] == 0.0
    assert encoder.rows([]).shape == (0, 6)


def test_negative_sizes_are_none() -> None:
    encoder, _ = Encoder.learn(ended(50), limits=False)
    odd, none = encoder.rows([Submitted(1, 0, nodes=-3, cores=-1), Submitted(2, 0)])
    assert odd.tolist() == none.tolist()


def test_what_is_extrapolated_stays_within_what_a_plan_can_hold() -> None:
    for scale in Scale:
        seconds = scale.seconds(np.array([-1e9, 0.0, 1e9, 1e300]))
        assert seconds.min() >= 1
        assert seconds.max() <= 10 * 366 * 86_400


def test_a_regression_predicts_as_the_library_does() -> None:
    random_numbers = np.random.default_rng(2)
    rows = random_numbers.normal(size=(300, 4))
    targets = 3 + rows[:, 0] - 2 * rows[:, 1] + np.sin(rows[:, -1])
    found = Regression.fit(rows, targets, cost=1.0, epsilon=0.1)
    standard = (targets - targets.mean()) / targets.std()
    expected = SVR(kernel="rbf", C=1.0, epsilon=0.1, gamma="scale").fit(rows, standard).predict(rows)
    assert np.allclose(found.predict(rows), expected * targets.std() + targets.mean(), rtol=1e-9)
    assert len(found.predict(rows[:0])) == 0


def test_a_regression_of_one_job_or_of_equal_ones_is_a_constant() -> None:
    for rows in (np.ones((1, 3)), np.ones((9, 3)), np.arange(12.0).reshape(4, 3)):
        found = Regression.fit(rows, np.full(len(rows), 7.5), cost=1.0, epsilon=0.1)
        assert np.allclose(found.predict(rows * 3), 7.5)


def heaps(count: int, each: int, seed: int = 3) -> np.ndarray:
    """So many heaps of rows, far apart."""
    random_numbers = np.random.default_rng(seed)
    middles = 20.0 * np.array([[number % 4, number // 4, number % 3] for number in range(count)])
    return np.concatenate([middle + random_numbers.normal(size=(each, 3)) for middle in middles])


def test_clusters_are_the_heaps_there_are() -> None:
    rows = heaps(6, 30)
    found = k_means(rows, 6)
    own = nearest(rows, found.centres).reshape(6, 30)
    assert all(len(set(heap)) == 1 for heap in own.tolist())
    assert len(set(own[:, 0].tolist())) == 6
    assert found.inertia == pytest.approx(float(((rows - found.centres[own.ravel()]) ** 2).sum()))
    assert np.array_equal(k_means(rows, 6).centres, found.centres), "the same rows, the same centres"


def test_the_elbow_is_at_the_number_of_heaps() -> None:
    found = elbow(heaps(6, 30), 20)
    assert found.k == 6
    assert found.ks == list(range(1, 21))
    assert len(found.inertias) == 20


def test_clusters_of_next_to_nothing() -> None:
    same = np.ones((10, 2))
    assert len(k_means(same, 5).centres) == 1
    assert elbow(same).k == 1
    assert elbow(same[:1]).ks == [1]
    assert len(k_means(np.array([[0.0], [1.0], [1.0]]), 3).centres) == 2
    assert bend([5.0, 5.0, 5.0]) == 0
    assert bend([9.0, 1.0]) == 0
    assert bend([9.0, 1.0, 0.5, 0.0]) == 1


def test_a_window_forgets_and_waits() -> None:
    window: Window[int] = Window(jobs=30, every_s=100)
    for number in range(29):
        window.add(number)
    assert window.take(0) is None, "too few"
    for number in range(29, 50):
        window.add(number)
    assert window.take(7) == tuple(range(20, 50))
    window.add(50)
    assert window.take(106) is None
    assert window.take(107) == tuple(range(21, 51))
    assert window.take(10**6) is None, "nothing new"
