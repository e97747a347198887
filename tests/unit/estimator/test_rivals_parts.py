"""What the rivals are made of: features without a look ahead, regressions as arrays next to their libraries, clusters."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import BayesianRidge
from sklearn.svm import SVR

from eslurm.core.model.forecast import Submitted
from eslurm.estimator.rivals.features import Encoder, Scale, feature_names
from eslurm.estimator.rivals.jobs import Ended
from eslurm.estimator.rivals.kmeans import bend, elbow, k_means, nearest
from eslurm.estimator.rivals.linear import Linear, bayesian_ridge, tobit
from eslurm.estimator.rivals.prep import places
from eslurm.estimator.rivals.trees import SEED, Trees
from eslurm.estimator.rivals.vectors import Vectors
from eslurm.estimator.rivals.windows import Window
from tests.support.profiles import draws


def drawn(count: int, width: int, seed: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and targets that hang on them."""
    random_numbers = np.random.default_rng(seed)
    rows = random_numbers.normal(size=(count, width))
    targets = 3 + rows[:, 0] - 2 * rows[:, 1] + np.sin(rows[:, -1]) + 0.1 * random_numbers.normal(size=count)
    return rows, targets


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
    raw = rows[1:] * encoder.dump()["spread"] + encoder.dump()["middle"]
    changed = changed_rows[1:] * changed_encoder.dump()["spread"] + changed_encoder.dump()["middle"]
    assert np.allclose(raw, changed), "the last runtime is in no row"
    assert rows.shape == (count, len(feature_names(limits)))


def test_strangers_lie_in_the_middle() -> None:
    encoder, _ = Encoder.learn(ended(50), limits=True)
    row = encoder.rows([Submitted(1, 0, user="nobody", name="nothing")])[0]
    assert row[[0, 1, 5]].tolist() == [0.0, 0.0, 0.0]
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


def test_trees_walk_as_the_library_does() -> None:
    rows, targets = drawn(300, 4)
    forest = RandomForestRegressor(12, min_samples_leaf=3, max_features=0.5, random_state=SEED, n_jobs=1)
    expected = forest.fit(rows, targets).predict(rows)
    trees = Trees.learn(rows, targets, trees=12, leaf_jobs=3)
    assert np.allclose(trees.predict(rows), expected, rtol=1e-12)
    assert np.array_equal(Trees.load(trees.dump(), 4).predict(rows), trees.predict(rows))
    assert len(trees.predict(rows[:0])) == 0


def test_trees_that_lead_nowhere_are_refused() -> None:
    arrays = Trees.learn(*drawn(60, 3), trees=2).dump()
    inner = int(np.flatnonzero(arrays["left"] != np.arange(len(arrays["left"])))[1])
    for side, child in (("left", inner - 1), ("right", inner), ("left", -1), ("right", 10**6)):
        wrong = arrays[side].copy()
        wrong[inner] = child
        with pytest.raises(ValueError, match="damaged"):
            Trees.load({**arrays, side: wrong}, 3)
    with pytest.raises(ValueError, match="damaged"):
        Trees.load({**arrays, "roots": arrays["roots"][:0]}, 3)
    with pytest.raises(ValueError, match="damaged: feature"):
        Trees.load(arrays, 1)


def test_vectors_predict_as_the_library_does() -> None:
    rows, targets = drawn(300, 4)
    vectors = Vectors.learn(rows, targets)
    standard = (targets - targets.mean()) / targets.std()
    expected = SVR(kernel="rbf", C=1.0, epsilon=0.1, gamma="scale").fit(rows, standard).predict(rows)
    assert np.allclose(vectors.predict(rows), expected * targets.std() + targets.mean(), rtol=1e-9)
    assert np.array_equal(Vectors.load(vectors.dump(), 4).predict(rows), vectors.predict(rows))


def test_the_ridge_is_that_of_the_library() -> None:
    rows, targets = drawn(300, 4)
    expected = BayesianRidge().fit(rows, targets)
    found = bayesian_ridge(rows, targets)
    assert np.allclose(found.coefficients, expected.coef_, rtol=1e-3)
    assert np.allclose(found.predict(rows), expected.predict(rows), rtol=1e-3, atol=1e-3)
    assert found.spread == pytest.approx(1 / np.sqrt(expected.alpha_), rel=1e-2)


def test_tobit_without_censoring_is_least_squares() -> None:
    rows, targets = drawn(400, 3)
    found = tobit(rows, targets, np.zeros(400, dtype=bool))
    design = np.column_stack([rows, np.ones(400)])
    expected, *_ = np.linalg.lstsq(design, targets, rcond=None)
    assert np.allclose([*found.coefficients, found.intercept], expected, atol=5e-3)
    assert found.spread == pytest.approx(float((targets - design @ expected).std()), rel=1e-2)


def test_tobit_sees_through_censoring() -> None:
    random_numbers = np.random.default_rng(4)
    rows = random_numbers.normal(size=(600, 2))
    truth = 5 + 2 * rows[:, 0] - rows[:, 1] + 0.5 * random_numbers.normal(size=600)
    limit = np.full(600, 6.0)
    seen, censored = np.minimum(truth, limit), truth >= limit
    assert 0.2 < censored.mean() < 0.5
    blind = tobit(rows, seen, np.zeros(600, dtype=bool))
    found = tobit(rows, seen, censored)
    assert np.allclose([*found.coefficients, found.intercept], [2, -1, 5], atol=0.15)
    assert found.spread == pytest.approx(0.5, abs=0.06)
    error = [float(np.abs(line.predict(rows) - truth).mean()) for line in (found, blind)]
    assert error[0] < 0.6 * error[1]


@settings(max_examples=draws(40), deadline=None)
@given(st.integers(1, 40), st.integers(0, 10**6), st.floats(0, 1), st.booleans())
def test_tobit_always_ends_with_a_line(count: int, seed: int, share: float, exact: bool) -> None:
    random_numbers = np.random.default_rng(seed)
    rows = random_numbers.normal(size=(count, 3)).round(1)
    targets = rows[:, 0] if exact else random_numbers.normal(size=count)
    found = tobit(rows, targets, random_numbers.random(count) < share)
    assert np.isfinite(found.predict(rows)).all()
    assert 0 <= found.spread < 1e6


def test_a_line_with_a_spread_below_zero_is_refused() -> None:
    arrays = Linear(np.zeros(2), 1.0, 1.0).dump()
    with pytest.raises(ValueError, match="damaged"):
        Linear.load({**arrays, "scalars": np.array([1.0, -1.0])}, 2)


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


def test_paths_are_alike_by_their_leading_parts() -> None:
    first, second, third, stranger = (
        places(Submitted(1, 0, user=user, command=path))
        for user, path in (
            ("ann", "/home/ann/run7/go.sh"),
            ("ann", "/home/ann/run8/go.sh"),
            ("ann", "/home/ann/other/go.sh"),
            ("ben", "/home/ann/run7/go.sh"),
        )
    )
    assert first == second
    shared = sum(one == other for one, other in zip(first, third, strict=True))
    assert shared == 3, "the user, /home, /home/ann"
    assert not set(first) & set(stranger)
    assert places(Submitted(1, 0, user="ann", name="17")) != places(Submitted(1, 0, user="ann", name="18"))
    assert len(places(Submitted(1, 0))) == 1
    assert len(places(Submitted(1, 0, command="/x" * 5_000))) < 40


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
