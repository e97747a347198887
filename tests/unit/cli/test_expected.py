"""An estimator's forecasts in commands: how long a job will run, and between when and when it may start."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from escli import exits
from escli.admin.show import job_block
from escli.user import esqueue, essubmit, eswhy
from escli.user.queue_columns import expected_s
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi

S = 1_000_000
HOUR = 3600 * S
NOON_US = 1_772_625_600 * S  # 2026-03-04T12:00:00 UTC
FORECAST = pb.Forecast(p10_s=600, p50_s=1200, p90_s=9000, estimate_s=1500)


pytestmark = pytest.mark.usefixtures("utc")


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch, state_dir: Path) -> Iterator[FakeApi]:
    with FakeApi(state_dir / "esctld.sock") as door:
        monkeypatch.setenv("ESLURM_SOCKET", str(door.path))
        yield door


def job(job_id: int, limit_s: int = 7200, **fields: object) -> pb.JobInfo:
    return pb.JobInfo(
        job_id=job_id, name="fluid", user="ada", partition="main", time_limit_s=limit_s, nodes=1, **fields
    )


def test_what_is_expected_is_never_longer_than_the_limit() -> None:
    assert expected_s(job(1)) == 0
    assert expected_s(job(1, forecast=FORECAST)) == 1500
    assert expected_s(job(1, 900, forecast=FORECAST)) == 900
    assert expected_s(job(1, 0, forecast=FORECAST)) == 1500


def test_expected_lengths_in_the_queue(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [
        job(1, state="RUNNING", started_us=NOON_US, forecast=FORECAST),
        job(2, state="PENDING", reason="priority"),
    ]
    door.answers["Jobs"] = lambda _: pb.JobsReply(jobs=jobs, now_us=NOON_US)
    assert esqueue.main(["-h", "-o", "%i %X"]) == exits.OK
    assert capsys.readouterr().out == "2 N/A\n1 25:00\n"
    assert esqueue.main(["--json"]) == exits.OK
    shown = json.loads(capsys.readouterr().out)["jobs"]
    assert shown[0]["forecast"] == {"p10_s": 600, "p50_s": 1200, "p90_s": 9000, "estimate_s": 1500}
    assert shown[1]["forecast"] is None
    assert "TimeLimit=2:00:00 ExpectedTime=25:00" in job_block(jobs[0], NOON_US)
    assert "ExpectedTime" not in job_block(jobs[1], NOON_US)


def test_planned_starts_between_two_times(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [job(number, state="PENDING", reason="resources") for number in (1, 2)]
    door.answers["Jobs"] = lambda _: pb.JobsReply(jobs=jobs, now_us=NOON_US)
    planned = [
        pb.PlannedJob(
            job_id=1,
            start_us=NOON_US + HOUR,
            nodes="cn1",
            start_earliest_us=NOON_US + HOUR // 2,
            start_latest_us=NOON_US + 13 * HOUR,
        ),
        pb.PlannedJob(job_id=2, start_us=NOON_US + 2 * HOUR, nodes="cn1"),
    ]
    door.answers["Plan"] = lambda _: pb.PlanReply(jobs=planned)
    assert esqueue.main(["--start"]) == exits.OK
    head, first, second = capsys.readouterr().out.splitlines()
    assert "START_TIME          START_BETWEEN" in head
    assert "2026-03-04T13:00:00 12:30:00 - 2026-03-05T01:00:00" in first
    assert "2026-03-04T14:00:00 N/A " in second
    assert esqueue.main(["--start", "-h", "-o", "%w"]) == exits.OK
    assert capsys.readouterr().out.splitlines()[0] == "12:30:00 - 2026-03-05T01:00:00"


def test_why_tells_the_interval_and_what_is_expected(
    door: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    start_us = NOON_US + 3 * HOUR
    reply = pb.WhyReply(
        job=job(17, state="PENDING", forecast=FORECAST, planned_start_us=start_us),
        planned_start_us=start_us,
        planned_nodes="cn1",
        start_earliest_us=NOON_US + 2 * HOUR,
        start_latest_us=start_us + 2 * HOUR,
        now_us=NOON_US,
    )
    door.answers["Why"] = lambda _: reply
    assert eswhy.main(["17"]) == exits.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == (
        "Planned start: 15:00:00 today (in 3 h) on cn1, between 14:00:00 today and 17:00:00 today "
        "by what jobs before it are expected to run"
    )
    assert lines[3] == (
        "Expected to run 25 min, as 8 of 10 such jobs between 10 min and 2 h; its limit is 2 h"
    )
    reply.start_earliest_us = NOON_US
    reply.job.time_limit_s = 0
    assert eswhy.main(["17"]) == exits.OK
    lines = capsys.readouterr().out.splitlines()
    assert ", between now and 17:00:00 today by what" in lines[2]
    assert lines[3].endswith("between 10 min and 2 h 30 min")


def test_a_job_that_is_only_asked_about(
    door: FakeApi, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("escli.clock.now_us", lambda: NOON_US)
    reply = pb.SubmitReply(
        test_answer="would be accepted and wait",
        test_start_us=NOON_US + HOUR,
        test_earliest_us=NOON_US,
        test_latest_us=NOON_US + 2 * HOUR,
    )
    door.answers["Submit"] = lambda _: reply
    assert essubmit.main(["--test-only", "--wrap", "true"]) == exits.OK
    assert capsys.readouterr().out == (
        "essubmit: would be accepted and wait (planned start 2026-03-04T13:00:00), "
        "between now and 14:00:00 today by what jobs before it are expected to run\n"
    )
    assert essubmit.main(["--test-only", "--json", "--wrap", "true"]) == exits.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["earliest_us"], found["latest_us"]) == (NOON_US, NOON_US + 2 * HOUR)
