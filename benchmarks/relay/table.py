"""The figures of `make bench-relay` as a table: one row per share of dead nodes, one column per structure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from benchmarks.figures import Figure
from benchmarks.relay.bout import STRUCTURES

_DEAD = re.compile(r"broadcast_(\d+)_(\d+)dead_(\w+)_s")


def render(figures: Sequence[Figure]) -> str:
    """A table of the structures, then every other figure of the list, one a line."""
    cells: dict[tuple[int, int], dict[str, str]] = {}
    others: list[list[str]] = []
    for figure in figures:
        found = _DEAD.fullmatch(figure.name)
        if found is None:
            others.append([figure.name, _value(figure), figure.unit])
        else:
            nodes, percent, structure = found.groups()
            cells.setdefault((int(nodes), int(percent)), {})[structure] = _value(figure)
    rows = [["nodes", "dead", *(f"{structure} s" for structure in STRUCTURES)]]
    for (nodes, percent), by_structure in sorted(cells.items()):
        rows.append([str(nodes), f"{percent} %", *(by_structure.get(one, "") for one in STRUCTURES)])
    return "\n".join(["", *_lines(rows), "", *_lines(others), ""])


def _value(figure: Figure) -> str:
    return f"> {figure.value:g}" if "not finished" in figure.unit else f"{figure.value:g}"


def _lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell; the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
