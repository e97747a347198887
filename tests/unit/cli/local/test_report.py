"""`eslurm report`: the distribution of jobs over their cores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from escli import exits
from escli.local.main import main
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi
from tests.support.golden import Golden

HOUR_US = 3_600_000_000
NOW_US = 1_795_866_000_000_000
"""2026-11-28T11:40:00Z."""


def run(
    job_id: int, cpus: int, start_h: int, length_h: int, wait_h: int = 0, **fields: Any
) -> pb.AttemptInfo:
    """A run that began so many hours ago."""
    started_us = NOW_US - start_h * HOUR_US
    one = pb.AttemptInfo(
        job_id=job_id, attempt=1, user="ada", account="physics", partition="main", cpus=cpus, nodes=1, state="COMPLETED",
        submitted_us=started_us - wait_h * HOUR_US, started_us=started_us, ended_us=started_us + length_h * HOUR_US,
    )  # fmt: skip
    one.MergeFrom(pb.AttemptInfo(**fields))
    return one


RUNS = [
    *(run(number, 1, 100, 2, 1, time_limit_s=8 * 3600) for number in range(1, 2001)),
    run(3000, 1024, 700, 19, 210, time_limit_s=24 * 3600),
    # Crosses the beginning of the last 30 days: 10 of its 20 hours are in the report.
    run(3001, 1024, 730, 20, 0, user="bob"),
    # Requeued: one job, two runs, one wait.
    run(3002, 16, 50, 4, 3, state="REQUEUED"),
    run(3002, 16, 40, 8, 13, attempt=2),
]
JOBS = [
    pb.JobInfo(
        job_id=3003, state="RUNNING", user="ada", cpus=64, nodes=1, attempts=1, started_us=NOW_US - 5 * HOUR_US,
        submitted_us=NOW_US - 6 * HOUR_US, partition="short",
    )
]  # fmt: skip


@pytest.fixture
def socket(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("escli.clock.now_us", lambda: NOW_US)
    monkeypatch.setattr("escli.clock.local_offset_s", lambda _: 0)

    def accounting(request: pb.AccountingRequest) -> pb.AccountingReply:
        found = [one for one in RUNS if one.ended_us >= request.since_us]
        at = int(request.page)
        size = min(request.limit, 1500)
        return pb.AccountingReply(
            attempts=found[at : at + size], next_page=at + size if at + size < len(found) else 0
        )

    with FakeApi(
        state_dir / "s", Accounting=accounting, Jobs=lambda _: pb.JobsReply(jobs=JOBS, now_us=NOW_US)
    ) as api:
        yield api.path


def test_table(socket: str, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    said = []
    for words in ((), ("--since", "all", "--top", "1"), ("--user", "bob"), ("--partition", "nosuch")):
        assert main(["report", "--socket", socket, *words]) == exits.OK
        said.append(f"$ eslurm report {' '.join(words)}\n{capsys.readouterr().out}")
    golden("cli/eslurm-report.txt", "\n".join(said))


def test_programs_get_all_rows(socket: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--socket", socket, "--json", "--top", "1"]) == exits.OK
    told = json.loads(capsys.readouterr().out)
    assert told["jobs"] == 2004
    assert [row["cores"] for row in told["rows"]] == [1024, 1, 64, 16]
    assert round(sum(row["core_hours_percent"] for row in told["rows"]), 1) == 100.0
    assert told["rows"][-1]["sum_percent"] == 100.0
    assert told["rows"][3] == {
        "rank": 4, "cores": 16, "jobs": 1, "jobs_percent": 0.05, "core_hours": 192.0, "core_hours_percent": 0.56,
        "sum_percent": 100.0, "run_mean_s": 21600, "run_max_s": 28800, "accuracy_percent": None, "wait_mean_s": 10800,
        "wait_max_s": 10800,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--since", "nosuch"), exits.USAGE, "--since"),
        (
            ("--since", "today", "--until", "2020-01-01"),
            exits.USAGE,
            "--until: 2020-01-01 is not after --since",
        ),
        (("--top", "0"), exits.USAGE, "--top"),
        (("--socket", "/nosuch/s"), exits.UNREACHABLE, "/nosuch/s"),
    ],
)
def test_errors_are_one_line(
    words: tuple[str, ...], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *words]) == code
    told = capsys.readouterr().err
    assert text in told
    assert told.count("\n") == 1
