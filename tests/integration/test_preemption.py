"""Running jobs make room for others: told with their grace, requeued, ended or stopped, and nobody else gets the nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster

SECTIONS = """
[[partition]]
name = "scavenge"
preempt_mode = "cancel"

[[partition]]
name = "urgent"
tier = 10
"""
ALL = ("-N", "2", "--exclusive")
GRACE_S = 4
FOR_GOOD = "trap 'echo term >> said; exit 0' TERM; echo > up; while :; do sleep 0.05; done"
"""Listens to its signal once `up` is there."""


@pytest.fixture(scope="module", params=("easy", "planned"))
def busy(request: pytest.FixtureRequest) -> Iterator[LiveCluster]:
    with running(nodes=2, policy={"scheduler": f'"{request.param}"'}, sections=SECTIONS) as cluster:
        for qos, grace in (("low", str(GRACE_S)), ("still", "-1"), ("gone", "0")):
            mode = {"low": "requeue", "still": "suspend", "gone": "cancel"}[qos]
            cluster.do("esctl", "qos", "add", qos, f"preempt_mode={mode}", *grace_of(grace))
        cluster.do("esctl", "qos", "add", "high", "preempts=low,still,gone")
        yield cluster


def grace_of(seconds: str) -> tuple[str, ...]:
    return () if seconds == "-1" else (f"preempt_grace={seconds}s",)


@pytest.fixture
def site(busy: LiveCluster) -> Iterator[LiveCluster]:
    busy.empty_work()
    yield busy
    busy.clear()
    busy.hang_up()


def started(site: LiveCluster, job_id: int, attempt: int = 1) -> int:
    """The attempt's start in accounting."""
    (run,) = [run for run in site.runs(job_id) if run.attempt == attempt]
    return int(run.started_us)


def test_a_requeued_victim_ends_by_its_signal_and_runs_again(site: LiveCluster) -> None:
    low = site.wrap(FOR_GOOD, *ALL, "--qos", "low", "-t", "60", "--requeue")
    site.reaches(low, "RUNNING")
    site.wait_lines("up")
    # It was there first, fits on what comes free, and waits all the same.
    other = site.wrap("true", "-N", "1", "--exclusive", "-t", "60", "--qos", "low")
    high = site.wrap("sleep 0.5", *ALL, "--qos", "high", "-t", "60")
    assert site.end(high) == "COMPLETED"
    assert site.lines("said") == ["term"], "it was asked to end, and did"
    site.reaches(low, "RUNNING")
    site.do("escancel", str(low))
    assert site.end(other) == "COMPLETED"
    assert started(site, other) >= site.only_run(high).ended_us
    assert site.end(low) == "CANCELLED"
    first, second = site.runs(low)
    assert f"to make room for job {high}" in first.exit_text
    assert second.started_us >= site.only_run(high).ended_us


def test_who_waits_is_told_who_makes_room(site: LiveCluster) -> None:
    deaf = "trap '' TERM; echo > up; while :; do sleep 0.05; done"
    low = site.wrap(deaf, *ALL, "--qos", "low", "-t", "60")
    site.reaches(low, "RUNNING")
    site.wait_lines("up")
    began_s = time.monotonic()
    high = site.wrap("true", *ALL, "--qos", "high", "-t", "60")
    told = site.until(
        lambda: text if "makes room" in (text := site.job(high).reason_text) else None, "it is told"
    )
    assert told.startswith(f"job {low} makes room for it")
    assert site.end(high) == "COMPLETED"
    assert time.monotonic() - began_s >= GRACE_S, "the victim has its grace"


def test_a_victim_that_is_ended(site: LiveCluster) -> None:
    gone = site.wrap("sleep 600", *ALL, "--qos", "gone", "-t", "60")
    site.reaches(gone, "RUNNING")
    high = site.wrap("true", "-N", "1", "--qos", "high", "-t", "60")
    assert site.end(high) == "COMPLETED"
    assert site.job(gone).state == "PREEMPTED"
    assert f"to make room for job {high}" in site.job(gone).exit_text


def test_a_victim_that_stands_still_and_goes_on(site: LiveCluster) -> None:
    still = site.wrap(FOR_GOOD, "-N", "2", "-n", "8", "--qos", "still", "-t", "60", "--mem", "100M")
    site.reaches(still, "RUNNING")
    gated = "until test -e gate; do sleep 0.05; done"
    high = site.wrap(gated, "-n", "4", "-N", "1", "--qos", "high", "-t", "60", "--mem", "100M")
    site.reaches(high, "RUNNING")
    assert site.job(still).state == "SUSPENDED"
    (site.work / "gate").touch()
    assert site.end(high) == "COMPLETED"
    site.reaches(still, "RUNNING")


def test_by_the_tier_of_the_partition(site: LiveCluster) -> None:
    victim = site.wrap("sleep 600", *ALL, "-p", "scavenge", "-t", "60")
    site.reaches(victim, "RUNNING")
    ordinary = site.wrap("true", "-N", "1", "--exclusive", "-t", "60")
    # A promise to another one outside its reach stays: the job has to end before that.
    urgent = site.wrap("true", *ALL, "-p", "urgent", "-t", "10")
    assert site.ended(urgent, ordinary) == ["COMPLETED", "COMPLETED"]
    assert site.job(victim).state == "PREEMPTED"
    assert started(site, ordinary) >= started(site, urgent)
