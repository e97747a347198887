"""`eslurm simulate esp`: its table, its files, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from escli import exits
from escli.local.main import main
from eslurm.lab.applications import otf2
from tests.support.golden import Golden

COARSE = ("--nodes", "32", "--time-scale", "0.1", "--task-scale", "0.01")


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = exits.OK) -> tuple[str, str]:
    assert main(["simulate", "esp", *words]) == code
    return capsys.readouterr()


def test_the_table(capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    golden("esp/command.txt", said(capsys, *COARSE)[0])


def test_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--application", "psia", "--technique", "gss", "--cooperate", "off", "--json")
    (run,) = json.loads(said(capsys, *COARSE, *words)[0])["runs"]
    assert run["jobs"] == 230 and 0.5 < run["utilisation"] <= 1 and run["makespan_s"] > 500
    assert run["wait_mean_s"] > 0 and len(run["digest"]) == 64 and len(run["kinds"]) == 14


def test_a_cluster_takes_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    runs = []
    for words in ((), ("--launch-time", "2", "--finish-time", "1", "--report-time", "1")):
        (run,) = json.loads(said(capsys, *COARSE, "--cooperate", "off", "--json", *words)[0])["runs"]
        runs.append({kind["category"]: kind["run_s"] for kind in run["kinds"]})
    plain, slow = runs
    assert all(abs(slow[name] - plain[name] - 3) < 0.001 for name in plain)
    assert "0<=x<=3600" in said(capsys, "--launch-time", "-1", code=exits.USAGE)[1]


def test_stated_and_recorded_tasks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "tasks.txt"
    path.write_text("\n".join(["1"] * 60 + ["9"] * 4), encoding="utf-8")
    imbalance = {}
    for application in ("constant:1", "exponential:1", str(path)):
        words = ("--application", application, "--cooperate", "off", "--json")
        (run,) = json.loads(said(capsys, *COARSE, *words)[0])["runs"]
        assert run["jobs"] == 230
        imbalance[application] = run["imbalance"]
    assert 1 <= imbalance["constant:1"] < imbalance["exponential:1"] < imbalance[str(path)]


def test_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "esp.json"
    said(capsys, *COARSE, "--cooperate", "off", "--trace", str(path))
    assert len(json.loads(path.read_text())["traceEvents"]) > 1_000


@pytest.mark.usefixtures("pictures")
def test_pictures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "esp.svg"
    said(capsys, *COARSE, "--cooperate", "off", "--picture", str(path))
    assert "seconds from the first start" in path.read_text()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--technique", "LUCK"], "no such technique"),
        (["--policy", "magic"], "--policy"),
        (["--application", "luck"], "is no application"),
        (["--application", "exponential:-1"], "exponential:MEAN"),
        (["--application", "/no/such/file.txt"], "--application"),
        (["--trace", "esp.json"], "shows one run"),
        (["--cooperate", "off", "--trace", "/no/such/directory/esp.json"], "make it first"),
        (["--cooperate", "off", "--picture", "esp.txt"], "is no picture"),
    ],
)
def test_refusals_name_the_way_out(capsys: pytest.CaptureFixture[str], words: list[str], text: str) -> None:
    assert text in said(capsys, *COARSE, *words, code=exits.USAGE)[1]


def test_without_the_otf2_library_it_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otf2, "LIBRARY", "no_such_library")
    err = said(capsys, *COARSE, "--cooperate", "off", "--otf2", "archive", code=exits.USAGE)[1]
    assert "no bindings of the OTF2 library" in err and "--trace" in err
