"""E-64: a broadcast to a job's nodes by a centralised tree, with satellites, with the FP-Tree, and with both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from benchmarks.curves.drawing import COMMAND, SIZES, mean_s, paper, percent, seconds, table
from benchmarks.curves.parameters import LOAD, PAPER, TERMINATE, Message, satellites_for
from benchmarks.curves.structures import Layout
from benchmarks.plot import Plot, Series, write

SHARES = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
PAPER_BOTH = {LOAD.name: -0.637, TERMINATE.name: -0.736}
PAPER_FPTREE = {LOAD.name: -0.363, TERMINATE.name: -0.549}
"""The paper's figures for 4K nodes; the satellites' part is read as the difference."""

Times = Mapping[str, list[float]]
"""Seconds for each of `SHARES`, by variant."""


def variants(nodes: int) -> dict[str, Layout]:
    """The four systems."""
    satellites = satellites_for(nodes)
    return {
        "centralised": paper("tree"),
        "satellites": paper("tree", satellites),
        "FP-Tree": paper("fptree"),
        "both": paper("fptree", satellites),
    }


def times(nodes: int, message: Message) -> Times:
    """All variants over all shares; every failed node was predicted."""
    return {
        name: [mean_s(nodes, share, layout, PAPER, message) for share in SHARES]
        for name, layout in variants(nodes).items()
    }


def changes(found: Times, name: str) -> list[float]:
    """The change against the centralised tree, as a share of it."""
    return [time / base - 1 for time, base in zip(found[name], found["centralised"], strict=True)]


def share_at(values: list[float], wanted: float) -> float | None:
    """The least failed share at which a falling curve over `SHARES` passes `wanted`; None if it never does."""
    known = list(zip(SHARES, values, strict=True))[1:]
    for (low, before), (high, after) in pairwise(known):
        if before >= wanted >= after:
            part = (before - wanted) / (before - after)
            return math.exp(math.log(low) + part * math.log(high / low))
    return None


def make(directory: Path) -> Iterator[str]:
    """Draw the pictures; the lines of the tables."""
    found = {nodes: {message.name: times(nodes, message) for message in (LOAD, TERMINATE)} for nodes in SIZES}
    for nodes in SIZES:
        name = f"curves-e64-{nodes}.svg"
        write(_picture(nodes, found[nodes]), directory / name)
        yield f"![Broadcast time of four variants at {nodes:,} nodes]({name})"
        yield ""
    yield from _beside_the_paper(found[SIZES[0]])
    yield ""
    yield from table(
        ("nodes", "failed", "message", "centralised", "satellites only", "FP-Tree only", "both"),
        (row for nodes in SIZES for row in _rows(nodes, found[nodes])),
    )


def _picture(nodes: int, found: Mapping[str, Times]) -> Plot:
    series = []
    for message, of_message in found.items():
        for name, times_s in of_message.items():
            points = [(share * 100, time_s) for share, time_s in zip(SHARES, times_s, strict=True)][1:]
            series.append(
                Series(f"{message.removeprefix('job ')}: {name}", points, dashed=message != LOAD.name)
            )
    return Plot(
        title=f"Job messages to {nodes:,} nodes in the paper's system (E-64)",
        note=f"{satellites_for(nodes)} satellites, recall 1; {COMMAND} e64",
        x_label="failed nodes, %",
        y_label="seconds",
        x_scale="log",
        y_scale="log",
        series=series,
    )


def _beside_the_paper(found: Mapping[str, Times]) -> Iterator[str]:
    rows = []
    for message, of_message in found.items():
        both, satellites = changes(of_message, "both"), changes(of_message, "satellites")
        at = share_at(both, PAPER_BOTH[message])
        total, fptree = PAPER_BOTH[message], PAPER_FPTREE[message]
        rows.append([message, "paper", "unknown", f"{total - fptree:.1%}", f"{fptree:.1%}", f"{total:.1%}"])
        for index in (SHARES.index(0.01), SHARES.index(0.02)):
            cells = (satellites[index], both[index] - satellites[index], both[index])
            rows.append([message, "model", percent(SHARES[index]), *(f"{cell:.1%}" for cell in cells)])
        rows.append(
            [message, "model, equal in total", percent(at) if at else "nowhere", "", "", f"{total:.1%}"]
        )
    yield from table(("message", "", "failed nodes", "satellites", "FP-Tree on top", "both"), rows)


def _rows(nodes: int, found: Mapping[str, Times]) -> Iterator[list[str]]:
    for share in (0.0, 0.001, 0.01, 0.05):
        for message, of_message in found.items():
            index = SHARES.index(share)
            base = seconds(of_message["centralised"][index])
            cells = [
                f"{seconds(of_message[name][index])} ({changes(of_message, name)[index]:+.0%})"
                for name in ("satellites", "FP-Tree", "both")
            ]
            yield [f"{nodes:,}", percent(share), message, base, *cells]
