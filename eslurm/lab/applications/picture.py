"""A picture of a two-level run: which job computes on which core when, and how many cores compute (R-23, R-27).

White is a core that computes nothing. Needs matplotlib, an extra of the lab.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from eslurm.core.model.units import SECOND_US
from eslurm.lab.applications.two_level import Course

COLUMNS: Final = 900
SHADES: Final = 20
_BLANK: Final = -1


def draw(path: Path, course: Course, title: str) -> None:
    """Draw cores over time, and below them the share that computes. Raises `OSError`."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    cells, busy = cells_of(course)
    end_s = _length_us(course) / SECOND_US
    with mpl.rc_context({"svg.hashsalt": "eslurm", "svg.fonttype": "none"}):
        figure: Any = Figure(figsize=(9, 5.5), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        upper.imshow(
            cells,
            aspect="auto",
            interpolation="nearest",
            origin="lower",
            cmap="tab20",
            vmin=0,
            vmax=SHADES - 1,
            extent=(0, end_s, 0, len(cells)),
        )
        upper.set_ylabel("core")
        upper.set_title(title, fontsize=10)
        edges = [end_s * column / COLUMNS for column in range(COLUMNS)]
        lower.fill_between(
            edges, 0, [100 * share for share in busy], step="post", color="#4878a8", linewidth=0
        )
        lower.set_ylim(0, 100)
        lower.set_ylabel("computing, %")
        lower.set_xlabel("seconds from the first start")
        figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)


def cells_of(course: Course) -> tuple[Any, list[float]]:
    """For each core and column the shade of the job that computes longest there, and the share of cores that compute."""
    import numpy

    cores = {core: row for row, core in enumerate(course.cores())}
    begin_us = min(one.start_us for one in course.lived)
    width_us = _length_us(course) / COLUMNS
    cells: Any = numpy.full((len(cores), COLUMNS), _BLANK, dtype=numpy.int16)
    most: Any = numpy.zeros((len(cores), COLUMNS))
    busy: Any = numpy.zeros(COLUMNS)
    for task in course.tasks:
        row = cores[task.chunk.core]
        low, high = (task.chunk.begin_us - begin_us) / width_us, (task.chunk.end_us - begin_us) / width_us
        for column in range(int(low), min(int(high) + 1, COLUMNS)):
            part = min(high, column + 1) - max(low, column)
            busy[column] += part
            if part > most[row, column] and part > 0:
                most[row, column] = part
                cells[row, column] = task.job_id % SHADES
    return numpy.ma.masked_equal(cells, _BLANK), (busy / len(cores)).tolist()


def _length_us(course: Course) -> int:
    return max(one.end_us for one in course.lived) - min(one.start_us for one in course.lived)
