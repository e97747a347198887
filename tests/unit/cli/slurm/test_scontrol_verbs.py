"""scontrol's verbs about reservations, tokens, controllers, scripts and hosts: their calls, words and exit codes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from escli.slurm.launch import main
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi

SCRIPT = b"#!/bin/sh\n\xff\n"


@pytest.fixture
def api(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    for name in list(os.environ):
        if name.startswith(("SLURM", "ESLURM")):
            monkeypatch.delenv(name)
    monkeypatch.setattr("socket.gethostname", lambda: "cn1.site")
    monkeypatch.setattr("escli.slurm.frame.user_name", lambda: "ada")
    monkeypatch.chdir(state_dir)
    there = [pb.PolicyInfo(kind="reservation", name="ada_1", json="{}")]
    leads = iter([1, 1, 1, 2, 2])

    def controllers(_: Any) -> pb.ControllersReply:
        first = next(leads, 2) == 1
        return pb.ControllersReply(
            controllers=[
                pb.ControllerInfo(
                    name="c1", role="leader" if first else "standby", epoch=5, endpoint="10.0.0.1:1"
                ),
                pb.ControllerInfo(name="c2", role="standby" if first else "leader", epoch=6),
            ]
        )

    def script(request: Any) -> pb.JobScriptReply:
        return pb.JobScriptReply(script=SCRIPT)

    nodes = [pb.NodeInfo(name="cn1", jobs=[7, 3]), pb.NodeInfo(name="cn2")]
    with FakeApi(
        state_dir / "s",
        ChangePolicies=lambda _: pb.ChangeReply(count=1),
        Policies=lambda _: pb.PoliciesReply(policies=there),
        UpdatePartitions=lambda _: pb.ChangeReply(count=1),
        CreateToken=lambda _: pb.CreateTokenReply(token="T"),
        Controllers=controllers,
        Takeover=lambda _: pb.TakeoverReply(),
        JobScript=script,
        Nodes=lambda asked: pb.NodesReply(
            nodes=[one for one in nodes if one.name in (asked.names or ["cn1", "cn2"])]
        ),
    ) as api:
        yield api


def run(api: FakeApi, line: str) -> int:
    command, *words = line.split()
    return main(command, words, socket=api.path)


@pytest.mark.parametrize(
    ("line", "action", "name", "settings"),
    [
        (
            "create reservation ReservationName=r starttime=now duration=120 user=ada nodecnt=2",
            "",
            "",
            {},
        ),
        (
            "create reservation StartTime=now Duration=120 Users=ada,bob NodeCnt=2 PartitionName=main",
            "add",
            "ada_2",
            {"start": "now", "duration": "7200s", "users": "ada,bob", "nodes": "2", "partition": "main"},
        ),
        (
            "create ReservationName=r Accounts=physics Nodes=ALL EndTime=2030-01-31 Flags=MAINT,IGNORE_JOBS,SPEC_NODES",
            "add",
            "r",
            {
                "accounts": "physics",
                "nodes": "ALL",
                "end": "2030-01-31",
                "maintenance": "yes",
                "flags": "ignore_running",
            },
        ),
        ("update ReservationName=r Users+=eve Users-=bob", "modify", "r", {"users+": "eve", "users-": "bob"}),
        ("update reservation=r Duration=1-0", "modify", "r", {"duration": "86400s"}),
        ("delete ReservationName=r", "delete", "r", {}),
        ("delete reservation r", "delete", "r", {}),
    ],
)  # fmt: skip
def test_reservations(api: FakeApi, line: str, action: str, name: str, settings: dict[str, str]) -> None:
    assert run(api, f"scontrol {line}") == (0 if action else 1)
    asked = api.asked("ChangePolicies")
    if not action:
        assert not asked
        return
    [change] = asked[0].changes
    assert (change.action, change.kind, change.name) == (action, "reservation", name)
    assert {one.key: one.value for one in change.settings} == settings


REFUSED = "is not supported for reservations: use one of"


@pytest.mark.parametrize(
    ("line", "err"),
    [
        ("create reservation StartTime=now", "Either Users/Groups and/or Accounts must be specified."),
        ("create reservation Users=ada CoreCnt=3", f"CoreCnt: '3' {REFUSED}"),
        ("create reservation Users=-ada Nodes=cn1", "keeps a name out, which is not supported"),
        (
            "create reservation Users=ada Flags=DAILY",
            "Flags: 'DAILY' is not supported: use esctl reservation add",
        ),
        ("create reservation Users=ada Duration=UNLIMITED", "has no end"),
        ("create reservation Users=ada Nodes+=cn1", "is no list"),
        ("create reservation Users", "has no value"),
        ("create partition PartitionName=x", "create partition is not supported"),
        ("create", "Invalid creation entity"),
        ("delete", "Invalid deletion entity"),
        ("delete NodeName=cn1", "delete NodeName is not supported"),
        ("token lifespan=0", "Invalid lifespan=0"),
        ("token scope=admin", "token: scope is not supported"),
        ("takeover 2", "there is no backup controller 2"),
        ("write config", "write config is not supported"),
        ("write batch_script", "too few arguments for keyword:write"),
        ("update PartitionName=main State=LOST", "Invalid input: State=LOST"),
        ("update PartitionName=main MaxTime=5", "Update of this parameter is not supported: MaxTime=5"),
        ("listjobs cn2", "There are no jobs running on node cn2"),
        ("requeuehold State=SpecialExit 17", "State=SpecialExit is not supported"),
    ],
)
def test_what_is_refused(api: FakeApi, capsys: pytest.CaptureFixture[str], line: str, err: str) -> None:
    assert run(api, f"scontrol {line}") == 1
    said = capsys.readouterr().err
    assert err in said
    assert not api.asked("ChangePolicies")


def test_states_of_partitions(api: FakeApi) -> None:
    assert run(api, "scontrol update PartitionName=main,short State=drain") == 0
    [request] = api.asked("UpdatePartitions")
    assert (list(request.names), request.state) == (["main", "short"], "DRAIN")


def test_a_token(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(api, "scontrol token") == 0
    assert run(api, "scontrol token lifespan=60 username=bob") == 0
    assert capsys.readouterr().out == "SLURM_JWT=T\nSLURM_JWT=T\n"
    assert [(one.life_s, one.user) for one in api.asked("CreateToken")] == [(1800, ""), (60, "bob")]


def test_a_takeover_waits_for_the_new_leader(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(api, "scontrol takeover") == 0
    assert [one.to for one in api.asked("Takeover")] == ["c2"]
    assert capsys.readouterr() == ("", "")


def test_daemons_and_jobs_of_a_host(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(api, "scontrol show daemons") == 0
    assert run(api, "scontrol listjobs") == 0
    assert capsys.readouterr().out == "slurmd\nJOBID   \n3       \n7       \n"


def test_a_script_is_written(
    api: FakeApi, state_dir: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run(api, "scontrol write batch_script 17 -") == 0
    assert capsysbinary.readouterr().out == SCRIPT
    assert run(api, "scontrol write batch_script 17") == 0
    assert capsysbinary.readouterr().out == b"batch script for job 17 written to slurm-17.sh\n"
    path = state_dir / "slurm-17.sh"
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (SCRIPT, 0o600)
    # A file of the caller's is replaced as a whole.
    path.write_bytes(b"x" * 100)
    assert run(api, "scontrol write batch_script 17") == 0
    assert path.read_bytes() == SCRIPT


def test_sacct_shows_scripts(api: FakeApi, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(api, "sacct -B -j 17") == 0
    assert capsysbinary.readouterr().out == b"Batch Script for 17\n" + b"-" * 80 + b"\n" + SCRIPT
    assert run(api, "sacct -B") == 1
    assert b"--batch-script needs the jobs" in capsysbinary.readouterr().err


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "directory"])
def test_a_script_is_written_through_nothing(
    api: FakeApi, state_dir: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, other = state_dir / "slurm-17.sh", state_dir / "other"
    other.write_text("kept")
    {
        "link": lambda: path.symlink_to(other),
        "hard link": lambda: path.hardlink_to(other),
        "pipe": lambda: os.mkfifo(path),
        "directory": path.mkdir,
    }[kind]()
    assert run(api, "scontrol write batch_script 17") == 1
    assert "slurm-17.sh" in capsys.readouterr().err
    assert other.read_text() == "kept"
