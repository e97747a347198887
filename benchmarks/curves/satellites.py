"""E-69: the time of a heartbeat broadcast to all nodes against the number of satellites."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.curves.drawing import COMMAND, SIZES, mean_s, ours, paper, seconds, table
from benchmarks.curves.parameters import HEARTBEAT, OURS, PAPER, satellites_for
from benchmarks.plot import Plot, Series, write

NODES = (20_480, 61_440, *SIZES[1:])
"""The paper's machine, as it says and as its tables say (E-d), and beyond."""
COUNTS = (1, 2, 3, 4, 5, 7, 10, 14, 20, 30, 40, 50, 70, 100, 140, 200, 300)
FAILED_SHARE = 0.01


def times_s(nodes: int, name: str, failed_share: float = 0.0) -> dict[int, float]:
    """The time for each number of satellites."""
    system, layout = (PAPER, paper) if name == "paper" else (OURS, ours)
    return {
        count: mean_s(nodes, failed_share, layout("fptree", count), system, HEARTBEAT) for count in COUNTS
    }


def best(found: Mapping[int, float]) -> int:
    """The number of satellites with the least time, the fewest of equals."""
    return min(found, key=lambda count: (found[count], count))


def make(directory: Path) -> Iterator[str]:
    """Draw the pictures; the lines of the table."""
    rows = []
    for name in ("paper", "ours"):
        found = {nodes: times_s(nodes, name) for nodes in NODES}
        file = f"curves-e69-{name}.svg"
        write(_picture(name, found), directory / file)
        yield f"![Heartbeat time against the number of satellites, {name}]({file})"
        yield ""
        rows += [row(name, nodes, of_nodes) for nodes, of_nodes in found.items()]
        rows += [row(name, nodes, times_s(nodes, name, FAILED_SHARE), "1 %") for nodes in NODES]
    head = (
        "system",
        "nodes",
        "failed",
        "best number",
        "its time",
        "20 satellites",
        "1 per 5,000",
        "1 satellite",
    )
    yield from table(head, rows)


def _picture(name: str, found: Mapping[int, Mapping[int, float]]) -> Plot:
    return Plot(
        title=f"Heartbeat to all nodes: what other numbers of satellites cost ({name}, E-69)",
        note=f"no failed nodes; {COMMAND} e69",
        x_label="satellites",
        y_label="% slower than with the best number",
        x_scale="log",
        series=[
            Series(
                f"{nodes:,} nodes",
                [(count, (time / min(of_nodes.values()) - 1) * 100) for count, time in of_nodes.items()],
            )
            for nodes, of_nodes in found.items()
        ],
    )


def row(name: str, nodes: int, found: Mapping[int, float], failed: str = "none") -> list[str]:
    """A line of the table."""
    least_s = min(found.values())
    rule = min(COUNTS, key=lambda count: abs(count - satellites_for(nodes)))
    cells = [f"{seconds(found[count])} ({found[count] / least_s - 1:+.1%})" for count in (20, rule, 1)]
    return [name, f"{nodes:,}", failed, f"{best(found)}", seconds(least_s), *cells]
