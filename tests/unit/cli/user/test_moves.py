"""`esctl move-starts` and `esctl extend`: what is asked, and the answer before and after."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from escli import clock, exits
from escli.admin import esctl
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi

NOON_US = 1_893_499_200_000_000
HALF_HOUR_US = 1_800_000_000


def moved(request: Any) -> pb.MovePackReply:
    """The pack of job 17 in which 18 and 19 are to come: half an hour is free."""
    earlier_us = 0 if request.earlier_s == 7 else HALF_HOUR_US
    text = "job 18 finds no room before" if not earlier_us else "1800 s earlier"
    reply = pb.MovePackReply(pack_id=17, earlier_us=earlier_us, text=text, open=request.earlier_s == 9)
    for index, before_us in ((1, NOON_US), (2, NOON_US + HALF_HOUR_US)):
        reply.starts.add(
            job_id=17 + index, pack_index=index, before_us=before_us, after_us=before_us - earlier_us
        )
    return reply


def extended(request: Any) -> pb.ExtendJobReply:
    after_s = 3600 if request.by_s == 7 else 5400
    text = "another job is planned on its nodes" if request.by_s == 7 else "time limit 5400 s"
    until_us = NOON_US + (after_s - 3600) * 1_000_000
    return pb.ExtendJobReply(
        job_id=17, before_s=3600, after_s=after_s, until_before_us=NOON_US, until_after_us=until_us, text=text
    )


@pytest.fixture
def door(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    with FakeApi(state_dir / "s", MovePack=moved, ExtendJob=extended) as one:
        monkeypatch.setenv("ESLURM_SOCKET", str(state_dir / "s"))
        monkeypatch.delenv("ESLURM_JOB_ID", raising=False)
        monkeypatch.delenv("SLURM_JOB_ID", raising=False)
        monkeypatch.setattr(clock, "now_us", lambda: NOON_US - 2 * HALF_HOUR_US)
        monkeypatch.setattr(clock, "local_offset_s", lambda _utc_s: 0)
        yield one


def test_starts_are_moved_and_said_before_and_after(
    door: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert esctl.main(["move-starts", "17", "--earlier-by", "0:30:00"]) == exits.OK
    (asked,) = door.asked("MovePack")
    assert asked == pb.MovePackRequest(job=pb.JobRef(job_id=17), earlier_s=1800)
    assert capsys.readouterr().out.splitlines() == [
        "pack 17: 1800 s earlier",
        "job 18: 2030-01-01T12:00:00 -> 2030-01-01T11:30:00",
        "job 19: 2030-01-01T12:30:00 -> 2030-01-01T12:00:00",
    ]


@pytest.mark.parametrize(
    ("words", "request_"),
    [
        ("move-starts JobId=17", pb.MovePackRequest(job=pb.JobRef(job_id=17))),
        (
            "move-starts 17 --to now+10minutes --dry-run",
            pb.MovePackRequest(
                job=pb.JobRef(job_id=17), to_us=NOON_US - 2 * HALF_HOUR_US + 600_000_000, dry_run=True
            ),
        ),
        ("move-starts 17 --earlier-by 90", pb.MovePackRequest(job=pb.JobRef(job_id=17), earlier_s=90)),
        ("extend 17_3 --by 1-00:00:00", pb.ExtendJobRequest(job=pb.JobRef(job_id=17, task=3), by_s=86_400)),
        (
            "extend 17 --to 2:00:00 --dry-run",
            pb.ExtendJobRequest(job=pb.JobRef(job_id=17), to_s=7200, dry_run=True),
        ),
    ],
)
def test_what_is_asked(words: str, request_: Any, door: FakeApi) -> None:
    assert esctl.main(words.split()) == exits.OK
    assert [request for _, request in door.requests] == [request_]


def test_within_a_job_no_id_is_needed(door: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    assert esctl.main(["move-starts"]) == exits.USAGE
    monkeypatch.setenv("ESLURM_JOB_ID", "23")
    assert esctl.main(["move-starts"]) == exits.OK
    assert esctl.main(["extend", "--by", "60"]) == exits.OK
    assert [request.job.job_id for _, request in door.requests] == [23, 23]


def test_more_time_is_said_before_and_after(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert esctl.main(["extend", "17", "--by", "1800"]) == exits.OK
    assert capsys.readouterr().out.splitlines() == [
        "job 17: time limit 5400 s",
        "time limit 1:00:00 -> 1:30:00, until 2030-01-01T12:30:00",
    ]
    assert esctl.main(["extend", "17", "--by", "1800", "--json"]) == exits.OK
    assert json.loads(capsys.readouterr().out)["after_s"] == 5400


def test_what_was_not_changed_ends_with_a_failure(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert esctl.main(["move-starts", "17", "--earlier-by", "7"]) == exits.FAILED
    assert capsys.readouterr().out.splitlines() == [
        "pack 17: not changed: job 18 finds no room before",
        "job 18: 2030-01-01T12:00:00",
        "job 19: 2030-01-01T12:30:00",
    ]
    assert esctl.main(["extend", "17", "--by", "7"]) == exits.FAILED
    assert "not changed: another job is planned on its nodes" in capsys.readouterr().out
    assert esctl.main(["move-starts", "17", "--earlier-by", "9"]) == exits.OK
    assert "not decided yet" in capsys.readouterr().out
    assert esctl.main(["move-starts", "17", "--earlier-by", "8", "--dry-run"]) == exits.OK
    assert "pack 17: would be 1800 s earlier" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("move-starts 17 --earlier-by 5 --to noon", "goes with no --to: give one of them"),
        ("move-starts 17 --earlier-by soon", "is no length of time"),
        ("move-starts 17 --earlier-by 0", "is no length of time"),
        ("move-starts 17_[1,2]", "names several tasks"),
        ("move-starts 17 18", "'18'"),
        ("extend 17", "needs a time: use e.g. esctl extend 17 --by 0:30:00"),
        ("extend 17 --by 5 --to 9", "give one of them"),
    ],
)
def test_what_makes_no_sense_is_refused(
    words: str, says: str, door: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert esctl.main(words.split()) == exits.USAGE
    assert says in capsys.readouterr().err
    assert not door.requests
