"""The plot writer: where axes end, where ticks lie, and that what is drawn is well-formed SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.plot import Plot, Series, label, linear_ticks, log_ticks, make_axis, svg, write

SVG = "{http://www.w3.org/2000/svg}"


def plot(*series: Series, **more) -> Plot:
    return Plot(title="a < b & c", x_label="nodes", y_label="seconds", series=series, **more)


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(picture).iter(f"{SVG}text")]


def test_a_picture_names_its_axes_series_and_ticks() -> None:
    picture = svg(
        plot(Series("fptree", [(0, 1), (10, 4)]), Series("tree", [(0, 2), (10, 5)]), note="made by")
    )
    found = texts(picture)
    assert {"a < b & c", "made by", "nodes", "seconds", "fptree", "tree", "0", "10", "5"} <= set(found)


def test_the_same_plot_is_the_same_text() -> None:
    series = Series("x", [(1, 0.1), (2, 0.7)], dashed=True)
    assert svg(plot(series)) == svg(plot(series))
    assert "stroke-dasharray" in svg(plot(series))


def test_a_gap_breaks_the_line_and_has_no_mark() -> None:
    root = ET.fromstring(svg(plot(Series("x", [(1, 1), (2, None), (3, 3), (4, 2)]))))
    lines = [path.get("d", "") for path in root.iter(f"{SVG}path") if path.get("stroke-width") == "2"]
    assert [(line.count("M"), line.count("L")) for line in lines] == [(2, 1), (1, 0)]
    assert sum(1 for _ in root.iter(f"{SVG}circle")) == 3 + 1


def test_marks_without_a_line_and_a_line_without_marks() -> None:
    root = ET.fromstring(svg(plot(Series("x", [(1, 1), (2, 2)], line=False))))
    assert not [path for path in root.iter(f"{SVG}path") if path.get("stroke-width") == "2"]
    root = ET.fromstring(svg(plot(Series("x", [(1, 1), (2, 2)], marks=False))))
    assert not list(root.iter(f"{SVG}circle"))


def test_points_lie_where_the_axes_say() -> None:
    axis = make_axis("linear", [0, 50, 100], 0, 1000, tight=True)
    assert [axis.at(value) for value in (0, 50, 100)] == [0, 500, 1000]
    axis = make_axis("log", [1, 1000], 300, 0)
    assert [round(axis.at(value)) for value in (1, 10, 100, 1000)] == [300, 200, 100, 0]


def test_linear_axes_begin_at_zero_unless_values_are_far_from_it() -> None:
    assert make_axis("linear", [3, 9], 0, 1).low == 0
    assert make_axis("linear", [-3, 9], 0, 1).low == -3
    assert make_axis("linear", [8, 9], 0, 1, tight=True).low == 8
    assert make_axis("linear", [4, 4], 0, 1, tight=True).high == 5


def test_log_axes_end_at_decades_unless_tight() -> None:
    axis = make_axis("log", [0.3, 70], 0, 1)
    assert (axis.low, axis.high) == (0.1, 100)
    axis = make_axis("log", [4096, 1_000_000], 0, 1, tight=True)
    assert (axis.low, axis.high) == (4096, 1_000_000)
    axis = make_axis("log", [3000, 4500], 0, 1, tight=True)
    assert (axis.low, axis.high) == (1000, 10_000)


def test_bounds_extend_an_axis() -> None:
    assert "50" in texts(svg(plot(Series("x", [(1, 1), (2, 2)]), y_max=50)))


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0, 0.31, [0, 0.1, 0.2, 0.3]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
        (7, 1007, [200, 400, 600, 800, 1000]),
    ],
)
def test_linear_ticks(low: float, high: float, ticks: list[float]) -> None:
    assert list(linear_ticks(low, high)) == ticks


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(1, 10, [1, 2, 5, 10]), (0.01, 100, [0.01, 0.1, 1, 10, 100]), (4096, 20_480, [5000, 10_000, 20_000])],
)
def test_log_ticks(low: float, high: float, ticks: list[float]) -> None:
    assert list(log_ticks(low, high)) == ticks


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.05, "0.05"),
        (20, "20"),
        (4096, "4,096"),
        (20_000, "20k"),
        (20_480, "20,480"),
        (1e6, "1M"),
        (1_500_000, "1.5M"),
        (2e10, "20G"),
        (-30_000, "-30k"),
    ],
)
def test_labels_are_short(value: float, shown: str) -> None:
    assert label(value) == shown


@pytest.mark.parametrize(
    ("series", "more", "why"),
    [
        ([], {}, "no points"),
        ([Series("x", [(1, None)])], {}, "no points"),
        ([Series("x", [(1, 0)])], {"y_scale": "log"}, "logarithmic"),
        ([Series("x", [(0, 1)])], {"x_scale": "log"}, "logarithmic"),
        ([Series("x", [(1, float("inf"))])], {}, "finite"),
        ([Series("x", [(1, float("nan"))])], {"y_scale": "log"}, "finite"),
    ],
)
def test_what_cannot_be_drawn_is_refused(series: list[Series], more: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        svg(plot(*series, **more))


def test_a_picture_is_written_with_its_directory(tmp_path: Path) -> None:
    path = tmp_path / "new" / "plot.svg"
    write(plot(Series("x", [(1, 1), (2, 2)])), path)
    assert ET.parse(path).getroot().tag == f"{SVG}svg"
