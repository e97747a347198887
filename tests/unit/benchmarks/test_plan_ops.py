"""The benchmark of plan operations: it measures a full plan under rules, and a wrong answer ends it."""

from __future__ import annotations

import io

import pytest

from benchmarks.figures import Figures
from benchmarks.plan import ops, oracle
from benchmarks.plan.workload import POLICIES


@pytest.fixture(scope="module")
def plan() -> ops.Plan:
    return ops.Plan(12, 30, POLICIES)


def test_it_measures_a_machine_in_which_jobs_have_to_wait(plan: ops.Plan) -> None:
    figures = Figures(io.StringIO())
    ops.operations(figures, "ops", plan, 300)
    names = ["ops", "ops_slots", "ops_earlier", "ops_moved_by_rules"]
    assert [figure.name for figure in figures.all] == names
    assert all(figure.value > 1 for figure in figures.all)
    plan.desk.schedule.book.check()


def test_an_operation_leaves_every_job_booked_once(plan: ops.Plan) -> None:
    bookings = plan.desk.schedule.bookings
    assert sorted(bookings) == sorted(job.job_id for jobs in plan.by_size.values() for job in jobs)
    assert all(len(of_job) == 1 for of_job in bookings.values())


def test_an_answer_that_is_not_the_oracles_ends_it(plan: ops.Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    plan.verify(2)
    monkeypatch.setattr(oracle.Dense, "earliest", lambda *_: None)
    with pytest.raises(AssertionError, match="instead of None"):
        plan.verify(1)


def test_the_oracle_knows_the_rules(plan: ops.Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle.Dense, "_bounds", lambda *_: [])
    with pytest.raises(AssertionError, match="instead of"):
        plan.verify(20)
