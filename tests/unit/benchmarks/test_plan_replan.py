"""Whole cycles as measured: everything is planned again, an arrival is planned once, every task has a place."""

from __future__ import annotations

import io

import pytest

from benchmarks.figures import Figures
from benchmarks.plan import memory, ops, replan, submitting
from benchmarks.plan.workload import LARGE_CORES, large, views


def test_a_replan_gives_every_job_a_place_again_and_the_same() -> None:
    site = replan.Site(views(200, LARGE_CORES), LARGE_CORES, list(large(150)))
    assert site.cycle() > 0
    before = dict(site.schedule.bookings)
    assert len(before) == 150
    site.forget_plans()
    assert not site.schedule.bookings
    site.cycle()
    assert site.schedule.bookings == before
    site.change_policies()
    site.cycle()
    assert site.schedule.bookings == before
    site.schedule.book.check()


def test_the_figures_of_whole_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = Figures(io.StringIO())
    replan.replan(figures, 200, 100, quick=True)
    monkeypatch.setitem(ops.MACHINES, "plan_ops_616", (12, 80))
    monkeypatch.setattr(replan, "ARRAY_TASKS", 300)
    replan.array(figures, quick=True)
    assert [figure.name for figure in figures.all] == [
        "plan_first_10k_s",
        "replan_10k_s",
        "other_limits_10k_s",
        "replan_10k_slots",
        "plan_one_ms",
        "plan_one_cycle_ms",
        "array_10k_s",
    ]


def test_memory_is_measured_with_every_job_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "NODES", 40)
    held = memory.hold(120)
    assert (held.jobs, held.planned) == (120, 120)
    assert held.rss_mb > 1


def test_the_jobs_that_are_planned_while_others_are_submitted() -> None:
    calls = list(submitting.calls("/tmp"))
    jobs = [job for call in calls for job in call.jobs]
    assert len(jobs) == submitting.PENDING
    assert max(job.components[0].nodes_min for job in jobs) == 64
    assert len({job.name for job in jobs}) == len(jobs)
