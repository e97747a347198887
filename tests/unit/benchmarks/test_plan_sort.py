"""The figures of sorting: each is printed once, whatever the size of the queue."""

from __future__ import annotations

import io

import pytest

from benchmarks.figures import Figures
from benchmarks.plan import sort


def test_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort, "JOBS", 700)
    figures = Figures(io.StringIO())
    sort.run(figures, quick=True)
    assert [figure.name for figure in figures.all] == [
        "sort_60k_ms",
        "rank_60k_unchanged_ms",
        "rank_60k_changed_100_ms",
        "rank_60k_anew_ms",
        "rank_60k_slice_max_ms",
    ]
    assert {figure.unit for figure in figures.all} == {"ms"}
