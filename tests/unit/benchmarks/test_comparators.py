"""The comparators of the benchmark: each learns what repeats, none sees a later job, Tobit sees through limits."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.estimator import comparators
from benchmarks.estimator.comparators import METHODS, Tobit, make, names, paths
from eslurm.core.model.forecast import NO_LIMIT, Submitted
from eslurm.estimator.registry import UnknownEstimator
from eslurm.lab.studies.evaluate import replay
from eslurm.lab.studies.scores import accuracies, estimates_of, runtimes_of
from eslurm.lab.studies.workload import LoggedJob
from tests.kits.estimator import jobs, record, synthetic

each = pytest.mark.parametrize("name", METHODS)
HOUR_S = 3_600


@pytest.fixture(autouse=True)
def small_forests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparators, "TREES", 8)


def repeating(count: int) -> tuple[LoggedJob, ...]:
    """Four users, each with a program, a size and a run time; their limits are 10 h."""
    habits = [(1, 300), (8, 2_000), (16, 9_000), (2, 60)]
    return jobs(
        *(
            record(
                number + 1,
                number * 600,
                habits[number % 4][1] + number % 5,
                requested_s=10 * HOUR_S,
                user=number % 4,
                program=number % 4,
                requested=habits[number % 4][0],
            )
            for number in range(count)
        )
    )


@each
def test_a_workload_that_repeats_is_learnt(name: str) -> None:
    log = repeating(240)
    found = replay(log, make(name))
    assert found.spent.lessons > 1
    exact = accuracies(estimates_of(found.at_submission), runtimes_of(log))[200:]
    # A straight line through four kinds of jobs meets none of them exactly.
    assert exact.mean() > (0.6 if name == "trip" else 0.85)


@each
def test_no_later_job_changes_an_earlier_prediction(name: str) -> None:
    log = jobs(*synthetic(100))
    whole = replay(log, make(name))
    assert whole.spent.lessons > 1
    assert replay(log[:80], make(name), batch_max=5).at_submission == whole.at_submission[:80]
    for job, forecast in zip(log, whole.at_submission, strict=True):
        limit_s = job.submitted.limit_s
        assert 1 <= forecast.p10_s <= forecast.p50_s <= forecast.p90_s
        assert limit_s == NO_LIMIT or forecast.p90_s <= limit_s


@each
def test_before_the_first_model_the_limit_is_the_estimate(name: str) -> None:
    estimator = make(name)
    estimator.submitted(Submitted(1, 0, limit_s=500))
    estimator.submitted(Submitted(2, 0))
    found = estimator.answer([estimator.ask(1, 0), estimator.ask(2, 0)])
    assert [one.estimate_s for one in found] == [500, HOUR_S]


def test_names_are_those_of_the_product_and_the_comparators() -> None:
    assert {"history", "clustered-svr:gate=0", *METHODS} <= set(names())
    assert [make(name).name for name in names()] == [name.partition(":")[0] for name in names()]
    with pytest.raises(UnknownEstimator, match="'oracle' is unknown"):
        make("oracle")


def test_tobit_without_cut_runs_is_least_squares() -> None:
    random_numbers = np.random.default_rng(3)
    rows = random_numbers.normal(size=(400, 3))
    targets = 3 + rows @ [1.0, -2.0, 0.5] + 0.1 * random_numbers.normal(size=400)
    found = Tobit().fit(rows, targets, np.zeros(400, dtype=bool))
    expected, *_ = np.linalg.lstsq(np.column_stack([rows, np.ones(400)]), targets, rcond=None)
    assert np.allclose(found.line, expected, atol=5e-3)


def test_tobit_sees_through_limits() -> None:
    random_numbers = np.random.default_rng(4)
    rows = random_numbers.normal(size=(600, 2))
    truth = 5 + 2 * rows[:, 0] - rows[:, 1] + 0.5 * random_numbers.normal(size=600)
    seen, cut = np.minimum(truth, 6.0), truth >= 6.0
    assert 0.2 < cut.mean() < 0.5
    blind = Tobit().fit(rows, seen, np.zeros(600, dtype=bool))
    found = Tobit().fit(rows, seen, cut)
    assert np.allclose(found.line, [2, -1, 5], atol=0.15)
    assert found.noise == pytest.approx(0.5, abs=0.06)
    error = [float(np.abs(line.predict(rows) - truth).mean()) for line in (found, blind)]
    assert error[0] < 0.6 * error[1]


def test_paths_are_alike_by_their_leading_parts() -> None:
    first, second, third, stranger = (
        paths(Submitted(1, 0, user=user, command=path))
        for user, path in (
            ("ann", "/home/ann/run7/go.sh"),
            ("ann", "/home/ann/run8/go.sh"),
            ("ann", "/home/ann/other/go.sh"),
            ("ben", "/home/ann/run7/go.sh"),
        )
    )
    assert first == second
    assert [one == other for one, other in zip(first, third, strict=True)] == [True, True, True, False, False]
    assert not set(first) & set(stranger)
    assert paths(Submitted(1, 0, user="ann", name="17")) != paths(Submitted(1, 0, user="ann", name="18"))
