"""E-65: five communication structures against the share of failed nodes, each with and without satellites."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from benchmarks.curves.drawing import COMMAND, SIZES, mean_s, ours, paper, percent, seconds, table
from benchmarks.curves.parameters import (
    LOAD,
    OURS,
    OURS_PLAIN,
    PAPER,
    PAPER_ROOT_WIDTH,
    PAPER_WIDTH,
    System,
    budget_s,
    satellites_for,
)
from benchmarks.curves.structures import Layout, Structure
from benchmarks.plot import Plot, Series, write

STRUCTURES: tuple[Structure, ...] = ("ring", "star", "pull", "tree", "fptree")
SHARES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3)
SHARES_SMALL = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
SEPARATED = msgspec.structs.replace(PAPER, leg_s=PAPER.send_s)
"""The paper took the structures out of the resource manager: the root is a process like the others."""


class Case(msgspec.Struct, frozen=True):
    """One series. Nodes of the paper are powered off; of ours half are, and half refuse."""

    name: str
    layout: Layout
    system: System
    recall: float = 1.0

    def times_s(self, nodes: int) -> dict[float, float]:
        """The time for each share of failed nodes."""
        shares = SHARES_SMALL if nodes == SIZES[0] else SHARES
        refused = 0.0 if self.system is SEPARATED else 0.5
        return {
            share: mean_s(
                nodes,
                share,
                self.layout,
                self.system,
                LOAD,
                recall=self.recall,
                refused_share=refused,
            )
            for share in shares
        }


def cases(satellites: int) -> Iterator[Case]:
    """The compared systems."""
    for structure in STRUCTURES:
        yield Case(structure, paper(structure, satellites), SEPARATED)
    yield Case("fptree, recall 0.8", paper("fptree", satellites), SEPARATED, 0.8)
    yield Case("ours: tree, 3 tries", ours("tree", satellites), OURS_PLAIN)
    yield Case("ours: fptree, recall 0.8", ours("fptree", satellites), OURS, 0.8)


def make(directory: Path) -> Iterator[str]:
    """Draw the pictures; the lines of the tables."""
    rows: list[list[str]] = []
    for nodes in SIZES:
        for satellites in (0, satellites_for(nodes)):
            found = {case.name: case.times_s(nodes) for case in cases(satellites)}
            name = f"curves-e65-{nodes}{'-satellites' if satellites else ''}.svg"
            write(_picture(nodes, satellites, found), directory / name)
            yield f"![Five structures at {nodes:,} nodes with {satellites} satellites]({name})"
            yield ""
            rows += _rows(nodes, satellites, found)
    head = ("nodes", "satellites", "structure", *(f"{percent(share)} failed" for share in SHARES))
    yield from table(head, rows)


def _picture(nodes: int, satellites: int, found: Mapping[str, Mapping[float, float]]) -> Plot:
    series = [
        Series(name, [(share * 100, time) for share, time in times_s.items()], dashed=name.startswith("ours"))
        for name, times_s in found.items()
    ]
    root_width = PAPER_ROOT_WIDTH if satellites else PAPER_WIDTH
    budget = budget_s(-(-nodes // max(1, satellites)), root_width)
    return Plot(
        title=f"Structures and failed nodes at {nodes:,} nodes, {satellites or 'no'} satellites (E-65)",
        note=f"job load; the paper's code would give up after {seconds(budget)} (X-13); {COMMAND} e65",
        x_label="failed nodes, %",
        y_label="seconds",
        y_scale="log",
        series=series,
    )


def _rows(nodes: int, satellites: int, found: Mapping[str, Mapping[float, float]]) -> Iterator[list[str]]:
    for name, times_s in found.items():
        yield [f"{nodes:,}", f"{satellites}", name, *(seconds(times_s[share]) for share in SHARES)]
