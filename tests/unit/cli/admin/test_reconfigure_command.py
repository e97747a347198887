"""`esctl reconfigure`: what it shows, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from escli import exits
from escli.admin.esctl import main
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi

CHANGED = pb.ReconfigureReply(
    changed=["node cn[3-4]: added"], needs_restart=["policy.scheduler"], standbys=["c2"]
)
PROBLEM = pb.Problem(what="node cn1", code="conflict", text="job 7 is on it")
REFUSED = pb.ReconfigureReply(problems=[PROBLEM])


def reconfigure(state_dir: Path, reply: pb.ReconfigureReply, *words: str) -> tuple[int, list[bool]]:
    with FakeApi(state_dir / f"s{len(words)}", Reconfigure=lambda _: reply) as api:
        code = main(["--socket", str(api.path), "reconfigure", *words])
        return code, [request.dry_run for request in api.asked("Reconfigure")]


def test_a_line_for_each_change(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reconfigure(state_dir, CHANGED) == (exits.OK, [False])
    assert capsys.readouterr().out.splitlines() == [
        "node cn[3-4]: added",
        "policy.scheduler: needs a restart",
        "standby c2: give its host the same file (esinfo --controllers)",
    ]


def test_a_trial_says_that_it_is_one(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reconfigure(state_dir, CHANGED, "--dry-run") == (exits.OK, [True])
    assert "nothing has changed yet" in capsys.readouterr().err


def test_problems_are_errors(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reconfigure(state_dir, REFUSED)[0] == exits.FAILED
    assert capsys.readouterr() == ("", "esctl: node cn1: job 7 is on it\nesctl: nothing has changed\n")
    assert reconfigure(state_dir, REFUSED, "--json")[0] == exits.FAILED
    assert json.loads(capsys.readouterr().out)["problems"][0]["what"] == "node cn1"


def test_nothing_new_is_said(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reconfigure(state_dir, pb.ReconfigureReply())[0] == exits.OK
    assert capsys.readouterr().out == "nothing has changed\n"


def test_it_takes_no_words(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reconfigure(state_dir, CHANGED, "now") == (exits.USAGE, [])
