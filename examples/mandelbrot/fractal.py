"""The picture itself: which points, how fast each escapes, which colour that is, and how a PNG is written.

Standard library only, so that any `python3` on a compute node can run it. A band of rows depends on the view
and its own row numbers alone: bands computed apart, joined in order, are bit for bit the picture computed at
once.
"""

from __future__ import annotations

import math
import struct
import zlib
from array import array
from bisect import bisect_right
from typing import NamedTuple

BAILOUT = 1.0e4
"""|z|^2 at which a point counts as escaped; far above 4, so that the smooth count has no visible steps."""

INSIDE = -1.0
"""The smooth count of a point that never escaped."""


class View(NamedTuple):
    """The picture: `width_px` x `height_px` pixels around `centre`, `span` wide in the complex plane."""

    width_px: int = 960
    height_px: int = 640
    centre_re: float = -0.745428
    centre_im: float = 0.113009
    span: float = 0.0003
    max_iterations: int = 1500


class Field(NamedTuple):
    """Rows of a picture before colouring: each pixel's smooth escape count and the light on its slope."""

    counts: array[float]
    lights: array[float]


def band(view: View, index: int, count: int) -> range:
    """Rows of band `index` of `count`; the bands cover every row once and differ by at most one row."""
    if not 0 <= index < count:
        raise ValueError(f"band {index} of {count} does not exist: bands are 0 to {count - 1}")
    return range(view.height_px * index // count, view.height_px * (index + 1) // count)


def compute(view: View, rows: range) -> Field:
    """Smooth escape counts and lights of `rows`, left to right and top to bottom, as 32-bit floats."""
    counts, lights = array("f"), array("f")
    step = view.span / view.width_px
    left = view.centre_re - step * (view.width_px - 1) / 2
    top = view.centre_im + step * (view.height_px - 1) / 2
    for y in rows:
        im = top - y * step
        for x in range(view.width_px):
            point = complex(left + x * step, im)
            count, light = (
                (INSIDE, 0.0) if in_main_bodies(point) else escape(point, view.max_iterations, step)
            )
            counts.append(count)
            lights.append(light)
    return Field(counts, lights)


def in_main_bodies(c: complex) -> bool:
    """Check whether `c` lies in the main cardioid or the disc left of it, which need no iteration."""
    x, y = c.real - 0.25, c.imag
    q = x * x + y * y
    return q * (q + x) <= 0.25 * y * y or (c.real + 1.0) ** 2 + y * y <= 0.0625


def escape(c: complex, max_iterations: int, pixel: float) -> tuple[float, float]:
    """Smooth escape count of `c` and the light, 0 to 1, that falls on the slope of its potential there.

    The light fades to 0 within one `pixel` of the set, where a pixel would show nothing but noise.
    """
    z, slope = c, 1.0 + 0.0j
    anchor, next_anchor = 0.0j, 8
    for n in range(1, max_iterations):
        slope = 2.0 * z * slope + 1.0
        z = z * z + c
        size = z.real * z.real + z.imag * z.imag
        if size > BAILOUT:
            break
        if z == anchor:  # the orbit repeats itself: it will never escape
            return INSIDE, 0.0
        if n == next_anchor:
            anchor, next_anchor = z, 2 * n
    else:
        return INSIDE, 0.0
    count = n + 2.0 - math.log2(math.log(size) / 2.0)
    return count, _light(z, slope, size, pixel)


def _light(z: complex, slope: complex, size: float, pixel: float) -> float:
    # So steep a slope (or none, or one past the range of floats) has no direction that a lamp could show.
    if slope == 0 or not (abs(slope.real) < 1e150 and abs(slope.imag) < 1e150):
        return 0.0
    normal = z / slope
    distance = abs(normal) * math.log(size)
    normal /= abs(normal)
    # A lamp up and to the left, 1.5 high: the usual cosine of the angle between it and the surface.
    lit = (normal.real * -0.7071 + normal.imag * 0.7071 + 1.5) / 2.5
    return lit * min(1.0, math.sqrt(distance / pixel))


# Position in the cycle, red, green, blue.
PALETTE = (
    (0.00, 9, 12, 46),
    (0.14, 22, 45, 120),
    (0.30, 38, 132, 182),
    (0.44, 178, 226, 224),
    (0.52, 255, 247, 224),
    (0.62, 255, 200, 92),
    (0.74, 226, 96, 48),
    (0.86, 120, 24, 66),
    (1.00, 9, 12, 46),
)
SHADES = 4096
CYCLES = 1.6
INK = (4, 4, 16)


def shades() -> list[tuple[float, float, float]]:
    """The palette's cycle in `SHADES` steps, eased between its stops so that no stop shows as an edge."""
    stops = [stop[0] for stop in PALETTE]
    cycle = []
    for i in range(SHADES):
        at = i / SHADES
        k = bisect_right(stops, at) - 1
        (start, *low), (end, *high) = PALETTE[k], PALETTE[k + 1]
        part = (at - start) / (end - start)
        part = part * part * (3.0 - 2.0 * part)
        red, green, blue = (a + (b - a) * part for a, b in zip(low, high, strict=True))
        cycle.append((red, green, blue))
    return cycle


def colour(field: Field) -> bytes:
    """RGB bytes of a whole picture.

    Counts are spread by their logarithm between the smallest and nearly the largest count found, so the
    palette fits any view; that is why colouring is done once for all bands.
    """
    outside = sorted(count for count in field.counts if count >= 0.0)
    if not outside:
        return bytes(INK) * len(field.counts)
    floor = math.log(max(outside[0], 1.0))
    reach = math.log(max(outside[len(outside) * 995 // 1000], 1.0)) - floor
    scale = CYCLES * SHADES / max(reach, 1e-6)
    cycle = shades()
    pixels = bytearray()
    for count, light in zip(field.counts, field.lights, strict=True):
        if count < 0.0:
            pixels += bytes(INK)
            continue
        red, green, blue = cycle[int((math.log(max(count, 1.0)) - floor) * scale) % SHADES]
        gain = 0.22 + 0.88 * light
        pixels += bytes((min(255, int(red * gain)), min(255, int(green * gain)), min(255, int(blue * gain))))
    return bytes(pixels)


def png(width_px: int, height_px: int, rgb: bytes) -> bytes:
    """A PNG file of 8-bit RGB pixels. ValueError when `rgb` is not exactly width x height x 3 bytes."""
    stride = width_px * 3
    if len(rgb) != stride * height_px:
        raise ValueError(f"{width_px} x {height_px} pixels need {stride * height_px} bytes, got {len(rgb)}")
    rows = bytearray()
    above = bytes(stride)
    for start in range(0, len(rgb), stride):
        row = rgb[start : start + stride]
        # Filter 2: each byte as its difference from the one above, which packs a smooth picture well.
        rows.append(2)
        rows += bytes((now - before) & 255 for now, before in zip(row, above, strict=True))
        above = row
    header = struct.pack(">IIBBBBB", width_px, height_px, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(rows), 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
