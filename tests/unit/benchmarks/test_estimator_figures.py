"""`make bench-estimator`: its figures, from a log made up for it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from benchmarks.estimator import logs, measure
from benchmarks.figures import Figures
from tests.kits.estimator import log_file, synthetic


def test_without_logs_nothing_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    figures = Figures(io.StringIO())
    monkeypatch.delenv("TRACES", raising=False)
    measure.measure(figures, tmp_path, quick=True)
    monkeypatch.setenv("TRACES", str(tmp_path))
    measure.measure(figures, tmp_path, quick=True)
    err = capsys.readouterr().err
    assert not figures.all and "no TRACES=DIR" in err and f"no {tmp_path / logs.KTH}: left out" in err


def test_figures_of_a_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log_file(tmp_path / logs.KTH, synthetic(logs.WARM_UP_JOBS + 100))
    monkeypatch.setenv("TRACES", str(tmp_path))
    monkeypatch.setenv("ESTIMATORS", "last-2")
    monkeypatch.setattr(measure.registry, "DEFAULT", "last-2")
    figures = Figures(io.StringIO())
    measure.measure(figures, tmp_path, quick=True)
    found = {figure.name: figure for figure in figures.all}
    assert {"aea_kth_6000_last-2", "ur_start_kth_6000_last-2", "aea_scaled_kth_6000_last-2"} <= found.keys()
    assert 0 < found["aea_kth_6000_last-2"].value < 1 and found["aea_kth_6000_last-2"].n == 100
    assert found["train_cpu_s"].value == 0 < found["predict_ms"].value
    assert 10 < found["esestd_rss_mb"].value < 1_000
