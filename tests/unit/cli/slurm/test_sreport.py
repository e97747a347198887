"""`sreport` on drawn and given runs: sums inside of the report's times, byte for byte, and next to a naive model."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from eslurm.compat.slurm.report import window
from eslurm.v1 import controller_pb2 as pb
from tests.support.golden import Golden
from tests.unit.cli.slurm.conftest import Answers, Say

NOW_US = 1_795_866_000_000_000
"""2026-11-28T11:40:00Z."""
HOUR_US = 3_600_000_000
MIDNIGHT_US = NOW_US - 11 * HOUR_US - 40 * 60_000_000


def attempt(
    job_id: int, start_h: float, end_h: float, user: str = "root", account: str = "", **fields: Any
) -> pb.AttemptInfo:
    """A run between two hours of yesterday."""
    one = pb.AttemptInfo(
        job_id=job_id, attempt=1, user=user, account=account, partition="main", cpus=4, nodes=1, state="COMPLETED",
        submitted_us=yesterday(start_h - 1), started_us=yesterday(start_h), ended_us=yesterday(end_h),
    )  # fmt: skip
    one.MergeFrom(pb.AttemptInfo(**fields))
    return one


def yesterday(hours: float) -> int:
    return MIDNIGHT_US - 24 * HOUR_US + int(hours * HOUR_US)


ATTEMPTS = [
    attempt(1, 1, 3, "daemon", "physics"),
    attempt(2, -5, 2, "root", "lasers", cpus=64, nodes=2),
    attempt(3, 22, 30, "root", "physics", cpus=2000, nodes=50),
    # Twice, as its first attempt was requeued.
    attempt(4, 3, 4, "bin", "chemistry", state="REQUEUED"),
    attempt(4, 5, 6, "bin", "chemistry", attempt=2),
    # Stood still for half of its time.
    attempt(5, 10, 12, "bin", paused_us=HOUR_US),
    # Had 4 cores, then 8.
    attempt(6, 14, 16, "nosuch", "physics", cpus=8, segments=[
        pb.SegmentInfo(from_us=yesterday(14), until_us=yesterday(15), cpus=4, nodes=1),
        pb.SegmentInfo(from_us=yesterday(15), until_us=yesterday(16), cpus=8, nodes=2),
    ]),
    # Never began, and outside.
    attempt(7, 20, 21, started_us=0),
    attempt(8, -9, 0),
    attempt(9, 24, 25),
]  # fmt: skip
ATTEMPTS[7].started_us = 0
JOBS = [
    pb.JobInfo(job_id=10, state="RUNNING", user="root", account="chemistry", cpus=16, nodes=1, attempts=1,
               started_us=yesterday(23)),
    pb.JobInfo(job_id=4, state="COMPLETING", user="bin", account="chemistry", cpus=4, attempts=2,
               started_us=yesterday(5)),
    pb.JobInfo(job_id=11, state="PENDING", user="root", cpus=16),
]  # fmt: skip


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    monkeypatch.setattr("escli.clock.now_us", lambda: NOW_US)

    def accounting(request: pb.AccountingRequest) -> pb.AccountingReply:
        # A page is short.
        found = [
            one
            for one in ATTEMPTS
            if one.ended_us >= request.since_us and one.submitted_us < request.until_us
        ]
        at = int(request.page)
        return pb.AccountingReply(attempts=found[at : at + 4], next_page=at + 4 if at + 4 < len(found) else 0)

    def policies(request: pb.PoliciesRequest) -> pb.PoliciesReply:
        assert request.kind == "account"
        parents = {"science": "", "physics": "science", "lasers": "physics", "chemistry": ""}
        return pb.PoliciesReply(
            policies=[
                pb.PolicyInfo(kind="account", name=name, json=f'{{"parent": "{up}"}}')
                for name, up in parents.items()
            ]
        )

    cores = [pb.NodeInfo(name=f"cn{number}", cores=64) for number in range(40)]
    return {
        "Accounting": accounting,
        "Policies": policies,
        "Jobs": lambda _: pb.JobsReply(jobs=JOBS, now_us=NOW_US),
        "Nodes": lambda _: pb.NodesReply(
            nodes=[*cores, pb.NodeInfo(name="login1", cores=8, flags=["LOGIN"])]
        ),
        "Ping": lambda _: pb.PingReply(cluster="alpha"),
    }


LINES = (
    "sreport cluster utilization",
    "sreport -t percent cluster Utilization start=2026-11-28 end=2026-11-28T06:00",
    "sreport -t hourper cluster util -n",
    "sreport cluster AccountUtilizationByUser",
    "sreport -P -t seconds cluster accountutilizationbyuser tree format=account,login,used%30",
    "sreport -nP -t hours -T cpu,node cluster AccountUtilizationByUser accounts=science",
    "sreport -nP -t hours cluster accountutilizationbyuser users=root",
    "sreport cluster UserUtilizationByAccount -t hours",
    "sreport user topusage topcount=2 -t hours",
    "sreport -nP user top group -t hours",
    "sreport -nP -s name user top accounts=chemistry -t seconds",
    "sreport job sizesbyaccount -t hours",
    "sreport -nP job sizesbyaccount flatview -t hours grouping=10,100",
    "sreport -p job sizesbyaccount AcctAsParent printjobcount grouping=individual",
    "sreport -nP job sizes accounts=physics,chemistry users=root -t secper",
    "sreport -nP job sizes partitions=nosuch",
    "sreport cluster AccountUtilizationByQOS",
    "sreport reservation utilization",
    "sreport cluster nosuch",
    "sreport",
    "sreport cluster utilization nosuch=3",
    "sreport cluster utilization format=nosuch",
    "sreport cluster utilization start=nosuch",
    "sreport -T mem cluster utilization",
    "sreport -T node cluster utilization",
    "sreport -t fortnights cluster utilization",
    "sreport -s size user top",
    "sreport user top topcount=0",
    "sreport job sizes grouping=9,3",
    "sreport --federation cluster utilization",
)


def test_reports(say: Say, golden: Golden) -> None:
    golden("slurm/sreport.txt", "\n".join(say(line) for line in LINES))


@pytest.mark.parametrize(
    ("now", "start", "end", "expected"),
    [
        ("2026-11-28T11:40:30", "", "", ("2026-11-27T00:00:00", "2026-11-28T00:00:00")),
        ("2026-03-29T11:40:00", "", "", ("2026-03-28T00:00:00", "2026-03-29T00:00:00")),
        ("2026-03-30T11:40:00", "", "", ("2026-03-29T00:00:00", "2026-03-30T00:00:00")),
        ("2026-10-26T00:30:00", "", "", ("2026-10-25T00:00:00", "2026-10-26T00:00:00")),
        ("2026-11-28T11:40:30", "2026-11-01T12:30", "2026-11-02T12:31", ("2026-11-01T12:00:00", "2026-11-02T13:00:00")),
        ("2026-11-28T11:40:30", "2026-11-28T00:00", "2027-01-01T00:00", ("2026-11-28T00:00:00", "2026-11-28T12:00:00")),
        ("2026-11-28T11:40:30", "2026-11-28T10:00", "2026-11-28T09:00", ("2026-11-28T10:00:00", "2026-11-28T11:00:00")),
    ],
)  # fmt: skip
def test_times_of_a_report(now: str, start: str, end: str, expected: tuple[str, str]) -> None:
    """Whole hours and days, as clocks in Berlin show them, where some days have 23 or 25 hours."""
    zone = ZoneInfo("Europe/Berlin")

    def us(text: str) -> int:
        return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()) * 1_000_000

    def offset_s(at_s: int) -> int:
        offset = datetime.fromtimestamp(at_s, zone).utcoffset()
        assert offset is not None
        return int(offset.total_seconds())

    found = window(us(start) if start else None, us(end) if end else None, us(now), offset_s)
    assert (
        tuple(datetime.fromtimestamp(at_s, zone).strftime("%Y-%m-%dT%H:%M:%S") for at_s in found) == expected
    )
