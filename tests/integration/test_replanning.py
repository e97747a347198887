"""Changes that move the plan: longer running jobs, nodes that go and come back, predecessors; and the plan stays quick."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from eslurm.core.model.units import SECOND_US
from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.integration.test_planning import JOBS_MAX, WHOLE, at, moved, plan, planned_start
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import PATIENCE_S
from tests.kits.submitters import Submitters

ALL = ("-N", "4", "--exclusive")
TASKS = 10_000
WAITING = 2_000
BATCH = 100
ROUNDS = 20
ANSWER_S = 2.0
"""Far above what most answers take beside a replan, far below how long one would take that waits for a long replan."""


@pytest.fixture(scope="module", params=("planned", "conservative"))
def ahead(request: pytest.FixtureRequest) -> Iterator[LiveCluster]:
    with running(nodes=4, policy={"scheduler": f'"{request.param}"'}) as cluster:
        yield cluster


@pytest.fixture
def site(ahead: LiveCluster) -> Iterator[LiveCluster]:
    """The cluster, empty and whole."""
    ahead.empty_work()
    yield ahead
    ahead.clear()
    ahead.hang_up()


def test_who_comes_after_an_extended_job_is_planned_anew(site: LiveCluster) -> None:
    began_s = time.monotonic()
    first = site.user_job("sleep 600", *ALL, "-t", "100")
    site.reaches(first, "RUNNING")
    # Its end was planned from its placement on, which is before its start by what that took.
    placed_us = (time.monotonic() - began_s) * SECOND_US
    second = site.wrap("true", *ALL, "-t", "10")
    third = site.wrap("true", *WHOLE, "-t", "10", "-d", f"afterany:{second}")
    before_us, third_us = planned_start(site, second), planned_start(site, third)
    assert third_us == before_us + 600 * SECOND_US, "right behind the one that it waits for"
    refused = site.run_as_user("esctl", "update", "job", str(first), "time=111")
    assert "10 %" in refused.err
    assert site.run_as_user("esctl", "update", "job", str(first), "time=110").code == 0
    after_us = moved(site, second, before_us)
    assert 0 <= after_us - before_us - 600 * SECOND_US < placed_us
    site.until(
        lambda: plan(site)[third].start_us == plan(site)[second].end_us or None, "the last one goes with it"
    )
    site.do("escancel", str(first))
    assert site.ended(second, third) == ["COMPLETED", "COMPLETED"]


def test_fixed_starts_deadlines_and_begin_times(site: LiveCluster) -> None:
    fixed = site.wrap("true", *ALL, "-t", "1", "--start-at", at(8))
    start_us = planned_start(site, fixed)
    long = site.wrap("true", *WHOLE, "-t", "30")
    later = site.wrap("true", *WHOLE, "-t", "1", "--begin", at(3_600))
    assert planned_start(site, long) >= start_us + 60 * SECOND_US
    assert planned_start(site, later) >= (time.time() + 3_500) * SECOND_US
    assert site.end(site.wrap("true", *WHOLE, "-t", "0:04")) == "COMPLETED", "it fits before"
    late = site.wrap("true", *ALL, "-t", "10", "--deadline", at(630))
    assert site.ended(fixed) == ["COMPLETED"]
    (run,) = site.runs(fixed)
    assert start_us <= run.started_us < start_us + PATIENCE_S * SECOND_US
    assert site.ended(long, late) == ["COMPLETED", "COMPLETED"]
    site.do("escancel", str(later))


def test_dependants_have_planned_starts(site: LiveCluster) -> None:
    first = site.wrap("sleep 600", *ALL, "-t", "10")
    site.reaches(first, "RUNNING")
    second = site.wrap("true", *WHOLE, "-t", "10", "-d", f"afterany:{first}")
    third = site.wrap("true", *WHOLE, "-t", "10", "-d", f"afterok:{second}")
    starts = [planned_start(site, job_id) for job_id in (second, third)]
    assert starts[1] - starts[0] == 600 * SECOND_US
    shown = site.run("esqueue", "--start").out
    assert all(str(job_id) in shown for job_id in (second, third))
    assert "N/A" not in shown
    site.do("escancel", str(first))
    assert site.ended(second, third) == ["COMPLETED", "COMPLETED"]


def test_a_node_that_goes_displaces_and_one_that_comes_back_is_used(site: LiveCluster) -> None:
    first = site.wrap("sleep 600", "-N", "3", "--exclusive", "-t", "20")
    site.reaches(first, "RUNNING")
    long = site.wrap("sleep 600", "-N", "1", "--exclusive", "-t", "40")
    node = site.reaches(long, "RUNNING").node_names
    waiting = site.wrap("true", *WHOLE, "-t", "10")
    all_of_them = site.wrap("true", *ALL, "-t", "10")
    before_us = planned_start(site, all_of_them)
    freed = site.job(first).node_names
    site.do("esctl", "drain", "cn0001", "reason=test")
    site.until(lambda: all_of_them not in plan(site) or None, "nobody can have four nodes")
    assert "not in service" in site.until(lambda: site.job(all_of_them).reason_text, "it is told why")
    site.do("esctl", "resume", "cn0001")
    assert abs(planned_start(site, all_of_them) - before_us) < 60 * SECOND_US, "as it was"
    assert node not in freed
    site.do("escancel", str(first), str(long))
    assert site.ended(waiting, all_of_them) == ["COMPLETED", "COMPLETED"]


def test_an_array_of_ten_thousand_tasks_is_planned_at_once(site: LiveCluster) -> None:
    first = site.wrap("sleep 600", *ALL, "-t", "10")
    site.reaches(first, "RUNNING")
    began_s = time.monotonic()
    array = site.wrap("true", "-n", "1", "-t", "1", "--array", f"1-{TASKS}")
    accepted_s = time.monotonic() - began_s
    site.until(lambda: tasks_of(site, array) == TASKS or None, "every task has a place")
    assert accepted_s < PATIENCE_S / 3
    site.do("escancel", str(array))


def tasks_of(site: LiveCluster, array: int) -> int:
    """Count its tasks with a planned start."""
    jobs = site.call("Plan", pb.PlanRequest(limit=JOBS_MAX)).jobs
    return sum(one.tasks for one in jobs if one.job_id == array and not one.running)


def test_submissions_are_answered_while_thousands_are_planned_anew(site: LiveCluster) -> None:
    first = site.wrap("sleep 600", *ALL, "-t", "600")
    site.reaches(first, "RUNNING")
    job = pb.JobRequest(name="storm", script=b"#!/bin/sh\ntrue\n", work_dir=str(site.work), time_limit_s=60)
    for _ in range(WAITING // BATCH):
        site.call("Submit", pb.SubmitRequest(jobs=[job] * BATCH))
    site.until(lambda: len(plan(site)) >= WAITING or None, "all of them are planned")
    with Submitters(site.socket, site.work, pause_s=0.02) as users:
        for minutes in range(ROUNDS):
            site.do("esctl", "update", "job", str(first), f"time={300 + minutes}")
            site.until(lambda: len(users.took_s) > 4 * minutes + 4, "users get answers")  # noqa: B023
    took_s = sorted(users.took_s)
    assert not users.failures
    # Each replan would make somebody wait; a machine that stands still for a moment does so to a few.
    assert took_s[len(took_s) * 9 // 10] < ANSWER_S, took_s
