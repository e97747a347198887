"""`esctl node`: what is asked for, what is shown, and what is refused before anything is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from escli.admin.esctl import main
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi

JOINS = pb.JoinsReply(
    pending=[pb.PendingJoin(role="agent\x1b[2J", names="cn1", fingerprint="5f" * 16, address="192.0.2.1")],
    tokens=[pb.JoinTokenInfo(id="ab" * 16, role="agent", uses_left=3, by="root")],
    members=[pb.MemberInfo(serial="cd" * 16, role="login", names="login1", fingerprint="60" * 16, by="root")],
)


@pytest.fixture
def door(state_dir: Path) -> Iterator[FakeApi]:
    answers = {
        "CreateJoinToken": lambda _request: pb.CreateJoinTokenReply(token="esj1.x", id="ab", expires_us=1),
        "Joins": lambda _request: JOINS,
        "DecideJoin": lambda _request: pb.ChangeReply(count=1),
        "RevokeMembers": lambda _request: pb.ChangeReply(count=1),
    }
    with FakeApi(state_dir / "s", **answers) as one:
        yield one


def node(door: FakeApi, *words: str) -> int:
    return main(["--socket", str(door.path), "node", *words])


def test_a_token_is_alone_on_standard_output(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert node(door, "token", "create", "--nodes", "cn[1-9]", "--uses", "9", "--hours", "2") == 0
    out, err = capsys.readouterr()
    assert out == "esj1.x\n" and "id ab" in err
    [asked] = door.asked("CreateJoinToken")
    assert asked == pb.CreateJoinTokenRequest(names="cn[1-9]", uses=9, life_s=7200)
    assert node(door, "token", "create", "--json") == 0
    assert json.loads(capsys.readouterr().out)["token"] == "esj1.x"


def test_what_is_shown_moves_no_cursor(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    for words, shown in (
        (("pending",), "5f" * 16),
        (("list",), "cd" * 16),
        (("token", "list"), "ab" * 16),
    ):
        assert node(door, *words) == 0
        out = capsys.readouterr().out
        assert shown in out and "\x1b" not in out


def test_decisions_and_revocations_name_what_they_are_about(door: FakeApi) -> None:
    assert node(door, "approve", "cn1", "--fingerprint", "5f" * 16) == 0
    assert node(door, "deny", "cn1") == 0
    approved, denied = door.asked("DecideJoin")
    assert approved == pb.DecideJoinRequest(name="cn1", fingerprint="5f" * 16)
    assert denied == pb.DecideJoinRequest(name="cn1", deny=True)
    assert node(door, "revoke", "cn1", "cd" * 16) == 0
    assert node(door, "token", "revoke", "ab" * 16) == 0
    members, tokens = door.asked("RevokeMembers")
    assert list(members.which) == ["cn1", "cd" * 16] and list(tokens.join_ids) == ["ab" * 16]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "use one of token, pending, approve, deny, list, revoke"),
        (("aprove", "cn1"), "did you mean approve?"),
        (("token",), "use one of create, list, revoke"),
        (("approve",), "--fingerprint"),
        (("approve", "cn1"), "give the one that `eslurm join` shows on the host itself"),
        (("deny",), "needs a host"),
        (("revoke",), "needs a host"),
        (("token", "revoke"), "needs a token"),
        (("token", "create", "--uses", "0"), "is no number from 1 to 10000"),
        (("token", "create", "--hours", "169"), "is no number from 1 to 168"),
        (("token", "create", "cn1"), "cn1"),
    ],
)
def test_what_is_refused(
    door: FakeApi, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], text: str
) -> None:
    assert node(door, *words) == 2
    assert text in capsys.readouterr().err
    assert not door.asked("DecideJoin") and not door.asked("RevokeMembers")
