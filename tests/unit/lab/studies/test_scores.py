"""Figures of predictions, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.forecast.accuracy import Tally
from eslurm.core.model.forecast import Forecast
from eslurm.lab.studies.scores import accuracies, frontier, scaled, score
from tests.kits.estimator import jobs, record

SECONDS = st.integers(1, 10**6)


def test_figures_by_hand() -> None:
    log = jobs(record(1, 0, 100), record(2, 0, 200, requested=3), record(3, 0, 50), record(4, 0, 10))
    forecasts = [
        Forecast(50, 90, 120, 100),
        Forecast(10, 90, 199, 100),
        Forecast(50, 60, 70, 100),
        Forecast(11, 12, 13, 20),
    ]
    found = score(log, forecasts, 0.25)
    assert found.jobs == 4
    assert found.aea == pytest.approx((1 + 0.5 + 0.5 + 0.5) / 4)
    assert found.under == 0.25, "an exact estimate is no underestimate"
    assert found.mae_s == (0 + 100 + 50 + 10) / 4
    assert found.coverage == 0.5
    assert found.area_aea == pytest.approx((100 + 0.5 * 600 + 0.5 * 50 + 0.5 * 10) / 760)
    assert found.scaled.factor == 1.0 and found.scaled.under == 0.25


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=60))
def test_they_agree_with_a_running_mean(pairs: list[tuple[int, int]]) -> None:
    tally = Tally()
    for estimate_s, runtime_s in pairs:
        tally.add(estimate_s, runtime_s)
    log = jobs(*[record(number, 0, runtime_s) for number, (_, runtime_s) in enumerate(pairs)])
    found = score(log, [Forecast(1, 1, 1, estimate_s) for estimate_s, _ in pairs], 0.1)
    assert found.aea == pytest.approx(tally.aea)
    assert found.under == pytest.approx(tally.under)
    assert found.mae_s == pytest.approx(tally.mae_s)


@given(
    st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=60),
    st.floats(0.01, 0.99),
)
def test_no_smaller_factor_keeps_the_target(pairs: list[tuple[int, int]], target: float) -> None:
    estimates, runtimes = (np.array(column, dtype=np.float64) for column in zip(*pairs, strict=True))
    found = scaled(estimates, runtimes, target)
    ratios = runtimes / estimates
    assert found.under == (ratios > found.factor).mean() <= target + 1e-9
    smaller = ratios[ratios < found.factor]
    if len(smaller):
        assert (ratios > smaller.max()).mean() > target - 1e-9
    assert found.aea == pytest.approx(accuracies(estimates * found.factor, runtimes).mean())


def test_a_frontier_goes_from_few_underestimates_to_many() -> None:
    log = jobs(*[record(number, 0, 10 + number * 7 % 100) for number in range(200)])
    curve = frontier(log, [Forecast(50, 50, 50, 50)] * 200)
    assert [one.under for one in curve] == sorted(one.under for one in curve)
    assert [one.factor for one in curve] == sorted((one.factor for one in curve), reverse=True)
