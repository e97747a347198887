"""Task costs: stated, recorded and applications' own; sums that are exact."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from eslurm.lab.applications import mandelbrot, spin_images
from eslurm.lab.applications.costs import CostError, Costs, drawn, from_seconds, recorded, scaled

EXAMPLES = Path(__file__).parents[4] / "examples"


def example(room: str, name: str) -> ModuleType:
    """A module of an example, which is no package."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / room / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module


def test_chunks_of_any_partition_sum_to_the_total() -> None:
    costs = from_seconds(drawn("exponential:0.001", 1_000, 7))
    for size in (1, 7, 250, 334, 1_000):
        parts = [costs.chunk_us(at, min(at + size, 1_000)) for at in range(0, 1_000, size)]
        assert sum(parts) == costs.total_us
        # Seven parts have chunks of another size than seven tasks.
        assert max(parts) == costs.largest_us(len(parts)) or size == 7


def test_another_process_reads_the_same_costs() -> None:
    costs = from_seconds(drawn("exponential:0.001", 1_000, 7))
    read = Costs.from_bytes(costs.to_bytes(), costs.mean_s, costs.sigma_s)
    assert read.n == costs.n and read.sigma_s == costs.sigma_s
    assert all(read.chunk_us(at, at + 1) == costs.chunk_us(at, at + 1) for at in range(costs.n))


@pytest.mark.parametrize(
    ("kind", "mean", "sigma"),
    [
        ("constant:0.25", 0.25, 0.0),
        ("uniform:0.1,0.3", 0.2, 0.2 / 12**0.5),
        ("gaussian:0.5,0.05", 0.5, 0.05),
        ("exponential:0.2", 0.2, 0.2),
    ],
)
def test_distributions_have_their_moments(kind: str, mean: float, sigma: float) -> None:
    costs = from_seconds(drawn(kind, 40_000, 1))
    assert costs.mean_s == pytest.approx(mean, rel=0.02)
    assert costs.sigma_s == pytest.approx(sigma, rel=0.03, abs=1e-9)
    assert costs.total_us == pytest.approx(mean * 40_000e6, rel=0.02)


def test_draws_depend_on_their_seed_alone() -> None:
    first = drawn("uniform:0,1", 3, 1)
    assert first == drawn("uniform:0,1", 3, 1) != drawn("uniform:0,1", 3, 2)
    assert [round(value, 6) for value in first] == [0.511822, 0.950464, 0.14416]


@pytest.mark.parametrize(
    "kind",
    ["pareto:1", "constant", "uniform:2,1", "gaussian:0.1", "exponential:-1", "constant:nan", "constant:1e7"],
)
def test_nonsense_is_refused_with_the_way_out(kind: str) -> None:
    with pytest.raises(CostError, match=kind.partition(":")[0]):
        drawn(kind, 10, 1)


def test_recorded_costs(tmp_path: Path) -> None:
    path = tmp_path / "tasks.txt"
    path.write_text("# seconds\n0.5\n\n1.25\n", encoding="utf-8")
    assert recorded(path) == [0.5, 1.25]
    assert scaled(recorded(path), 7.0).total_us == 7_000_000
    path.write_text("0.5\nlong\n", encoding="utf-8")
    with pytest.raises(CostError, match="line 2"):
        recorded(path)
    path.write_text("# nothing\n", encoding="utf-8")
    with pytest.raises(CostError, match="no task"):
        recorded(path)


def test_escapes_are_those_of_the_example() -> None:
    """The example calls a point escaped far outside, a step or two later; it agrees on which points are inside."""
    fractal = example("mandelbrot", "fractal")
    view = mandelbrot.View(side_px=24)
    counts = mandelbrot.counts_of(view).tolist()
    limit = 600
    picture = fractal.View(24, 24, view.centre_re, view.centre_im, view.span, limit)
    theirs = fractal.compute(picture, range(24)).counts
    assert [count >= limit for count in counts] == [count == fractal.INSIDE for count in theirs]
    outside = [(ours, other) for ours, other in zip(counts, theirs, strict=True) if other != fractal.INSIDE]
    assert len(outside) > 100
    assert all(abs(ours - other) <= 4 for ours, other in outside)


def test_pixels_inside_cost_the_limit_and_make_bands_uneven() -> None:
    costs = mandelbrot.loop_costs(mandelbrot.View(side_px=64), 1_000_000, 1e6)
    inside = sum(
        count >= mandelbrot.ESCAPES_BY for count in mandelbrot.counts_of(mandelbrot.View(side_px=64))
    )
    assert costs.total_us / 1e6 == pytest.approx(inside, rel=0.001)
    assert costs.largest_us(16) * 16 / costs.total_us > 1.2


def test_steps_of_spin_images_are_those_of_the_example() -> None:
    spin = example("spin_images", "spin")
    points = 96
    cloud = spin.torus(points)
    assert [tuple(point) for point in cloud] == spin_images.torus(points)
    tested, passed, counted = spin_images.steps_of(points)
    shape = spin.Shape(bins=spin_images.BINS, bin_size=spin_images.BIN_SIZE)
    for index in range(0, points, 7):
        image = memoryview(spin.image(index, cloud, shape)).cast("H")
        assert sum(image) == counted[index]
    assert (tested == points).all() and (passed >= counted).all() and (passed < tested).any()


def test_more_images_than_points_go_through_the_cloud_again() -> None:
    costs = spin_images.loop_costs(2 * spin_images.POINTS, 0.5)
    assert costs.n == 2 * spin_images.POINTS
    assert costs.total_us == pytest.approx(spin_images.POINTS * 1e6, rel=1e-6)
    assert costs.chunk_us(0, spin_images.POINTS) == pytest.approx(costs.total_us / 2, abs=1)
