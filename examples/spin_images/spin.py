"""Spin images of a point cloud: for each oriented point a histogram of how all others lie around its normal.

A point x has, seen from a point p with unit normal n, the coordinates beta = n . (x - p), its height over the tangent
plane, and alpha = sqrt(|x - p|^2 - beta^2), its distance from the line through n. The histogram of (alpha, beta) does
not change when the object is turned or moved, which is what makes it a fingerprint of the surface around p (Johnson,
1997). Standard library only.
"""

from __future__ import annotations

import math
import random
from array import array
from pathlib import Path
from typing import NamedTuple

POINTS_MAX = 1_000_000


class Point(NamedTuple):
    """A place and its unit normal."""

    x: float
    y: float
    z: float
    nx: float
    ny: float
    nz: float


class Shape(NamedTuple):
    """A spin image's form: `bins` x `bins` of `bin_size` each; points whose normal differs by more than `angle` are
    left out.
    """

    bins: int = 16
    bin_size: float = 0.12
    angle: float = math.pi / 2


def image(index: int, cloud: list[Point], shape: Shape) -> bytes:
    """The spin image of one point as 16-bit counts, row by row from the top: the function that workers run."""
    x, y, z, nx, ny, nz = cloud[index]
    bins, size = shape.bins, shape.bin_size
    least = math.cos(shape.angle)
    top = bins * size / 2
    counts = array("H", bytes(2 * bins * bins))
    for other in cloud:
        if nx * other.nx + ny * other.ny + nz * other.nz < least:
            continue
        dx, dy, dz = other.x - x, other.y - y, other.z - z
        beta = nx * dx + ny * dy + nz * dz
        alpha = math.sqrt(max(dx * dx + dy * dy + dz * dz - beta * beta, 0.0))
        row, column = math.floor((top - beta) / size), int(alpha / size)
        if 0 <= row < bins and column < bins:
            at = row * bins + column
            if counts[at] < 65535:
                counts[at] += 1
    return counts.tobytes()


def torus(points: int, seed: int = 1) -> list[Point]:
    """A cloud on a torus with a bump, the same for the same seed."""
    draw = random.Random(seed)
    cloud = []
    for _ in range(points):
        u, v = draw.uniform(0, 2 * math.pi), draw.uniform(0, 2 * math.pi)
        small = 0.4 + 0.1 * math.exp(-((u - math.pi) ** 2))
        radius = 1.0 + small * math.cos(v)
        cloud.append(
            Point(
                radius * math.cos(u),
                radius * math.sin(u),
                small * math.sin(v),
                math.cos(u) * math.cos(v),
                math.sin(u) * math.cos(v),
                math.sin(v),
            )
        )
    return cloud


def load(path: Path) -> list[Point]:
    """A cloud from lines of `x y z nx ny nz`. ValueError names the line that is none."""
    cloud: list[Point] = []
    with path.open() as lines:
        for number, line in enumerate(lines, 1):
            try:
                values = [float(word) for word in line.split()]
                length = math.sqrt(sum(value * value for value in values[3:6]))
                if len(values) != 6 or not all(map(math.isfinite, values)) or length == 0:
                    raise ValueError
            except ValueError:
                raise ValueError(
                    f"{path}:{number}: give six numbers, x y z nx ny nz, with a normal"
                ) from None
            cloud.append(Point(*values[:3], *(value / length for value in values[3:])))
            if len(cloud) > POINTS_MAX:
                raise ValueError(f"{path} has more than {POINTS_MAX} points")
    return cloud


def sheet(images: list[bytes], bins: int, columns: int = 16) -> bytes:
    """A grey picture (PGM) of images beside each other, the fullest bin of each in black."""
    rows = -(-len(images) // columns)
    width, height = columns * (bins + 1), rows * (bins + 1)
    pixels = bytearray(b"\xff" * (width * height))
    for number, data in enumerate(images):
        counts = array("H", data)
        full = max(max(counts), 1)
        left, top = number % columns * (bins + 1), number // columns * (bins + 1)
        for at, count in enumerate(counts):
            pixels[(top + at // bins) * width + left + at % bins] = 255 - 255 * count // full
    return b"P5 %d %d 255\n" % (width, height) + bytes(pixels)
