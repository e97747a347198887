"""PSIA's own task costs: a task is the spin image of one point of a cloud, and looks at every other point.

The cloud and the steps are those of `examples/spin_images`: each point's normal is tested, a point that passes gets its
two coordinates, one that falls into the image is counted. A step's weight is its number of arithmetic operations.
A loop of more images than the cloud has points goes through the cloud again.
"""

from __future__ import annotations

import math
import random
from functools import cache
from typing import Any, Final

from eslurm.lab.applications.costs import Costs, from_seconds

POINTS: Final = 4_096
BINS: Final = 16
BIN_SIZE: Final = 0.12
TESTED, PASSED, COUNTED = 6, 21, 4
"""Arithmetic operations of the three steps."""
_ROWS_AT_ONCE: Final = 256


def loop_costs(images: int, mean_s: float) -> Costs:
    """Costs of so many images, of which one takes `mean_s` on average over the cloud."""
    import numpy

    operations = operations_of(POINTS)
    each: Any = operations * (mean_s * len(operations) / float(numpy.cumsum(operations)[-1]))
    return from_seconds(numpy.resize(each, images))


@cache
def operations_of(points: int) -> Any:
    """Operations for the image of each point of the torus, in the order of its points."""
    import numpy

    tested, passed, counted = steps_of(points)
    found: Any = TESTED * tested + PASSED * passed + COUNTED * counted
    return found.astype(numpy.float64)


def steps_of(points: int) -> tuple[Any, Any, Any]:
    """For each point's image: the points that are tested, that pass, and that are counted."""
    import numpy

    cloud: Any = numpy.array(torus(points))
    places, normals = cloud[:, :3], cloud[:, 3:]
    tested: Any = numpy.full(points, points)
    passed: Any = numpy.zeros(points, dtype=numpy.int64)
    counted: Any = numpy.zeros(points, dtype=numpy.int64)
    top = BINS * BIN_SIZE / 2
    for first in range(0, points, _ROWS_AT_ONCE):
        rows = slice(first, min(first + _ROWS_AT_ONCE, points))
        n_x, n_y, n_z = (normals[rows, axis][:, None] for axis in range(3))
        # Sums of products one by one: a matrix product adds in an order of its own on each machine.
        agrees = n_x * normals[:, 0] + n_y * normals[:, 1] + n_z * normals[:, 2] >= math.cos(math.pi / 2)
        d_x, d_y, d_z = (places[:, axis] - places[rows, axis][:, None] for axis in range(3))
        beta = n_x * d_x + n_y * d_y + n_z * d_z
        alpha = numpy.sqrt(numpy.maximum(d_x * d_x + d_y * d_y + d_z * d_z - beta * beta, 0.0))
        row, column = numpy.floor((top - beta) / BIN_SIZE), numpy.floor(alpha / BIN_SIZE)
        inside = agrees & (row >= 0) & (row < BINS) & (column < BINS)
        passed[rows] = agrees.sum(axis=1)
        counted[rows] = inside.sum(axis=1)
    return tested, passed, counted


def torus(points: int, seed: int = 1) -> list[tuple[float, float, float, float, float, float]]:
    """The example's cloud: places and unit normals on a torus with a bump."""
    draw = random.Random(seed)
    cloud = []
    for _ in range(points):
        u, v = draw.uniform(0, 2 * math.pi), draw.uniform(0, 2 * math.pi)
        small = 0.4 + 0.1 * math.exp(-((u - math.pi) ** 2))
        radius = 1.0 + small * math.cos(v)
        cloud.append(
            (
                radius * math.cos(u),
                radius * math.sin(u),
                small * math.sin(v),
                math.cos(u) * math.cos(v),
                math.sin(u) * math.cos(v),
                math.sin(v),
            )
        )
    return cloud
