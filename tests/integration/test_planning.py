"""Reservations, limits and pools of a live cluster decide when jobs start, and planned starts follow what changes."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from eslurm.core.model.units import SECOND_US
from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster

JOBS_MAX = 10_000
HOUR_US = 3_600 * SECOND_US
WHOLE = ("-N", "1", "--exclusive")


@pytest.fixture(scope="module")
def planned() -> Iterator[LiveCluster]:
    with running(nodes=4, policy={"scheduler": '"planned"'}) as cluster:
        yield cluster


@pytest.fixture
def site(planned: LiveCluster) -> Iterator[LiveCluster]:
    """The cluster without jobs and rules."""
    planned.empty_work()
    yield planned
    planned.clear()
    for kind in ("reservation", "limit", "pool"):
        shown = json.loads(planned.run("esctl", "--json", kind, "show").out)["policies"]
        for policy in shown:
            planned.do("esctl", kind, "delete", policy["name"])
    planned.hang_up()


def at(seconds: float) -> str:
    """A moment so far from now, as people write it (the site's zone is UTC)."""
    moment = datetime.datetime.fromtimestamp(time.time() + seconds, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S")


def plan(site: LiveCluster) -> dict[int, Any]:
    """The plan by job, without the running jobs."""
    return {
        one.job_id: one for one in site.call("Plan", pb.PlanRequest(limit=JOBS_MAX)).jobs if not one.running
    }


def planned_start(site: LiveCluster, job_id: int) -> int:
    """Wait until the job has a planned start; it."""
    found = site.until(lambda: plan(site).get(job_id), f"job {job_id} has a planned start")
    return int(found.start_us)


def moved(site: LiveCluster, job_id: int, before_us: int) -> int:
    """Wait until the job's planned start is another one; it."""

    def look() -> int | None:
        found = plan(site).get(job_id)
        return int(found.start_us) if found is not None and found.start_us != before_us else None

    return site.until(look, f"job {job_id} is planned anew")


def told(site: LiveCluster, job_id: int, words: str) -> str:
    """Wait until the job's reason says so; all of it."""

    def look() -> str | None:
        text = str(site.job(job_id).reason_text)
        return text if words in text else None

    return site.until(look, f"job {job_id} is told {words!r}, not {site.job(job_id).reason_text!r}")


def started(site: LiveCluster, job_id: int) -> Any:
    """The plan's entry of the job while it runs."""
    jobs = site.call("Plan", pb.PlanRequest()).jobs
    return next((one for one in jobs if one.running and one.job_id == job_id), None)


def reserve(site: LiveCluster, name: str, *words: str) -> None:
    site.do("esctl", "reservation", "add", name, *words)


# ---- reservations ----


def test_a_job_inside_a_reservation_starts_with_it_and_outsiders_stay_out(site: LiveCluster) -> None:
    # In time for all that has to be seen before, even where the machine stands still for a while.
    reserve(site, "course", "nodes=cn[0001-0003]", f"start={at(12)}", "duration=2h", "users=root")
    inside = site.wrap("sleep 600", "-N", "3", "--exclusive", "-t", "30", "--reservation", "course")
    assert planned_start(site, inside) > time.time() * SECOND_US
    long = [site.wrap("sleep 600", *WHOLE, "-t", "30") for _ in range(2)]
    assert site.reaches(long[0], "RUNNING").node_names == "cn0004"
    assert site.job(inside).state == "PENDING"
    # It ends before the reservation begins.
    assert site.only_run(site.wrap("true", *WHOLE, "-t", "0:02")).state == "COMPLETED"
    found = site.reaches(inside, "RUNNING")
    assert found.node_names == "cn[0001-0003]"
    start_us = json.loads(site.run("esctl", "--json", "reservation", "show", "course").out)["policies"][0]
    assert start_us["state"] == "active"
    assert site.job(long[1]).state == "PENDING"


def test_a_deleted_reservation_is_free_at_once(site: LiveCluster) -> None:
    reserve(site, "away", "nodes=4", f"start={at(600)}", "duration=2h", "users=root")
    job = site.wrap("true", *WHOLE, "-t", "30")
    told(site, job, "reservation away")
    site.do("esctl", "reservation", "delete", "away")
    # Nobody waits here as long as the reservation is away.
    assert site.end(job) == "COMPLETED"


def test_maintenance_drains_in_time_and_nobody_runs_in_it(site: LiveCluster) -> None:
    running_now = site.wrap("sleep 600", *WHOLE, "-t", "1")
    site.reaches(running_now, "RUNNING")
    reserve(site, "repair", "nodes=4", f"start={at(90)}", "duration=1h", "maintenance=yes")
    job = site.wrap("true", *WHOLE, "-t", "30")
    told(site, job, "reservation repair (maintenance)")
    assert planned_start(site, job) >= (time.time() + 3_600) * SECOND_US
    assert site.end(site.wrap("true", *WHOLE, "-t", "1")) == "COMPLETED", "it is over before"
    ran = site.run("essubmit", "--reservation", "repair", "--wrap", "true")
    assert ran.code != 0 or "maintenance" in told(site, int(ran.out.split()[-1]), "maintenance")


def test_a_recurring_reservation_closes_nodes_each_time(site: LiveCluster) -> None:
    reserve(site, "nightly", "nodes=4", "validity=cron(0 * * * *)+50m", "users=root")
    job = site.wrap("true", "-N", "1", "-t", "20")
    told(site, job, "reservation nightly")
    inside = site.wrap("sleep 600", "-N", "1", "-t", "49", "--reservation", "nightly")
    began = site.until(lambda: plan(site).get(inside) or started(site, inside), "it starts now or later")
    assert began.start_us % HOUR_US <= 60 * SECOND_US, "so long only from the full hour on"


# ---- limits and pools ----


def test_a_limit_of_items_makes_jobs_wait_and_tells_so(site: LiveCluster) -> None:
    site.do("esctl", "limit", "add", "eight", "user=root", "resource=cores", "items=8")
    jobs = [site.wrap("sleep 600", *WHOLE, "-t", "30") for _ in range(3)]
    site.reaches(jobs[1], "RUNNING")
    assert "limit eight" in told(site, jobs[2], "limit eight")
    assert planned_start(site, jobs[2]) > (time.time() + 1_000) * SECOND_US
    site.do("escancel", str(jobs[0]))
    site.reaches(jobs[2], "RUNNING")


def test_a_longer_job_is_refused_by_a_duration_and_a_changed_limit_lets_jobs_go(site: LiveCluster) -> None:
    site.do("esctl", "limit", "add", "short", "user=root", "resource=cores", "items=4", "duration=1h")
    refused = site.run("essubmit", "-t", "2:00:00", "--wrap", "true")
    assert refused.code != 0 and "short" in refused.err
    first, second = (site.wrap("sleep 600", *WHOLE, "-t", "30") for _ in range(2))
    told(site, second, "limit short")
    site.reaches(first, "RUNNING")
    site.do("esctl", "limit", "modify", "short", "items=8")
    site.reaches(second, "RUNNING")


def test_a_limit_that_holds_at_times_moves_the_job(site: LiveCluster) -> None:
    # Every hour but the next: what a job may have now it may not have then.
    hours = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=h) for h in range(2))
    cron = f"cron(* {','.join(str(one.hour) for one in hours)} * * *)"
    site.do("esctl", "limit", "add", "later", "user=root", "resource=cores", "items=4", f"validity={cron}")
    job = site.wrap("true", "-N", "2", "--exclusive", "-t", "10")
    told(site, job, "limit later")
    start_us = planned_start(site, job)
    assert start_us % HOUR_US == 0, "as soon as the limit does not hold"
    assert 0 < start_us - time.time() * SECOND_US < 2 * HOUR_US


def test_a_pool_keeps_cores_free(site: LiveCluster) -> None:
    site.do("esctl", "pool", "add", "small", "resource=cores", "items=4", "access=time<10m")
    jobs = [site.wrap("sleep 600", *WHOLE, "-t", "30") for _ in range(4)]
    site.reaches(jobs[2], "RUNNING")
    told(site, jobs[3], "pool small")
    assert site.end(site.wrap("true", *WHOLE, "-t", "5")) == "COMPLETED", "it is let in"
    site.do("esctl", "pool", "delete", "small")
    site.reaches(jobs[3], "RUNNING")
