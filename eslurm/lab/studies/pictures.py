"""Line plots of estimators' figures, by matplotlib, which is imported only here and only to draw.

Invariant: the same plot gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

COLOURS: Final = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#444444",
    "#8c6d31",
    "#7f3c8d",
)
"""Told apart by the colour-blind too (after Okabe and Ito)."""


class Line(msgspec.Struct, frozen=True):
    """A named line through points; `spot` is marked as well."""

    name: str
    points: Sequence[tuple[float, float]]
    spot: tuple[float, float] | None = None
    marks: bool = False


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """One diagram. `guides` are vertical lines; `note` stands under the title."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    note: str = ""
    x_log: bool = False
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    guides: Sequence[float] = ()


def draw(path: Path, plots: Sequence[Plot]) -> None:
    """Writes a picture of plots side by side. Raises `OSError`."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "eslurm", "font.size": 9}):
        figure = Figure(figsize=(7.5 * len(plots), 5), layout="constrained")
        for axes, plot in zip(figure.subplots(1, len(plots), squeeze=False)[0], plots, strict=True):
            for index, line in enumerate(plot.lines):
                colour = COLOURS[index % len(COLOURS)]
                dashes = "-" if index < len(COLOURS) else "--"
                xs, ys = [x for x, _ in line.points], [y for _, y in line.points]
                axes.plot(
                    xs,
                    ys,
                    dashes,
                    color=colour,
                    label=line.name,
                    marker="o" if line.marks else "",
                    markersize=3,
                )
                if line.spot is not None:
                    axes.plot(*line.spot, marker="o", color=colour, markersize=8, markeredgecolor="white")
            for x in plot.guides:
                axes.axvline(x, color="#888888", linewidth=0.8, linestyle=":")
            if plot.x_log:
                axes.set_xscale("log")
            if plot.x_range is not None:
                axes.set_xlim(*plot.x_range)
            if plot.y_range is not None:
                axes.set_ylim(*plot.y_range)
            axes.set_title(plot.title + (f"\n{plot.note}" if plot.note else ""), fontsize=10)
            axes.set_xlabel(plot.x_label)
            axes.set_ylabel(plot.y_label)
            axes.grid(color="#e4e4e4", linewidth=0.6)
            if len(plot.lines) > 1:
                axes.legend(fontsize=8)
        figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else {})
