"""`esctl token`: what is asked of the controller, and where a token goes."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from escli import exits
from escli.admin import esctl
from escli.remote import token_in
from eslurm.ports.api import Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi, Refuse

NOW_US = 1_790_000_000_000_000
HOUR_US = 3_600_000_000
NOBODY = pwd.getpwnam("nobody")
TOKEN = "es2.AAAAAAAAAAAAAAAAAAAAAAAAAAAA"  # nosec B105 # none that anything takes
ID = "0123456789abcdef" * 2


def create(request: Any) -> pb.CreateTokenReply:
    user = request.user or "me"
    life_us = (request.life_s or 8 * 3600) * 1_000_000
    return pb.CreateTokenReply(
        token=TOKEN,
        info=pb.TokenInfo(
            id=ID,
            user=user,
            uid=NOBODY.pw_uid,
            scope=request.scope or "submit",
            issued_us=NOW_US,
            expires_us=NOW_US + life_us,
        ),
        gid=NOBODY.pw_gid,
        cluster="c",
    )


@pytest.fixture
def door(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    monkeypatch.setenv("ESLURM_SOCKET", str(state_dir / "s"))
    with FakeApi(state_dir / "s", CreateToken=create) as one:
        yield one


def test_it_stands_alone(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert esctl.main(["token", "create"]) == exits.OK
    assert capsys.readouterr() == (f"{TOKEN}\n", "")
    (asked,) = door.asked("CreateToken")
    assert (asked.user, asked.scope, asked.life_s) == ("", "", 0)
    assert len(door.request_ids[0]) == 16 and any(door.request_ids[0])


@pytest.mark.parametrize("words", [["ada"], ["create", "ada"], ["CREATE", "ada"]])
def test_for_somebody_and_for_so_long(
    door: FakeApi, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert esctl.main(["token", *words, "--for", "7d", "--scope", "read", "--json"]) == exits.OK
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "id": ID,
        "user": "ada",
        "uid": NOBODY.pw_uid,
        "cluster": "c",
        "scope": "read",
        "expires_us": NOW_US + 7 * 24 * HOUR_US,
        "token": TOKEN,
    }


def test_a_user_may_be_called_as_an_action_is(door: FakeApi) -> None:
    assert esctl.main(["token", "create", "list"]) == exits.OK
    assert door.asked("CreateToken")[0].user == "list"


def test_a_file_is_for_its_user_only(
    door: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "token"
    path.write_text("what was there")
    path.chmod(0o644)
    assert esctl.main(["token", "ada", "--out", str(path)]) == exits.OK
    out = capsys.readouterr().out
    assert out.startswith(f"{path}: ada at cluster c until 2026-") and out.endswith(
        f", scope submit, id {ID}\n"
    )
    assert TOKEN not in out
    seen = path.stat()
    assert seen.st_mode & 0o777 == 0o600
    assert seen.st_uid == (NOBODY.pw_uid if os.geteuid() == 0 else os.geteuid())
    assert token_in(path) == TOKEN
    assert [one.name for one in tmp_path.iterdir()] == ["token"]


def test_a_link_in_its_place_is_replaced_not_followed(door: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "token").symlink_to(tmp_path / "elsewhere")
    assert esctl.main(["token", "ada", "--output", str(tmp_path / "token")]) == exits.OK
    assert not (tmp_path / "elsewhere").exists() and not (tmp_path / "token").is_symlink()


def test_nothing_but_a_file_is_replaced(
    door: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "token").symlink_to(pipe)
    for name in (
        str(pipe),
        str(tmp_path / "token"),
        str(tmp_path),
        ".",
        "..",
        "/",
        "/dev/null",
        "/dev/eslurm",
    ):
        assert esctl.main(["token", "ada", "--output", name]) == exits.USAGE
        assert "' is no file: name one" in capsys.readouterr().err
    assert pipe.is_fifo() and (tmp_path / "token").is_symlink()
    # Nothing was made that nobody has.
    assert not door.requests


def test_a_file_that_cannot_be_written_names_what_to_revoke(
    door: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert esctl.main(["token", "ada", "--output", "/nowhere/token"]) == exits.USAGE
    told = capsys.readouterr().err
    assert "cannot be written (No such file or directory)" in told and f"esctl token revoke {ID}" in told


def test_what_is_refused_is_told(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(_request: Any) -> Any:
        raise Refuse(Status.PERMISSION_DENIED, "root gets no token")

    door.answers["CreateToken"] = refuse
    assert esctl.main(["token", "root"]) == exits.FAILED
    assert capsys.readouterr().err == "esctl: root gets no token\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "token needs to know what: use one of create, list, revoke"),
        (["ada", "bob"], "argument: 'bob' is not expected here"),
        (["list", "bob"], "argument: 'bob' is not expected here"),
        (["ada", "--for", "none"], "--for: 'none' is no life of a token"),
        (["ada", "--for", "soon"], "--for: 'soon' is not a length of time"),
        (["ada", "--for", "99999d"], "--for: '99999d' is no life of a token"),
        (["revoke"], "token revoke needs a token: use its ID"),
    ],
)
def test_what_cannot_be(
    door: FakeApi, words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert esctl.main(["token", *words]) == exits.USAGE
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith(f"esctl: {text}")
    assert not door.requests


def test_a_list_shows_no_control_characters(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    info = pb.TokenInfo(
        id=ID, user="a\x1b[2J", uid=5, scope="read", issued_us=NOW_US, expires_us=NOW_US + HOUR_US, by="root"
    )
    door.answers["Tokens"] = lambda _request: pb.TokensReply(tokens=[info])
    assert esctl.main(["token", "list", "--user", "ada"]) == exits.OK
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["ID", "USER", "SCOPE", "MADE", "UNTIL", "BY"]
    assert out.splitlines()[1].split()[0] == ID and "\x1b" not in out
    assert door.asked("Tokens")[0].user == "ada"
    assert esctl.main(["token", "list", "--json"]) == exits.OK
    assert json.loads(capsys.readouterr().out)["tokens"][0]["id"] == ID


def test_revoking(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    door.answers["RevokeTokens"] = lambda request: pb.ChangeReply(count=len(request.ids))
    assert esctl.main(["token", "revoke", ID, "00"]) == exits.OK
    assert esctl.main(["token", "revoke", "--user", "ada"]) == exits.OK
    assert "there was none to revoke" in capsys.readouterr().err
    first, second = door.asked("RevokeTokens")
    assert (list(first.ids), first.user, list(second.ids), second.user) == ([ID, "00"], "", [], "ada")
