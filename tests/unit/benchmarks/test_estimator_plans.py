"""The table of what estimates are worth to a plan: its rows, what is kept between runs, what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks.estimator import plans
from benchmarks.plan.policies import LOGS
from tests.kits.workloads import SYNTHETIC


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which every log is the synthetic one."""
    for name in LOGS.values():
        shutil.copy(SYNTHETIC, tmp_path / name)
    monkeypatch.setenv("TRACES", str(tmp_path))
    monkeypatch.setenv("JOBS", "80")
    return tmp_path


def test_a_row_for_each_source_of_estimates(
    logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ESTIMATORS", "last-2")
    monkeypatch.setenv("POLICIES", "easy planned")
    monkeypatch.setenv("PREDICTIONS", str(logs))
    assert plans.main(["KTH"]) == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    sources = [(row[0].strip("| "), row[1], row[2]) for row in rows]
    names = ("user", "perfect", "last-2")
    assert sources == [("KTH", policy, name) for policy in ("easy", "planned") for name in names]
    kept = logs / "KTH-80-last-2.csv"
    assert kept.read_text(encoding="utf-8").startswith("job,issued_at,p10,p50,p90,estimate\n")
    # What is there is used: with the limits as estimates the row is the user's.
    user = plans.simulated(logs / LOGS["KTH"], "easy", "user", 80)
    kept.write_text("job,estimate\n" + "".join(f"{n},9999999\n" for n in range(400)), encoding="utf-8")
    again = plans.predicted(logs / LOGS["KTH"], "last-2", 80, kept)
    assert plans.simulated(logs / LOGS["KTH"], "easy", again, 80) == user


def test_what_is_worse_than_with_limits_shows(logs: Path) -> None:
    user = plans.simulated(logs / LOGS["KTH"], "easy", "user", 80)
    known = {"user": user, "perfect": replace(user, slowdown_mean=user.slowdown_mean - 2)}
    better = replace(user, slowdown_mean=user.slowdown_mean - 1, wait_max_s=user.wait_max_s + 3600)
    cells = plans.row("KTH", "history", better, known, 3.2).strip("| ").split(" | ")
    assert cells[-2:] == ["50%", "3 s"]
    assert [cell.startswith("**") for cell in cells[3:7]] == [False, False, False, True]
    assert plans.row("KTH", "history", user, {"user": user, "perfect": user}, 0).count("no gap") == 1


def test_logs_that_are_not_known_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRACES", "/nowhere")
    assert plans.main(["SDSC"]) == 2
    monkeypatch.delenv("TRACES")
    assert plans.main([]) == 2
    assert "plans: use TRACES=DIR" in capsys.readouterr().err
