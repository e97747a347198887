"""The figures of replayed logs: their names, and what happens without the logs."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest

from benchmarks.figures import Figures
from benchmarks.plan import policies, simulate, workflows
from eslurm.lab.workloads.workflows import MODES
from tests.kits.workloads import SYNTHETIC


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which every log is the synthetic one."""
    for name in policies.LOGS.values():
        shutil.copy(SYNTHETIC, tmp_path / name)
    monkeypatch.setenv("TRACES", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("logs")
@pytest.mark.parametrize(
    ("quick", "name"), [(False, "simulate_kth_easy_s"), (True, "simulate_kth_easy_5000_s")]
)
def test_the_time_of_a_whole_log(tmp_path: Path, quick: bool, name: str) -> None:
    figures = Figures(io.StringIO())
    simulate.measure(figures, tmp_path, quick=quick)
    assert next((one.name, one.unit, one.n) for one in figures.all) == (name, "s", 300)


def test_without_logs_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TRACES", raising=False)
    figures = Figures(io.StringIO())
    simulate.measure(figures, tmp_path, quick=True)
    assert figures.all == []
    assert "no TRACES=DIR with KTH-SP2-1996-2.1-cln.swf.gz" in capsys.readouterr().err
    assert policies.main([]) == 2


@pytest.mark.usefixtures("logs")
def test_the_table_has_a_row_for_each_policy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JOBS", "20")
    assert policies.main(["KTH"]) == 0
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split(" | ")[1] for row in rows] == ["fcfs", "easy", "conservative", "planned"]
    assert all(row.count("|") == head.count("|") for row in rows)
    assert policies.main(["nowhere"]) == 2


def test_the_table_and_the_pictures_of_workflows(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEEDS", "2")
    monkeypatch.setenv("JOBS", "30")
    monkeypatch.setattr(workflows, "PERCENTS", (20,))
    monkeypatch.setenv("PICTURES", str(tmp_path / "pictures"))
    assert workflows.main(["KTH"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(workflows.PERCENTS) * len(MODES)
    assert len(list((tmp_path / "pictures").glob("workflows-kth-*.svg"))) == len(workflows.DRAWN)
    monkeypatch.delenv("TRACES")
    assert workflows.main([]) == 2
