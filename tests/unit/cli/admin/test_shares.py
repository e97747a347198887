"""`esctl shares` against a door with scripted answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from escli import exits
from escli.admin import esctl
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi


def row(account: str, user: str, parent: str, shares: int, *numbers: float) -> pb.ShareInfo:
    norm_shares, usage, norm_usage, level, factor = numbers
    return pb.ShareInfo(
        account=account,
        user=user,
        parent=parent,
        shares=shares,
        norm_shares=norm_shares,
        usage=usage,
        norm_usage=norm_usage,
        level=level,
        factor=factor,
    )


REPLY = pb.SharesReply(
    shares=[
        row("biology", "", "", 1, 0.25, 0, 0, -1, 0),
        row("biology", "kim", "biology", 1, 1, 0, 0, -1, 1),
        row("physics", "", "", 3, 0.75, 36_000.4, 1, 0.75, 0),
        row("optics", "", "physics", 1, 1, 36_000.4, 1, 1, 0),
        row("optics", "ada", "optics", 1, 1, 36_000.4, 1, 1, 0.5),
    ],
    half_life_s=604_800,
    now_us=1,
)
TABLE = """\
ACCOUNT   USER SHARES NORM_SHARES USAGE NORM_USAGE  LEVEL FACTOR
biology             1      0.2500     0     0.0000 unused
biology   kim       1      1.0000     0     0.0000 unused 1.0000
physics             3      0.7500 36000     1.0000   0.75
 optics             1      1.0000 36000     1.0000      1
 optics   ada       1      1.0000 36000     1.0000      1 0.5000
"""


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    with FakeApi(tmp_path / "door.sock", Shares=lambda _: REPLY) as fake:
        monkeypatch.setenv("ESLURM_SOCKET", fake.path)
        yield fake


def test_the_tree(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert esctl.main(["shares"]) == exits.OK
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        line.split() for line in TABLE.splitlines()
    ]


SUMMED = pb.SharesReply(
    shares=[
        row("physics", "", "", 3, 1, 36_000.4, 1, 1, 0),
        row("physics", "ada", "physics", 1, 1, 36_000.4, 1, 1, 0.5),
    ],
    sums=True,
    cells=[
        pb.CellUsageInfo(cell="beta", age_ms=4_200),
        pb.CellUsageInfo(cell="delta", age_ms=3_661_000, left_out=7),
        pb.CellUsageInfo(cell="gamma", problem="it cannot be read: \x1b[2J"),
    ],
)
for at, others in enumerate((1_250.4, 1_000.0)):
    SUMMED.shares[at].others = others
SUMMED_TABLE = """\
ACCOUNT USER SHARES NORM_SHARES USAGE OTHERS NORM_USAGE LEVEL FACTOR
physics           3      1.0000 36000   1250     1.0000     1
physics ada       1      1.0000 36000   1000     1.0000     1 0.5000
OTHERS: usage in beta (0:04 old), delta (1:01:01 old, without 7 users of small accounts)
Usage in gamma does not count: it cannot be read: \\x1b[2J
"""


def test_usage_in_other_cells_is_a_column_with_its_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replies = [SUMMED, SUMMED, pb.SharesReply(sums=True)]
    with FakeApi(tmp_path / "door.sock", Shares=lambda _: replies.pop(0)) as fake:
        monkeypatch.setenv("ESLURM_SOCKET", fake.path)
        assert esctl.main(["shares"]) == exits.OK
        assert capsys.readouterr().out == SUMMED_TABLE
        assert esctl.main(["--json", "shares", "user=ada"]) == exits.OK
        answer = json.loads(capsys.readouterr().out)
        assert [one["others"] for one in answer["shares"]] == [1_000.0]
        assert (answer["cells"][0]["cell"], answer["cells"][0]["age_ms"]) == ("beta", 4_200)
        assert esctl.main(["shares"]) == exits.OK
        assert "OTHERS: no usage in other cells is known" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["account=physics"], ["physics/", "optics/", "optics/ada"]),
        (["user=kim"], ["biology/kim"]),
        (["account=physics", "user=kim"], []),
        ([], ["biology/", "biology/kim", "physics/", "optics/", "optics/ada"]),
    ],
)
def test_selection(
    words: list[str], found: list[str], door: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert esctl.main(["--json", "shares", *words]) == exits.OK
    answer = json.loads(capsys.readouterr().out)
    assert [f"{one['account']}/{one['user']}" for one in answer["shares"]] == found
    assert answer["half_life_s"] == 604_800


def test_nobody(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    door.answers["Shares"] = lambda _: pb.SharesReply()
    assert esctl.main(["shares"]) == exits.OK
    assert capsys.readouterr().out == "no accounts, and nobody has used anything\n"


@pytest.mark.parametrize("word", ["physics", "accounts=x", "user="])
def test_what_selects_nothing_is_refused(
    word: str, door: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert esctl.main(["shares", word]) == exits.USAGE
    assert f"'{word}' selects nothing: use account=NAME or user=NAME" in capsys.readouterr().err


PRIORITIES = pb.SharesReply(
    priorities=[
        pb.PriorityInfo(
            job_id=17,
            user="ada",
            partition="main",
            priority=1042,
            age_points=50,
            fairshare_points=1000,
            nice=8,
        ),
        pb.PriorityInfo(job_id=9, user="root", account="ops", partition="main", priority=5, given=True),
    ]
)


def test_priorities(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    door.answers["Shares"] = lambda request: PRIORITIES if not request.jobs else pb.SharesReply()
    assert esctl.main(["priority"]) == exits.OK
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "JOBID PARTITION USER ACCOUNT PRIORITY AGE FAIRSHARE SIZE PARTITION QOS NICE",
        "17 main ada - 1042 50 1000 0 0 0 8",
        "9 main root ops 5 - - - - - -",
    ]
    assert esctl.main(["priority", "17,18", "19"]) == exits.FAILED
    assert capsys.readouterr().out == "none of these jobs waits for its turn\n"
    assert [list(request.jobs) for request in door.asked("Shares")] == [[], [17, 18, 19]]
    assert esctl.main(["--json", "priority"]) == exits.OK
    assert json.loads(capsys.readouterr().out)["priorities"][0]["priority"] == 1042
