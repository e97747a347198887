"""Mandelbrot's own task costs: iteration counts of the pixels of a picture, computed.

A task is a pixel, row by row from the top. A pixel outside of the set costs the iterations until it escapes; one inside
costs the limit of iterations, whatever that is. With limits as large as those of ESP-Mandelbrot (R-19) the pixels inside
are nearly all of the work, which is why it is so uneven and why run times are linear in the limit.

The paper names neither its view nor its number of pixels. These are chosen so that STATIC's imbalance by the number of
hosts is near what Table 1 implies (ADR 39).
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from eslurm.lab.applications.costs import Costs, from_seconds

ESCAPES_BY: Final = 4_096
"""A pixel that has not escaped by then is taken for one inside; of the view below, 0.2 % escape between 1,000 and here."""


class View(msgspec.Struct, frozen=True):
    """A square picture of `side_px` pixels, `span` wide around its centre."""

    side_px: int = 512
    centre_re: float = 0.375
    centre_im: float = 0.2175
    span: float = 0.19


VIEW: Final = View()


def loop_costs(view: View, limit: int, second_of_iterations: float) -> Costs:
    """Costs of a picture's pixels with this limit of iterations, on a core that does so many in a second."""
    import numpy

    counts = counts_of(view)
    each: Any = numpy.where(counts >= ESCAPES_BY, float(limit), counts.astype(numpy.float64))
    return from_seconds(each / second_of_iterations)


@cache
def counts_of(view: View) -> Any:
    """Iterations until each pixel has escaped; `ESCAPES_BY` for those that have not."""
    import numpy

    step = view.span / view.side_px
    across: Any = view.centre_re + step * (numpy.arange(view.side_px) - (view.side_px - 1) / 2)
    down: Any = view.centre_im - step * (numpy.arange(view.side_px) - (view.side_px - 1) / 2)
    real: Any = numpy.tile(across, view.side_px)
    imaginary: Any = numpy.repeat(down, view.side_px)
    counts: Any = numpy.full(len(real), ESCAPES_BY, dtype=numpy.int64)
    left: Any = numpy.flatnonzero(~_in_main_bodies(real, imaginary))
    c_re, c_im = real[left], imaginary[left]
    z_re, z_im = c_re.copy(), c_im.copy()
    # Real and imaginary parts apart: one rounding an operation, so the counts are the same on every machine.
    for count in range(1, ESCAPES_BY):
        re_squared, im_squared = z_re * z_re, z_im * z_im
        stays: Any = re_squared + im_squared <= 4.0
        if not bool(stays.all()):
            counts[left[~stays]] = count
            left, c_re, c_im, z_re, z_im = left[stays], c_re[stays], c_im[stays], z_re[stays], z_im[stays]
            re_squared, im_squared = re_squared[stays], im_squared[stays]
        z_im = 2.0 * z_re * z_im + c_im
        z_re = re_squared - im_squared + c_re
    return counts


def _in_main_bodies(real: Any, imaginary: Any) -> Any:
    """The points of the main cardioid and of the disc left of it, which never escape."""
    x = real - 0.25
    squared = imaginary * imaginary
    q = x * x + squared
    return (q * (q + x) <= 0.25 * squared) | ((real + 1.0) * (real + 1.0) + squared <= 0.0625)
