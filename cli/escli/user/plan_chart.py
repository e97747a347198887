"""The plan as a picture in the terminal: nodes from top to bottom, time from left to right, a letter for each job.

Nodes are grouped into as many rows as fit; a cell shows the job that has the most of its nodes at that time, in lower case
when less than half of them are in use. Pure but for `chart_here`, which asks the terminal.
"""

from __future__ import annotations

import os
import shutil
import sys

from escli import clock
from escli.user.plan_text import job_label_of, summary
from escli.user.why import length
from eslurm.compat.errors import escaped
from eslurm.compat.hostlist import expand, fold
from eslurm.compat.moments import format_moment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_OTHERS, _FEW_OTHERS = "#", "+"
_FREE, _RESERVED, _NOW = ".", "/", "|"
_WIDTH_MIN, _WIDTH_MAX = 40, 400
_ROWS_MAX = 32
_NODES_MAX = 100_000
_PAST = 12
"""One part in so many of the time shown lies before now."""
_LABEL_MAX = 24
_TICK_COLUMNS = 12
"""At least so many columns lie between two times on the axis, which are this far apart:"""
_TICKS_S = (
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    10_800,
    21_600,
    43_200,
    86_400,
    172_800,
    604_800,
    2_419_200,
)
_COLOURS = (24, 28, 88, 54, 94, 23, 58, 90, 52, 22, 18, 130, 60, 64, 96, 30)


def chart_here(reply: Any, nodes: Sequence[str]) -> str:
    """The chart for this terminal: its width and height, in colours when it is one."""
    width, height = shutil.get_terminal_size((100, 40))
    is_terminal = sys.stdout.isatty()
    coloured = is_terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    rows = max(4, height - 12) if is_terminal else _ROWS_MAX
    return chart(reply, nodes, width=width, rows=min(rows, _ROWS_MAX), coloured=coloured)


def chart(reply: Any, nodes: Sequence[str], *, width: int, rows: int, coloured: bool = False) -> str:
    """The picture, its legend, and one sentence."""
    if not nodes:
        return "no nodes"
    groups = _grouped(nodes, rows)
    labels = [_label(group) for group in groups]
    margin = max(map(len, labels))
    grid = _Grid(reply, groups, max(_WIDTH_MIN, min(width, _WIDTH_MAX)) - margin - 1)
    lines = [f"{'':{margin}} {line}".rstrip() for line in grid.axis()]
    lines += [
        f"{label:{margin}} {grid.line(row, coloured=coloured)}".rstrip() for row, label in enumerate(labels)
    ]
    return "\n".join([*lines, "", *grid.legend(coloured=coloured), "", summary(reply)])


def _grouped(nodes: Sequence[str], rows: int) -> list[Sequence[str]]:
    size = -(-len(nodes) // max(1, rows))
    return [nodes[at : at + size] for at in range(0, len(nodes), size)]


def _label(group: Sequence[str]) -> str:
    text = fold(group)
    if len(text) <= _LABEL_MAX:
        return text
    return f"{group[0]}..{group[-1]}"[:_LABEL_MAX]


class _Grid:
    """Cells by row and column; column 0 is a little before now."""

    def __init__(self, reply: Any, groups: Sequence[Sequence[str]], columns: int) -> None:
        self._now_us = reply.now_us
        self._columns = columns
        self._sizes = [len(group) for group in groups]
        self._rows = {name: row for row, group in enumerate(groups) for name in group}
        jobs, reservations = list(reply.jobs), list(reply.reservations)
        self._span(jobs, reservations)
        shape = range(len(groups))
        # Per cell: nodes in use, the nodes of the job that has most, and its letter.
        self._used = [[0] * columns for _ in shape]
        self._most = [[0] * columns for _ in shape]
        self._cells = [[_FREE] * columns for _ in shape]
        for one in reservations:
            for row in self._nodes_by_row(one.nodes):
                for column in self._between(one):
                    self._cells[row][column] = _RESERVED
        placed = [(one, self._nodes_by_row(one.nodes)) for one in jobs]
        self._tags = self._tagged(placed)
        self._described = [_described(one, self._now_us) for one in jobs]
        for at, (one, by_row) in enumerate(placed):
            self._draw(at, one, by_row)

    def _span(self, jobs: Sequence[Any], reservations: Sequence[Any]) -> None:
        """From a little before now to the last end that is known, or to a little behind the last start."""
        ends = [one.end_us for one in (*jobs, *reservations) if one.end_us > self._now_us]
        starts = [one.start_us for one in jobs if one.start_us > self._now_us]
        last_us = max([*ends, *starts], default=self._now_us + 3_600_000_000)
        ahead_us = max(60_000_000, last_us - self._now_us)
        self._from_us = self._now_us - ahead_us // _PAST
        self._step_us = max(1, -(-(self._now_us + ahead_us - self._from_us) // self._columns))
        self._now_column = (self._now_us - self._from_us) // self._step_us

    def _nodes_by_row(self, nodes: str) -> Mapping[int, int]:
        found: dict[int, int] = {}
        for name in expand(nodes, "plan", _NODES_MAX) if nodes else ():
            row = self._rows.get(name)
            if row is not None:
                found[row] = found.get(row, 0) + 1
        return found

    def _between(self, one: Any) -> range:
        first = max(0, (one.start_us - self._from_us) // self._step_us)
        if not one.end_us:
            return range(first, self._columns)
        last = -(-(one.end_us - self._from_us) // self._step_us)
        return range(first, min(self._columns, max(last, first + 1)))

    def _tagged(self, placed: Sequence[tuple[Any, Mapping[int, int]]]) -> dict[int, str]:
        """Letters for the jobs that cover the most, in the order of their starts."""
        areas = [
            (-sum(by_row.values()) * len(self._between(one)), at) for at, (one, by_row) in enumerate(placed)
        ]
        largest = sorted(at for area, at in sorted(areas)[: len(_LETTERS)] if area)
        return dict(zip(largest, _LETTERS, strict=False))

    def _draw(self, at: int, one: Any, by_row: Mapping[int, int]) -> None:
        tag = self._tags.get(at, _OTHERS)
        for row, count in by_row.items():
            used, most, cells = self._used[row], self._most[row], self._cells[row]
            for column in self._between(one):
                used[column] += count
                if count > most[column]:
                    most[column], cells[column] = count, tag

    def axis(self) -> list[str]:
        """Round times above their columns, and where now is."""
        tick_s = next(
            (tick for tick in _TICKS_S if tick * 1_000_000 >= _TICK_COLUMNS * self._step_us), _TICKS_S[-1]
        )
        ahead_s = clock.local_offset_s(self._now_us // 1_000_000)
        local_s = self._now_us // 1_000_000 + ahead_s
        times, marks = [" "] * self._columns, ["-"] * self._columns
        free = self._put(times, self._now_column, "now")
        marks[self._now_column] = _NOW
        at_s = -(-local_s // tick_s) * tick_s - ahead_s
        while (column := (at_s * 1_000_000 - self._from_us) // self._step_us) < self._columns:
            if column > self._now_column:
                marks[column] = "+"
            if column >= free:
                free = self._put(times, column, _clock(at_s * 1_000_000, tick_s))
            at_s += tick_s
        return ["".join(times[: self._columns]), "".join(marks)]

    def _put(self, times: list[str], column: int, text: str) -> int:
        """Write a text; returns the next free column, or none where it would be cut."""
        if column + len(text) > self._columns:
            return self._columns
        times[column : column + len(text)] = text
        return column + len(text) + 1

    def line(self, row: int, *, coloured: bool) -> str:
        """One row of cells; the mark of now only over free ones."""
        out = []
        for column, cell in enumerate(self._cells[row]):
            shown = cell
            if cell == _FREE and column == self._now_column:
                shown = _NOW
            elif cell == _OTHERS and self._used[row][column] * 2 < self._sizes[row]:
                shown = _FEW_OTHERS
            elif cell in _LETTERS and self._used[row][column] * 2 < self._sizes[row]:
                shown = cell.lower()
            out.append(_painted(shown, cell) if coloured else shown)
        return "".join(out)

    def legend(self, *, coloured: bool) -> list[str]:
        """The job of each letter; the other signs where they are used."""
        lines = []
        seen = {cell for row in self._cells for cell in row}
        for at, tag in self._tags.items():
            if tag in seen:
                lines.append(f"  {_painted(tag, tag) if coloured else tag}  {self._described[at]}")
        if _OTHERS in seen:
            lines.append(f"  {_OTHERS}  other jobs")
        if _RESERVED in seen:
            lines.append(f"  {_RESERVED}  reserved")
        lines.append(f"  {_FREE}  free; a small letter: less than half of these nodes are in use")
        return lines


def _described(one: Any, now_us: int) -> str:
    """`job 17 of ada (fluid): 12 nodes, runs for 2 h more`."""
    nodes = "1 node" if one.node_count == 1 else f"{one.node_count} nodes"
    tasks = f", {one.tasks} tasks" if one.tasks > 1 else ""
    if one.running:
        left = f"runs for {_length(one.end_us - now_us)} more" if one.end_us else "runs without a time limit"
    else:
        left = f"in {_length(one.start_us - now_us)}"
        left += f" for {_length(one.end_us - one.start_us)}" if one.end_us else " without a time limit"
    return f"job {job_label_of(one)} of {one.user} ({escaped(one.name)}): {nodes}{tasks}, {left}"


def _length(length_us: int) -> str:
    return length(max(0, -(-length_us // 1_000_000)))


def _clock(at_us: int, tick_s: int) -> str:
    """The shortest form of a time that tells two ticks apart, with the day for long ones."""
    day, _, time = format_moment(at_us, clock.local_offset_s).partition("T")
    return f"{day[5:]} {time[:5]}" if tick_s > 3 * 3600 else time[:5]


def _painted(shown: str, cell: str) -> str:
    if cell in _LETTERS:
        return f"\x1b[97;48;5;{_COLOURS[_LETTERS.index(cell) % len(_COLOURS)]}m{shown}\x1b[0m"
    if cell == _RESERVED:
        return f"\x1b[7m{shown}\x1b[0m"
    return shown
