"""The controller's figures of cooperation, on few nodes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from benchmarks import cooperation, loans
from benchmarks.figures import Figures


def test_each_figure_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooperation, "NODES", 4)
    # Of real processes: `make bench-cooperation`.
    monkeypatch.setattr(loans, "measure", lambda figures, directory, *, quick: None)
    figures = Figures(io.StringIO())
    cooperation.measure(figures, tmp_path, quick=True)
    found = {figure.name: (figure.value, figure.n) for figure in figures.all}
    assert found["loan_cpu_us"][1] == 4, "each owner lends to one job"
    for name in ("report", "report_borrowed", "report_excluding"):
        cost_us, count = found[f"{name}_cpu_us"]
        assert count == 20
        assert found[f"{name}_1000_core_percent"][0] == pytest.approx(cost_us / 10, rel=1e-3)
