"""Packs as commands show them: a line for the pack and one for each job, and the place of a job in its pack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from escli import exits
from escli.admin import esctl
from escli.user import esacct, esqueue
from escli.user.pack_table import state_of
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi
from tests.support.golden import Golden

S = 1_000_000
NOON_US = 1_772_625_600 * S  # 2026-03-04T12:00:00 UTC


pytestmark = pytest.mark.usefixtures("utc")


def member(job_id: int, state: str, pack: tuple[int, int, int], **fields: Any) -> pb.JobInfo:
    pack_id, index, size = pack
    values: dict[str, Any] = {
        "name": "coupled",
        "user": "ada",
        "partition": "main",
        "nodes": 4,
        "priority": 100,
        **({"reason": "Resources"} if state == "PENDING" else {"node_names": "cn[1-4]"}),
        **fields,
    }
    return pb.JobInfo(job_id=job_id, state=state, pack_id=pack_id, pack_index=index, pack_size=size, **values)


WAITING = [
    member(
        18,
        "PENDING",
        (17, 1, 3),
        delay_s=1800,
        reason="PackNotBegun",
        planned_start_us=NOON_US + 5400 * S,
        partition="booster",
    ),
    member(17, "PENDING", (17, 0, 3), planned_start_us=NOON_US + 3600 * S),
    member(19, "PENDING", (17, 2, 3), delay_s=90_000, reason="PackNotBegun", name="plot", nodes=1),
]
BEGUN = [
    member(11, "RUNNING", (11, 0, 2), started_us=NOON_US, pack_start_us=NOON_US),
    member(12, "PENDING", (11, 1, 2), delay_s=60, pack_start_us=NOON_US, planned_start_us=NOON_US + 60 * S),
]
ENDED = [
    member(5, "COMPLETED", (5, 0, 2), started_us=NOON_US - 60 * S, pack_start_us=NOON_US - 60 * S),
    member(6, "FAILED", (5, 1, 2), started_us=NOON_US - 60 * S, pack_start_us=NOON_US - 60 * S),
]
PLAIN = pb.JobInfo(job_id=30, state="RUNNING", name="one", user="ada", partition="main")
ALL = pb.JobsReply(jobs=[PLAIN, *BEGUN, *WAITING, *ENDED], now_us=NOON_US)


def shown(
    state_dir: Path, capsys: pytest.CaptureFixture[str], command: Any, line: str
) -> tuple[str, list[Any]]:
    with FakeApi(state_dir / "s", Jobs=lambda _request: ALL) as door:
        assert command.main(["--socket", door.path, *line.split()]) == exits.OK
        return capsys.readouterr().out, door.asked("Jobs")


def test_a_pack_has_a_line_and_its_jobs_stand_below(
    state_dir: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    text, _ = shown(state_dir, capsys, esqueue, "--packs")
    golden("cli/esqueue-packs.txt", text)


@pytest.mark.parametrize("ref", ["17", "18", "19"])
def test_any_job_names_its_pack(ref: str, state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, (request,) = shown(state_dir, capsys, esqueue, f"--packs -h -j {ref}")
    assert [line.split()[0] for line in text.splitlines()] == ["17", "17", "18", "19"]
    assert not request.jobs and request.finished_too, "the others are found in the answer"


def test_packs_as_json(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, _ = shown(state_dir, capsys, esqueue, "--packs --json")
    packs = json.loads(text)["packs"]
    assert [(one["pack_id"], one["size"], one["state"]) for one in packs] == [
        (17, 3, "PENDING"),
        (5, 2, "FAILED"),
        (11, 2, "RUNNING"),
    ]
    assert [one["start_us"] for one in packs] == [NOON_US + 3600 * S, NOON_US - 60 * S, NOON_US]
    assert [job["delay_s"] for job in packs[0]["jobs"]] == [0, 1800, 90_000]


def test_the_columns_of_a_job_in_a_pack(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, _ = shown(state_dir, capsys, esqueue, "-h -o %i,%H,%d")
    assert {"30,(null),N/A", "11,11[0],+00:00:00", "18,17[1],+00:30:00"} <= set(text.splitlines())


def test_the_state_of_a_pack() -> None:
    assert [state_of(sorted(pack, key=lambda info: info.pack_index)) for pack in (WAITING, BEGUN, ENDED)] == [
        "PENDING",
        "RUNNING",
        "FAILED",
    ]
    assert state_of([member(5, "COMPLETED", (5, 0, 1), pack_start_us=1)]) == "COMPLETED"


def test_a_job_is_shown_with_its_place(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeApi(state_dir / "s", Jobs=lambda _request: pb.JobsReply(jobs=[BEGUN[1]])) as door:
        assert esctl.main(["--socket", door.path, "show", "job", "12"]) == exits.OK
    assert (
        "   PackId=11 PackIndex=1 PackSize=2 Delay=00:01:00 PackStart=2026-03-04T12:00:00\n"
        in capsys.readouterr().out
    )


def test_runs_of_packs(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        pb.AttemptInfo(job_id=12, attempt=1, state="COMPLETED", pack_id=11, pack_index=1),
        pb.AttemptInfo(job_id=30, attempt=1, state="COMPLETED"),
        pb.AttemptInfo(job_id=11, attempt=1, state="COMPLETED", pack_id=11),
        pb.AttemptInfo(job_id=6, attempt=1, state="FAILED", pack_id=5, pack_index=1),
    ]
    answers = {
        "Accounting": lambda _request: pb.AccountingReply(attempts=runs),
        "Jobs": lambda _request: ALL,
    }
    with FakeApi(state_dir / "s", **answers) as door:
        assert (
            esacct.main(["--socket", door.path, "-h", "-P", "-o", "jobid,pack", "--packs", "-j", "11"])
            == exits.OK
        )
        (request,) = door.asked("Accounting")
        assert capsys.readouterr().out.split() == ["6|5[1]", "11|11[0]", "12|11[1]"]
        assert [ref.job_id for ref in request.jobs] == [11, 12], "a pack means all its jobs"
        assert esacct.main(["--socket", door.path, "-h", "-P", "--packs", "-S", "now-2days"]) == exits.OK
        assert capsys.readouterr().out.splitlines()[0].startswith("5[1]|6|")
