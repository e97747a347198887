"""The constructor's figures: their names, the worse case is the one that is told, and the table of shapes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from benchmarks import construct
from benchmarks.figures import Figures


def test_the_worse_of_few_and_many_predicted_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def pretend(nodes: int, share: float, runs: int, *, shuffled: bool) -> list[float]:
        return [nodes * share if shuffled else 0.0] * runs

    monkeypatch.setattr(construct, "times_ms", pretend)
    figures = Figures(io.StringIO())
    construct.measure(figures, Path(), quick=True)
    assert [(figure.name, figure.value, figure.n) for figure in figures.all] == [
        ("construct_20480_ms", 6144.0, 10),
        ("construct_1000000_ms", 300_000.0, 6),
    ]


def test_a_run_takes_measurable_time() -> None:
    for shuffled in (False, True):
        taken = list(construct.times_ms(1000, 0.3, 3, shuffled=shuffled))
        assert len(taken) == 3 and min(taken) > 0


def test_the_table_has_the_leaf_shares_of_the_paper() -> None:
    rows = {tuple(cell.strip() for cell in line.split("|")[1:3]): line for line in construct.table()}
    # What was counted independently for the paper's 1,511 nodes (E-b).
    for width, share in (("2", "33.9%"), ("8", "61.4%"), ("16", "82.0%"), ("50", "96.7%"), ("200", "86.8%")):
        assert share in rows["1,511", width]
    assert "| 61.0% | 3 |" in rows["4,096", "50"]
