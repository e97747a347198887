"""`esctl account|user|qos|limit|pool|...` and `esctl load`: words and files become settings as they stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from escli import exits
from escli.admin import esctl
from eslurm.ports.api import Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi, Refuse
from tests.support.golden import Golden

POLICIES: dict[str, dict[str, dict[str, str]]] = {
    "account": {
        "physics": {
            "parent": "",
            "shares": "10",
            "description": "lasers & co",
            "validity": "always",
            "state": "active",
        },
        "old": {
            "parent": "physics",
            "shares": "1",
            "description": "",
            "validity": "..2025-12-31",
            "state": "expired",
        },
    },
    "limit": {
        "ncpus": {
            "group": "G1",
            "resource": "cores",
            "items": "640",
            "duration": "4d3h",
            "area": "none",
            "validity": "2017-08-01..2017-08-31",
            "state": "expired",
        },
        "jobs": {
            "user": "*",
            "resource": "jobs",
            "items": "5000",
            "duration": "none",
            "area": "none",
            "validity": "always",
            "state": "active",
        },
    },
    "reservation": {
        "course": {
            "nodes": "cn[001-004]",
            "validity": "2030-01-31T08:00:00..2030-01-31T12:00:00",
            "users": "ada,bob",
            "groups": "",
            "accounts": "",
            "maintenance": "no",
            "flags": "",
            "state": "waiting",
        }
    },
    "defaults": {"site": {"time": "1h", "force.partition": "batch", "state": "active"}},
}


def _policies(request: pb.PoliciesRequest) -> pb.PoliciesReply:
    found = [
        pb.PolicyInfo(kind=request.kind, name=name, json=json.dumps(settings))
        for name, settings in POLICIES.get(request.kind, {}).items()
        if not request.names or name in request.names
    ]
    if request.names and not found:
        raise Refuse(Status.NOT_FOUND, f"{request.kind} {request.names[0]}: does not exist: there are none")
    return pb.PoliciesReply(policies=found, revision=7)


def _changed(request: pb.ChangePoliciesRequest) -> pb.ChangeReply:
    if any(change.name == "bad" for change in request.changes):
        raise Refuse(Status.INVALID_ARGUMENT, "limit bad: is on nobody: give user=")
    return pb.ChangeReply(count=len(request.changes), revision=8)


def run(path: Path, *words: str) -> tuple[int, list[Any]]:
    with FakeApi(path / "s", Policies=_policies, ChangePolicies=_changed) as door:
        code = int(esctl.main(["--socket", door.path, *words]))
        return code, [request for _, request in door.requests]


@pytest.mark.parametrize("kind", ["account", "limit", "reservation", "defaults"])
def test_tables(kind: str, state_dir: Path, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(state_dir, kind, "show")[0] == exits.OK
    golden(f"cli/esctl-{kind}-show.txt", capsys.readouterr().out)


def test_programs_get_all_settings(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(state_dir, "--json", "account", "show", "old")[0] == exits.OK
    told = json.loads(capsys.readouterr().out)
    assert told["policies"] == [{"kind": "account", "name": "old", **POLICIES["account"]["old"]}]


def test_where_nothing_is_set_an_example_stands(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(state_dir, "pool", "show")[0] == exits.OK
    assert capsys.readouterr().out.startswith("no pool is set: esctl pool add small")


def test_words_become_settings_as_they_stand(state_dir: Path) -> None:
    code, asked = run(
        state_dir, "pool", "add", "small", "items=10/20%", "access=cores<4 and time<1h", "nodes+=a=b"
    )
    assert code == exits.OK
    (change,) = asked[0].changes
    assert (change.action, change.kind, change.name) == ("add", "pool", "small")
    assert [(one.key, one.value) for one in change.settings] == [
        ("items", "10/20%"),
        ("access", "cores<4 and time<1h"),
        ("nodes+", "a=b"),
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["account"], "use one of show, add, modify, delete"),
        (["account", "ad"], "did you mean add?"),
        (["account", "add"], "needs a name: use e.g. esctl account add physics shares=10"),
        (["account", "add", "shares=1"], "needs a name"),
        (["account", "add", "a", "shares"], "is not KEY=VALUE"),
        (["account", "show", "name=a"], "use e.g. esctl account show a"),
        (["limit", "add", "bad"], "limit bad: is on nobody"),
        (["limit", "show", "nope"], "limit nope: does not exist"),
        (["load"], "names no single file"),
        (["load", "/nowhere.toml"], "load: '/nowhere.toml' cannot be read"),
    ],
)
def test_what_is_wrong_is_told(
    words: list[str], said: str, state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(state_dir, *words)[0] != exits.OK
    assert said in capsys.readouterr().err


FILE = """
[account.physics]
shares = 10

[user.ada]
accounts = ["physics", "chem"]
qos = "high"

[reservation.course]
nodes = 4
maintenance = false

[defaults.site]
time = "1:00:00"
force.partition = "batch"
"""


def test_a_file_is_one_change(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = state_dir / "policies.toml"
    path.write_text(FILE)
    code, asked = run(state_dir, "load", str(path))
    assert code == exits.OK and capsys.readouterr().out == "4 policies are set\n"
    (request,) = asked
    assert [
        (one.action, one.kind, one.name, {setting.key: setting.value for setting in one.settings})
        for one in request.changes
    ] == [
        ("set", "account", "physics", {"shares": "10"}),
        ("set", "user", "ada", {"accounts": "physics,chem", "qos": "high"}),
        ("set", "reservation", "course", {"nodes": "4", "maintenance": "no"}),
        ("set", "defaults", "site", {"time": "1:00:00", "force.partition": "batch"}),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no policies"),
        ("[accont.a]", "did you mean [account.NAME]?"),
        ("account = 3", "is no kind of policy"),
        ("account.a = 3", "account.a is no table"),
        ("[user.a]\naccounts = [[1]]", "user.a: accounts: is neither"),
        ("[user.a", "is no TOML"),
    ],
)
def test_files_that_cannot_be_used(
    text: str, said: str, state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = state_dir / "policies.toml"
    path.write_text(text)
    assert run(state_dir, "load", str(path))[0] == exits.FAILED
    assert said in capsys.readouterr().err
