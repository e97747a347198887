"""`esinfo --controllers` and `esctl takeover`: who leads, and handing over to somebody else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from escli import exits
from escli.admin import esctl
from escli.user import esinfo
from eslurm.ports.api import Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi, Refuse, unanswered
from tests.support.golden import Golden

S = 1_000_000
NOON_US = 1_772_625_600 * S


def info(name: str, role: str, epoch: int = 0, since_s: int = 0) -> pb.ControllerInfo:
    return pb.ControllerInfo(
        name=name,
        role=role,
        endpoint=f"10.0.0.{len(name)}:7400",
        epoch=epoch,
        since_us=NOON_US - since_s * S if since_s else 0,
        build="0.4.0",
    )


class Cluster:
    """Two controllers behind one door. After `takeover` it is away for some calls before the other one leads."""

    def __init__(self, away: int = 0, successor: str = "") -> None:
        self.infos = [info("c2", "standby", since_s=60), info("main", "leader", 3, 3600)]
        self.asked: list[str] = []
        self._away = away
        self._successor = successor

    def controllers(self, _request: Any) -> pb.ControllersReply:
        if self.asked and self._away:
            self._away -= 1
            raise Refuse(Status.UNAVAILABLE, "no controller leads at present")
        if self.asked:
            after = self._successor or self.asked[-1]
            return pb.ControllersReply(controllers=[info(after, "leader", 4, 1)], now_us=NOON_US)
        return pb.ControllersReply(controllers=self.infos, now_us=NOON_US)

    def takeover(self, request: pb.TakeoverRequest) -> pb.TakeoverReply:
        self.asked.append(request.to)
        return pb.TakeoverReply(to=request.to, epoch=3)


pytestmark = pytest.mark.usefixtures("utc")


def run(cluster: Cluster, path: Path, main: Any, *words: str) -> int:
    with FakeApi(path / "s", Controllers=cluster.controllers, Takeover=cluster.takeover) as door:
        return int(main(["--socket", door.path, *words]))


def test_the_table(state_dir: Path, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Cluster(), state_dir, esinfo.main, "--controllers") == exits.OK
    golden("cli/esinfo-controllers.txt", capsys.readouterr().out)


def test_the_table_for_programs(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Cluster(), state_dir, esinfo.main, "--controllers", "--json") == exits.OK
    reply = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["role"]) for one in reply["controllers"]] == [
        ("c2", "standby"),
        ("main", "leader"),
    ]


@pytest.mark.parametrize("words", [[], ["c2"]])
def test_a_standby_takes_over(words: list[str], state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(away=3)
    assert run(cluster, state_dir, esctl.main, "takeover", *words) == exits.OK
    assert cluster.asked == ["c2"]
    told = capsys.readouterr()
    assert told.out.startswith("c2 leads now (epoch 4), main did before (epoch 3): it took ")
    assert told.err == ""


def test_a_takeover_for_programs(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Cluster(), state_dir, esctl.main, "takeover", "--json") == exits.OK
    told = json.loads(capsys.readouterr().out)
    assert told.pop("seconds") < 10
    assert told == {"from": "main", "to": "c2", "epoch_before": 3, "epoch": 4}


def test_the_leader_need_not_take_over(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster()
    assert run(cluster, state_dir, esctl.main, "takeover", "main") == exits.OK
    assert capsys.readouterr().out == "main leads already (epoch 3)\n"
    assert cluster.asked == []


def test_another_one_was_faster(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Cluster(successor="main"), state_dir, esctl.main, "takeover") == exits.FAILED
    assert "main leads now (epoch 4), not c2" in capsys.readouterr().err


def test_nobody_to_take_over(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster()
    del cluster.infos[0]
    assert run(cluster, state_dir, esctl.main, "takeover") == exits.FAILED
    assert "no controller stands by: start one" in capsys.readouterr().err
    assert cluster.asked == []


def test_a_name_that_nobody_has(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster()
    assert run(cluster, state_dir, esctl.main, "takeover", "c3") == exits.USAGE
    assert "takeover: 'c3' is no controller that is there: did you mean c2?" in capsys.readouterr().err
    assert cluster.asked == []


def test_a_refusal_is_told(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(_request: Any) -> Any:
        raise Refuse(Status.FAILED_PRECONDITION, "c2 is behind by 900 facts")

    with FakeApi(state_dir / "s", Controllers=Cluster().controllers, Takeover=refuse) as door:
        assert esctl.main(["--socket", door.path, "takeover"]) == exits.FAILED
    assert capsys.readouterr().err == "esctl: c2 is behind by 900 facts\n"


def test_words_are_checked_before_anything_is_asked(state_dir: Path) -> None:
    with FakeApi(state_dir / "s", Controllers=unanswered, Takeover=unanswered) as door:
        assert esctl.main(["--socket", door.path, "takeover", "c2", "now"]) == exits.USAGE
        assert door.requests == []
