"""The slack, the gate and the record module: who is believed, by how accurate a cluster's model has been."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.forecast.accuracy import accuracy
from eslurm.core.forecast.record import Record
from eslurm.core.forecast.trust import ALPHA, OPEN, believes_model, gated, slacked
from eslurm.core.model.forecast import NO_LIMIT

LIMIT_S = 7_200


@pytest.mark.parametrize(
    ("limit_s", "aea", "aea_min", "believed"),
    [
        # E-48: no estimate of the user's, then the model's, however bad.
        (NO_LIMIT, 0.0, 0.90, True),
        (NO_LIMIT, 0.5, 0.90, True),
        (NO_LIMIT, 1.0, 0.90, True),
        # A limit: only above 90 %.
        (LIMIT_S, 0.0, 0.90, False),
        (LIMIT_S, 0.89, 0.90, False),
        (LIMIT_S, 0.90, 0.90, False),
        (LIMIT_S, 0.9000001, 0.90, True),
        (LIMIT_S, 1.0, 0.90, True),
        # Another threshold.
        (LIMIT_S, 0.6, 0.5, True),
        (LIMIT_S, 1.0, 1.0, False),
        # No gate at all, not even before the first job.
        (LIMIT_S, 0.0, OPEN, True),
        (NO_LIMIT, 0.0, OPEN, True),
    ],
)
def test_who_is_believed(limit_s: int, aea: float, aea_min: float, believed: bool) -> None:
    assert believes_model(limit_s, aea, aea_min) is believed
    assert gated(600.0, limit_s, aea, aea_min) == (600.0 if believed else LIMIT_S)


def test_the_published_threshold_and_slack_are_the_defaults() -> None:
    assert not believes_model(LIMIT_S, 0.90)
    assert believes_model(LIMIT_S, 0.91)
    assert ALPHA == 1.05
    assert slacked(1_000.0) == pytest.approx(1_050.0)
    assert slacked(1_000.0, 1.02) == pytest.approx(1_020.0)


def test_a_record_is_updated_at_each_completion() -> None:
    record = Record(2)
    assert record.aeas == (0.0, 0.0)
    before = record.aeas
    record.add(1, 50.0, 100.0)
    record.add(1, 100.0, 100.0)
    assert record.aeas == (0.0, 0.75)
    assert record.jobs == (0, 2)
    assert before == (0.0, 0.0), "whoever holds a record sees it as it was"


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.floats(1, 1e6), st.floats(1, 1e6)),
        max_size=40,
    )
)
def test_many_at_once_are_as_one_by_one(ended: list[tuple[int, float, float]]) -> None:
    at_once, singly = Record(4), Record(4)
    at_once.add_all(ended)
    for one in ended:
        singly.add(*one)
    assert at_once.aeas == singly.aeas
    for cluster in range(4):
        own = [accuracy(estimate_s, runtime_s) for where, estimate_s, runtime_s in ended if where == cluster]
        assert singly.aeas[cluster] == pytest.approx(sum(own) / len(own) if own else 0.0)
