"""Line plots as plain SVG files: axes, linear or logarithmic scales, named series, a legend.

Invariant: the picture is a function of the `Plot` alone, byte for byte, so a plot in version control
changes only when its data does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal
from xml.sax.saxutils import escape

import msgspec

Scale = Literal["linear", "log"]
Point = tuple[float, float | None]
"""x and y; None for y leaves a gap in the line."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444", "#8c6d31")
"""Told apart by the colour-blind too (after Okabe and Ito)."""

FRAME_X, FRAME_Y, FRAME_WIDTH, FRAME_HEIGHT = 76, 64, 520, 320
LEGEND_WIDTH, LEGEND_LINE = 190, 20
WIDTH, HEIGHT = FRAME_X + FRAME_WIDTH + LEGEND_WIDTH, FRAME_Y + FRAME_HEIGHT + 60
TICKS_WANTED = 6
HEADROOM = 1.04
"""A linear axis goes a little further than its largest value."""


class Series(msgspec.Struct, frozen=True):
    """One named line. `dashed` suits a reference; without `line` only the marks are drawn."""

    name: str
    points: Sequence[Point]
    dashed: bool = False
    line: bool = True
    marks: bool = True


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """A picture. `note` stands under the title: conditions, or the command that made it.

    `y_min` and `y_max` extend the axis, they cut nothing off.
    """

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    note: str = ""
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    y_min: float | None = None
    y_max: float | None = None


class Axis(msgspec.Struct, frozen=True):
    """Maps values between `low` and `high` to pixels between `start` and `end`."""

    scale: Scale
    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """The pixel of a value."""
        if self.scale == "log":
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def write(plot: Plot, path: Path) -> None:
    """Write the picture, making its directory. Raises ValueError as `svg` does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(svg(plot), encoding="utf-8")


def svg(plot: Plot) -> str:
    """The picture. Raises ValueError without a point, or for one that its logarithmic axis cannot show."""
    points = [point for series in plot.series for point in series.points if point[1] is not None]
    if not points:
        raise ValueError(f"plot '{plot.title}' has no points")
    ys = [y for _, y in points if y is not None]
    ys += [bound for bound in (plot.y_min, plot.y_max) if bound is not None]
    x_axis = make_axis(plot.x_scale, [x for x, _ in points], FRAME_X, FRAME_X + FRAME_WIDTH, tight=True)
    y_axis = make_axis(plot.y_scale, ys, FRAME_Y + FRAME_HEIGHT, FRAME_Y)
    height = max(HEIGHT, FRAME_Y + LEGEND_LINE * (len(plot.series) + 1))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' font-family="system-ui, Helvetica, Arial, sans-serif" font-size="12" fill="#333333">',
        f"<title>{escape(plot.title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>',
        _text(FRAME_X, 28, plot.title, 'font-size="16" font-weight="600"'),
        _text(FRAME_X, 47, plot.note, 'fill="#777777"'),
        *_grid(x_axis, y_axis),
        _text(FRAME_X + FRAME_WIDTH / 2, FRAME_Y + FRAME_HEIGHT + 44, plot.x_label, 'text-anchor="middle"'),
        _text(
            18,
            FRAME_Y + FRAME_HEIGHT / 2,
            plot.y_label,
            f'text-anchor="middle" transform="rotate(-90 18 {FRAME_Y + FRAME_HEIGHT / 2:g})"',
        ),
    ]
    for index, series in enumerate(plot.series):
        colour = COLOURS[index % len(COLOURS)]
        lines += _drawn(series, colour, x_axis, y_axis)
        lines += _legend(series, colour, FRAME_Y + 8 + index * LEGEND_LINE)
    return "\n".join([line for line in lines if line] + ["</svg>\n"])


def make_axis(
    scale: Scale, values: Sequence[float], start: float, end: float, *, tight: bool = False
) -> Axis:
    """An axis that shows all `values`. A linear one begins at zero unless some are negative or it is `tight`
    and they are far from it; a logarithmic one ends at whole decades unless it is `tight` and has ticks
    enough without them.

    Raises ValueError for a value that is not finite, or not above zero on a logarithmic axis.
    """
    low, high = min(values), max(values)
    if not all(map(math.isfinite, values)):
        raise ValueError("only finite values can be drawn")
    if scale == "log":
        if low <= 0:
            raise ValueError(f"{low:g} cannot be drawn on a logarithmic axis")
        if not tight or len(tuple(log_ticks(low, high))) < 2:
            low = 10.0 ** math.floor(math.log10(low))
            high = max(10.0 ** math.ceil(math.log10(high)), low * 10)
        return Axis(scale, low, high, start, end, tuple(log_ticks(low, high)))
    if not tight or low < high / 2:
        low = min(low, 0.0)
    if low == high:
        high = low + 1
    if not tight:
        high = low + (high - low) * HEADROOM
    return Axis(scale, low, high, start, end, tuple(linear_ticks(low, high)))


def linear_ticks(low: float, high: float) -> Iterator[float]:
    """Multiples of 1, 2 or 5 times a power of ten within the bounds, about `TICKS_WANTED` of them."""
    rough = (high - low) / TICKS_WANTED
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    for multiple in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1):
        yield float(f"{multiple * step:.12g}")


def log_ticks(low: float, high: float) -> Iterator[float]:
    """Powers of ten within the bounds; with few of them also their double and fivefold."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first <= 3 else (1,)
    for exponent in range(first, last + 1):
        for factor in factors:
            tick = float(f"{factor}e{exponent}")
            if low * 0.9999 <= tick <= high * 1.0001:
                yield tick


def label(value: float) -> str:
    """A number as short as it can be read: 0.05, 20, 4,096, 20k, 1M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= max(size, 1e4) and value % (size / 10) == 0:
            return f"{value / size:g}{unit}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def _grid(x_axis: Axis, y_axis: Axis) -> Iterator[str]:
    right, bottom = FRAME_X + FRAME_WIDTH, FRAME_Y + FRAME_HEIGHT
    for tick in y_axis.ticks:
        y = y_axis.at(tick)
        yield f'<path d="M{FRAME_X} {y:.1f}H{right}" stroke="#e4e4e4"/>'
        yield _text(FRAME_X - 8, y + 4, label(tick), 'text-anchor="end"')
    for tick in x_axis.ticks:
        x = x_axis.at(tick)
        yield f'<path d="M{x:.1f} {FRAME_Y}V{bottom}" stroke="#f2f2f2"/>'
        yield f'<path d="M{x:.1f} {bottom}v5" stroke="#888888"/>'
        yield _text(x, bottom + 20, label(tick), 'text-anchor="middle"')
    yield f'<path d="M{FRAME_X} {FRAME_Y}V{bottom}H{right}" fill="none" stroke="#888888"/>'


def _drawn(series: Series, colour: str, x_axis: Axis, y_axis: Axis) -> Iterator[str]:
    places = [None if y is None else (x_axis.at(x), y_axis.at(y)) for x, y in series.points]
    if series.line:
        steps = [
            f"{'M' if before is None else 'L'}{place[0]:.1f} {place[1]:.1f}"
            for before, place in pairwise([None, *places])
            if place is not None
        ]
        yield f'<path d="{"".join(steps)}" {_stroke(series, colour)}/>'
    if series.marks:
        for place in places:
            if place is not None:
                yield _mark(place[0], place[1], colour)


def _legend(series: Series, colour: str, y: float) -> Iterator[str]:
    x = FRAME_X + FRAME_WIDTH + 18
    if series.line:
        yield f'<path d="M{x} {y}h24" {_stroke(series, colour)}/>'
    if series.marks:
        yield _mark(x + 12, y, colour)
    yield _text(x + 32, y + 4, series.name)


def _stroke(series: Series, colour: str) -> str:
    dashes = ' stroke-dasharray="6 4"' if series.dashed else ""
    return f'fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"{dashes}'


def _mark(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" stroke="#ffffff"/>'


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    space = " " if attributes else ""
    return f'<text x="{x:g}" y="{y:.1f}"{space}{attributes}>{escape(text)}</text>' if text else ""
