"""`eslurm estimate report` against a door with scripted accounting."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from escli import exits
from escli.local.main import main
from eslurm.ports.api import Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi, Refuse
from tests.support.golden import Golden

S = 1_000_000
NOON_US = 1_772_625_600 * S


def attempt(job_id: int, name: str, ran_s: float, **fields: Any) -> pb.AttemptInfo:
    started_us = NOON_US + job_id * 1_000 * S
    return pb.AttemptInfo(
        **{
            "job_id": job_id,
            "user": "ada",
            "name": name,
            "state": "COMPLETED",
            "started_us": started_us,
            "ended_us": started_us + int(ran_s * S),
            "time_limit_s": 86_400,
            "first_estimate_s": 12_000,
            "forecast": pb.Forecast(p10_s=10_000, p50_s=11_000, p90_s=12_000, estimate_s=11_500),
        }
        | fields
    )


def accounting() -> list[pb.AttemptInfo]:
    found = [attempt(number, "sim", 10_000 + 30 * number) for number in range(41)]
    found += [attempt(50 + number, "test\n", 7.2, first_estimate_s=5, forecast=None) for number in range(3)]
    found += [
        attempt(60 + number, "long", 3_600, time_limit_s=3_600, state="TIMEOUT") for number in range(20)
    ]
    # A job that was requeued counts once, one that waits or never ran not at all.
    found += [
        attempt(45, "sim", 99_999, state="NODE_FAIL", attempt=1),
        attempt(45, "sim", 400_000, state="FAILED", attempt=2),
        attempt(80, "sim", 5, started_us=0),
        attempt(81, "sim", 5, ended_us=0),
        attempt(82, "mesh", 5, user="bob"),
    ]
    return found


class Accounting:
    """In pages of ten."""

    def __init__(self, attempts: list[pb.AttemptInfo]) -> None:
        self._attempts = attempts

    def __call__(self, request: pb.AccountingRequest) -> pb.AccountingReply:
        found = [one for one in self._attempts if not request.user or one.user == request.user]
        at = request.page
        more = at + 10 if at + 10 < len(found) else 0
        return pb.AccountingReply(attempts=found[at : at + 10], next_page=more)


def run(state_dir: Path, *words: str, answer: Any = None) -> tuple[int, list[Any]]:
    path = state_dir / "s"
    path.unlink(missing_ok=True)
    with FakeApi(path, Accounting=answer or Accounting(accounting())) as door:
        code = main(["estimate", "report", "--socket", door.path, *words])
        return code, door.asked("Accounting")


def test_of_one_user(state_dir: Path, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    code, asked = run(state_dir, "--user", "ada", "--since", "2026-01-01T00:00")
    assert code == exits.OK
    assert {one.user for one in asked} == {"ada"} and asked[0].since_us > 0
    golden("cli/estimate-report.txt", capsys.readouterr().out)


def test_of_all_as_json(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = run(state_dir, "--all-users", "--json")
    assert code == exits.OK
    found = json.loads(capsys.readouterr().out)
    assert found["jobs"] == 66 and not found["is_cut"]
    assert [(one["user"], one["name"], one["review"]["jobs"]) for one in found["groups"]] == [
        ("ada", "sim", 42),
        ("ada", "long", 20),
        ("ada", "test\n", 3),
        ("bob", "mesh", 1),
    ]
    assert found["groups"][0]["review"]["suggestion"] == {"limit_s": 11_400, "chance": 2 / 42, "jobs": 41}


def test_of_the_caller(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, asked = run(state_dir, "--name", "sim")
    me = pwd.getpwuid(os.getuid()).pw_name
    assert (code, asked[0].user, asked[0].name) == (exits.OK, me, "sim")
    said = capsys.readouterr().out
    assert said.startswith(f"No job of {me} named sim has run and ended since now-30days: see --since")


def test_what_cannot_be(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(state_dir, "--user", "a", "--all-users")[0] == exits.USAGE
    assert "--all-users: cannot go with --user" in capsys.readouterr().err
    assert main(["estimate", "report", "--since", "never"]) == exits.USAGE
    assert "--since: 'never'" in capsys.readouterr().err
    assert main(["estimate", "report", "--socket", str(state_dir / "none")]) == exits.UNREACHABLE
    assert "there is no socket" in capsys.readouterr().err

    def refuse(_request: Any) -> Any:
        raise Refuse(Status.INTERNAL, "the store is away")

    assert run(state_dir, answer=refuse)[0] == exits.FAILED
    assert "the store is away" in capsys.readouterr().err
