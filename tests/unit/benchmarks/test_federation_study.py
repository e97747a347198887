"""The tables of the federation's study are made of what the command prints."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks.federation_study import HEAD, main
from eslurm.lab.studies.federation.figures import run
from eslurm.lab.studies.federation.shape import Shape


def test_a_row_and_a_point_for_each_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [run(Shape(cells=2, nodes=8, jobs=3, load=load, run_s=1.0), "joint") for load in (0.5, 1.0)]
    path = tmp_path / "runs.json"
    path.write_bytes(msgspec.json.encode({"runs": runs}))
    monkeypatch.setenv("PICTURES", str(tmp_path))
    assert main([str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == HEAD
    assert [line.split(" | ")[:4] for line in lines[2:]] == [
        ["| medium", "0.5", "joint", "6 of 6"],
        ["| medium", "1", "joint", "6 of 6"],
    ]
    assert {line.count("|") for line in lines} == {HEAD.count("|")}
    assert sorted(found.name for found in tmp_path.glob("*.svg")) == [
        "federation-medium-allocate.svg",
        "federation-medium-messages.svg",
    ]
    assert main([]) == 2
