"""E-32: what each further percent of failed nodes costs a tree that does not know of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec

from benchmarks.curves.drawing import COMMAND, SIZES, mean_s, ours, paper, seconds, table
from benchmarks.curves.parameters import LOAD, OURS, PAPER, Rescue, System, satellites_for
from benchmarks.curves.structures import Layout
from benchmarks.plot import Plot, Point, Series, write

NODES = (SIZES[0], 16_384, *SIZES[1:])
SHARES = tuple(percent / 100 for percent in range(11))
SHOWN = (0, 1, 2, 5, 10)
SATELLITES_FROM = 100_000
"""Without satellites the trees of such clusters take hours in the paper's system."""


class Case(msgspec.Struct, frozen=True):
    """One line of the table."""

    name: str
    layout: Layout
    system: System

    def times_s(self, nodes: int) -> list[float]:
        """One time for each of `SHARES`."""
        return [
            mean_s(nodes, share, self.layout, self.system, LOAD, recall=0.8, refused_share=self._refused)
            for share in SHARES
        ]

    @property
    def _refused(self) -> float:
        # The paper's nodes are powered off; ours are half that, half a daemon that is gone.
        return 0.5 if self.system is OURS else 0.0


def cases(nodes: int) -> Iterator[Case]:
    """The compared figures of a cluster of this size."""
    satellites = satellites_for(nodes) if nodes >= SATELLITES_FROM else 0
    yield Case(Rescue.ONE_BY_ONE.value, paper("tree", satellites), PAPER)
    for rescue in (Rescue.NEXT_HEAD, Rescue.AT_ONCE):
        yield Case(rescue.value, paper("tree", satellites), msgspec.structs.replace(PAPER, rescue=rescue))
    yield Case("ours, plain tree", ours("tree", satellites), OURS)
    yield Case("ours, FP-Tree", ours("fptree", satellites), OURS)


def make(directory: Path) -> Iterator[str]:
    """Draw the picture; the lines of its table."""
    rows = []
    series = []
    for nodes in NODES:
        for case in cases(nodes):
            times_s = case.times_s(nodes)
            rows.append(row(nodes, case.name, times_s))
            if case.system is PAPER:
                satellites = f" ({case.layout.satellites} sat.)" if case.layout.satellites else ""
                series.append(_series(f"{nodes:,}{satellites}", times_s))
            elif nodes == NODES[1]:
                series.append(_series(case.name, times_s, dashed=True))
    write(
        Plot(
            title="A tree that does not know which nodes failed (E-32)",
            note=f"solid: the paper's system, one by one; dashed: others at {NODES[1]:,} nodes; {COMMAND} e32",
            x_label="failed nodes, %",
            y_label="seconds for a job load message",
            y_scale="log",
            series=series,
        ),
        directory / "curves-e32.svg",
    )
    yield "![Broadcast time against the share of failed nodes](curves-e32.svg)"
    yield ""
    yield from table(("nodes", "rescue", *(f"{shown} % failed" for shown in SHOWN), "each further 1 %"), rows)


def _series(name: str, times_s: list[float], *, dashed: bool = False) -> Series:
    points: list[Point] = [(share * 100, time_s) for share, time_s in zip(SHARES, times_s, strict=True)]
    return Series(name, points, dashed=dashed)


def row(nodes: int, name: str, times_s: list[float]) -> list[str]:
    """A line of the table; `times_s` has one for each of `SHARES`."""
    steps_s = [after_s - before_s for before_s, after_s in pairwise(times_s)]
    span = f"{min(steps_s):+.1f} .. {max(steps_s):+.1f} s"
    return [f"{nodes:,}", name, *(seconds(times_s[shown]) for shown in SHOWN), span]
