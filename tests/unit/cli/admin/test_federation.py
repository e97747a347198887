"""`esctl federation`: orders to the cell, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from escli.admin.esctl import main
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi

DONE = pb.ChangeFederationReply(name="lab", cell="alpha", state="member", done=True)


@pytest.fixture
def api(state_dir: Path) -> Iterator[FakeApi]:
    with FakeApi(state_dir / "s", ChangeFederation=lambda _request: DONE) as one:
        yield one


def order(api: FakeApi, *words: str) -> int:
    return main(["--socket", str(api.path), "federation", *words])


@pytest.mark.parametrize(
    ("action", "told"),
    [
        ("drain", "cell alpha of federation lab drains: it takes no work of other cells"),
        ("resume", "cell alpha of federation lab takes work of other cells"),
        ("leave", "cell alpha of federation lab has left and works alone, also after a restart"),
        ("rejoin", "cell alpha of federation lab is a member"),
    ],
)
def test_orders_say_what_holds_now(
    api: FakeApi, capsys: pytest.CaptureFixture[str], action: str, told: str
) -> None:
    assert order(api, action) == 0
    assert order(api, action, "alpha") == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0].startswith(told) and not err
    assert api.asked("ChangeFederation") == [
        pb.ChangeFederationRequest(action=action),
        pb.ChangeFederationRequest(action=action, cell="alpha"),
    ]


def test_an_order_that_the_store_lacks_is_a_warning(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers["ChangeFederation"] = lambda _: pb.ChangeFederationReply(
        name="lab", cell="alpha", state="away", problem="no leader\x1b[2J"
    )
    assert order(api, "rejoin") == 0
    out, err = capsys.readouterr()
    assert out == "cell alpha of federation lab joins again\n"
    assert "the shared store does not have it yet: no leader\\x1b[2J" in err
    assert order(api, "drain", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["state"], shown["done"]) == ("away", False)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "use one of status, drain, resume, leave, rejoin"),
        (("drian",), "did you mean drain?"),
        (("leave", "alpha", "beta"), "'beta'"),
        (("status", "alpha"), "'alpha'"),
    ],
)
def test_other_words_are_refused(
    api: FakeApi, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    assert order(api, *words) != 0
    assert told in capsys.readouterr().err
    assert not api.asked("ChangeFederation")
