"""A run as a picture: jobs as rectangles over processors, below them how many processors are busy and jobs wait.

Few jobs are drawn as shapes. Many are sampled: each pixel shows the job that has the processor in the middle of the
pixel's time, so that 28,000 jobs make a picture of the same size. Needs matplotlib, which is imported only here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from eslurm.core.model.units import SECOND_US
from eslurm.lab.workloads.lanes import Bar, Lanes
from eslurm.lab.workloads.loop import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHAPES_MAX: Final = 3_000
"""Rectangles up to which they are drawn one by one."""
COLUMNS: Final = 1_600
ROWS_MAX: Final = 800
DAY_S: Final = 86_400
HOUR_S: Final = 3_600
MINUTE_S: Final = 60
_COLOURS: Final = 20
_BLANK: Final = -1


class Window(msgspec.Struct, frozen=True):
    """The shown interval, in microseconds of virtual time."""

    from_us: int
    until_us: int


def window_of(result: Result, from_s: int | None, until_s: int | None) -> Window:
    """The whole run, or a part in seconds from the first submission."""
    begin_us = min((one.job.submit_us for one in result.ran), default=0)
    end_us = max((one.end_us for one in result.ran), default=begin_us + SECOND_US)
    start_us = begin_us + (from_s or 0) * SECOND_US
    stop_us = end_us if until_s is None else begin_us + until_s * SECOND_US
    return Window(start_us, max(stop_us, start_us + SECOND_US))


def draw(path: Path, result: Result, window: Window) -> None:
    """Writes the picture; the same run gives the same bytes. Raises `OSError`."""
    import matplotlib
    from matplotlib.figure import Figure

    lanes = Lanes(result.machine)
    bars = [
        bar
        for bar in lanes.bars(result, joined=True)
        if bar.ran.start_us < window.until_us and bar.ran.end_us > window.from_us
    ]
    begin_us = min((one.job.submit_us for one in result.ran), default=0)
    unit_s, unit = _unit(window)
    scale = _Scale(begin_us, unit_s)
    with matplotlib.rc_context({"svg.hashsalt": "eslurm", "font.size": 9}):
        figure = Figure(figsize=(12, 7), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
        if len(bars) <= SHAPES_MAX:
            _shapes(upper, bars, scale)
        else:
            _pixels(upper, bars, lanes.count, window, scale)
        upper.set_xlim(scale.x(window.from_us), scale.x(window.until_us))
        upper.set_ylim(0, lanes.count)
        upper.set_ylabel("processors")
        upper.set_title(
            f"{result.policy}, {result.machine.shape}, {len({bar.ran.job.name for bar in bars}):,} jobs"
        )
        _load(lower, result, window, scale)
        lower.set_xlabel(f"{unit} since the first submission")
        figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else {})


class _Scale:
    """From virtual time to the axis."""

    def __init__(self, begin_us: int, unit_s: int) -> None:
        self._begin_us = begin_us
        self._unit_us = unit_s * SECOND_US

    def x(self, at_us: float) -> float:
        return (at_us - self._begin_us) / self._unit_us


def _unit(window: Window) -> tuple[int, str]:
    length_s = (window.until_us - window.from_us) // SECOND_US
    for unit_s, name in ((DAY_S, "days"), (HOUR_S, "hours"), (MINUTE_S, "minutes")):
        if length_s >= 3 * unit_s:
            return unit_s, name
    return 1, "seconds"


def _colour(bar: Bar) -> int:
    """Neighbours in the log differ, and a job keeps its colour over all policies."""
    return bar.ran.job.record.job_id * 7 % _COLOURS


def _shapes(axes: Axes, bars: Sequence[Bar], scale: _Scale) -> None:
    import matplotlib
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    colours = matplotlib.colormaps["tab20"]
    patches = [
        Rectangle(
            (scale.x(bar.ran.start_us), bar.low),
            scale.x(bar.ran.end_us) - scale.x(bar.ran.start_us),
            bar.high - bar.low,
        )
        for bar in bars
    ]
    collection = PatchCollection(
        patches, facecolors=[colours(_colour(bar)) for bar in bars], edgecolors="white", linewidths=0.3
    )
    axes.add_collection(collection)


def _pixels(axes: Axes, bars: Sequence[Bar], lanes: int, window: Window, scale: _Scale) -> None:
    import matplotlib
    import numpy

    rows = min(lanes, ROWS_MAX)
    picture: Any = numpy.full((rows, COLUMNS), _BLANK, dtype=numpy.int16)
    for bar in bars:
        left, right = (_column(at_us, window) for at_us in (bar.ran.start_us, bar.ran.end_us))
        low, high = _row(bar.low, rows, lanes), _row(bar.high, rows, lanes)
        picture[low:high, left:right] = _colour(bar)
    shown: Any = numpy.ma.masked_equal(picture, _BLANK)
    axes.imshow(
        shown,
        cmap=matplotlib.colormaps["tab20"],
        vmin=0,
        vmax=_COLOURS - 1,
        interpolation="nearest",
        origin="lower",
        aspect="auto",
        extent=(scale.x(window.from_us), scale.x(window.until_us), 0, lanes),
    )


def _column(at_us: int, window: Window) -> int:
    """The first column whose middle is at or after an instant."""
    share = (at_us - window.from_us) * COLUMNS / (window.until_us - window.from_us)
    return min(max(round(share), 0), COLUMNS)


def _row(lane: int, rows: int, lanes: int) -> int:
    return round(lane * rows / lanes)


def _load(axes: Axes, result: Result, window: Window, scale: _Scale) -> None:
    """Busy processors, averaged over each column, and waiting jobs at its middle."""
    import numpy

    busy: Any = numpy.zeros(COLUMNS)
    waiting: Any = numpy.zeros(COLUMNS)
    width_us = (window.until_us - window.from_us) / COLUMNS
    edges: Any = window.from_us + numpy.arange(COLUMNS) * width_us
    for one in result.ran:
        if one.start_us < window.until_us and one.end_us > window.from_us:
            first = max(int((one.start_us - window.from_us) // width_us), 0)
            last = min(int((one.end_us - window.from_us) // width_us) + 1, COLUMNS)
            inside = edges[first:last]
            overlap = numpy.minimum(inside + width_us, one.end_us) - numpy.maximum(inside, one.start_us)
            busy[first:last] += numpy.maximum(overlap, 0) / width_us * one.job.processors
        waiting[_column(one.job.submit_us, window) : _column(one.start_us, window)] += 1
    at = [scale.x(edge + width_us / 2) for edge in edges]
    axes.fill_between(at, busy, step="mid", color="tab:blue", alpha=0.4, linewidth=0)
    axes.set_ylabel("busy", color="tab:blue")
    axes.set_ylim(0, result.machine.processors)
    other = axes.twinx()
    other.plot(at, waiting, color="tab:red", linewidth=0.8)
    other.set_ylabel("waiting jobs", color="tab:red")
    other.set_ylim(bottom=0)
