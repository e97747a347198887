"""The figures of loops, on loops that are small."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from benchmarks import loops as figures_of_loops
from benchmarks.figures import Figures


def test_each_figure_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("DECISIONS", 200), ("ROUNDS", 1), ("KILLED_WORKERS", 2), ("KILL_EVERY", 2000)):
        monkeypatch.setattr(figures_of_loops, name, value)
    monkeypatch.setattr(figures_of_loops, "_steps_of", lambda seconds: 1)
    figures = Figures(io.StringIO())
    figures_of_loops.measure(figures, tmp_path, quick=True)
    found = {figure.name: figure.value for figure in figures.all}
    assert found["loops_decision_us_max"] > 0
    assert 0 < found["loops_busy_share"] <= 1
    assert found["loops_64_workers_wrong"] == 0
    assert found["loops_64_workers_killed"] > 0
