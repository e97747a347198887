"""`esctl doctor`: a stable table, the worst first, and an exit code that says how bad it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from escli import exits
from escli.admin import esctl
from eslurm.ports.api import Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi, Refuse
from tests.support.golden import Golden

CHECKS = ["records", "allocations", "nodes", "log", "store"]
WARNING = pb.Finding(
    check="nodes",
    severity="warning",
    what="2 nodes cn[0001-0002]",
    text="UNREACHABLE for up to 90 s (missed 2 heartbeats), 1 job is kept there",
    advice="see whether host, network and esnoded run",
)
ERRORS = [
    pb.Finding(check="store", severity="error", what="job 7", text="its row differs", advice="keep a copy"),
    pb.Finding(
        check="allocations",
        severity="error",
        what="node cn0003",
        text="allocated twice: jobs 7, 8 hold (8, 0), the node has (4, 1000)",
        advice="drain the node and cancel one of jobs 7, 8",
    ),
    pb.Finding(
        check="log", severity="error", what="log", text="revision 12 is missing", advice="keep a copy"
    ),
]


def doctor(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, findings: Sequence[pb.Finding], *words: str
) -> int:
    reply = pb.DoctorReply(findings=findings, checks=CHECKS, revision=99)
    path = state_dir / f"s{len(list(state_dir.iterdir()))}"
    with FakeApi(path, Doctor=lambda _: reply) as fake:
        monkeypatch.setenv("ESLURM_SOCKET", fake.path)
        return esctl.main(["doctor", *words])


@pytest.mark.parametrize(
    ("findings", "code"), [([], 0), ([WARNING], 1), ([ERRORS[0]], 2), ([WARNING, *ERRORS], 2)]
)
def test_the_exit_code_says_how_bad_it_is(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, findings: list[pb.Finding], code: int
) -> None:
    assert doctor(state_dir, monkeypatch, findings) == code


def test_nobody_there_is_3(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESLURM_SOCKET", str(state_dir / "nobody"))
    assert esctl.main(["doctor"]) == exits.UNREACHABLE


def test_who_is_no_operator_is_told_so(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: pb.DoctorRequest) -> pb.DoctorReply:
        raise Refuse(Status.PERMISSION_DENIED, "Doctor is for operators")

    with FakeApi(state_dir / "s", Doctor=refuse) as fake:
        monkeypatch.setenv("ESLURM_SOCKET", fake.path)
        assert esctl.main(["doctor"]) == exits.FAILED
    assert capsys.readouterr().err == "esctl: Doctor is for operators\n"


@pytest.mark.parametrize(
    ("name", "findings"),
    [("esctl-doctor", [WARNING, *ERRORS]), ("esctl-doctor-healthy", [])],
)
def test_the_table(
    name: str,
    findings: list[pb.Finding],
    state_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    golden: Golden,
    capsys: pytest.CaptureFixture[str],
) -> None:
    doctor(state_dir, monkeypatch, findings)
    golden(f"cli/{name}.txt", capsys.readouterr().out)
    doctor(state_dir, monkeypatch, findings[::-1])
    golden(f"cli/{name}.txt", capsys.readouterr().out)


def test_json_has_every_field(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor(state_dir, monkeypatch, [WARNING], "--json") == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["checks"] == CHECKS
    assert shown["findings"][0]["what"] == WARNING.what and shown["findings"][0]["advice"] == WARNING.advice


def test_words_too_many_are_refused(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor(state_dir, monkeypatch, [], "now") == exits.USAGE
    assert "'now' is not expected here" in capsys.readouterr().err
