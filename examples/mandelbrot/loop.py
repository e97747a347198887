"""The picture in one job: its rows are the iterations of a loop, shared out among all cores of the job, or of this
machine.

Rows through the set cost many times what those beside it cost, so equal shares leave cores idle: compare `--technique
STATIC` with `--technique FAC2` in the course that `--course` draws. The picture is bit for bit that of the tiles.
"""

from __future__ import annotations

import argparse
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path

import fractal
import tile

from eslurm import loops


def row(y: int, view: fractal.View) -> fractal.Field:
    """One row of the picture: the function that workers run."""
    return fractal.compute(view, range(y, y + 1))


def main(argv: Sequence[str]) -> int:
    """Computes and writes the picture; 0, or 1 with one line on stderr."""
    view = fractal.View()
    parser = argparse.ArgumentParser(
        prog="loop.py", description="Computes a Mandelbrot picture on all cores."
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("mandelbrot.png"), help="default: %(default)s"
    )
    parser.add_argument("--technique", default="FAC2", help="one of " + ", ".join(loops.TECHNIQUES))
    parser.add_argument("--workers", type=int, help="default: all cores of the job, or of this machine")
    parser.add_argument("--width", type=int, default=view.width_px, metavar="PX")
    parser.add_argument("--height", type=int, default=view.height_px, metavar="PX")
    parser.add_argument("--centre", type=float, nargs=2, default=(view.centre_re, view.centre_im))
    parser.add_argument("--span", type=float, default=view.span, help="width of the picture in the plane")
    parser.add_argument("--iterations", type=int, default=view.max_iterations)
    parser.add_argument(
        "--course", type=Path, metavar="SVG", help="draw which worker computed which rows when"
    )
    wish = parser.parse_args(argv)
    view = fractal.View(wish.width, wish.height, wish.centre[0], wish.centre[1], wish.span, wish.iterations)
    try:
        if min(view.width_px, view.height_px, view.max_iterations) < 1 or view.span <= 0:
            raise ValueError("width, height, iterations and span must be above 0")
        found = loops.run(
            row, view.height_px, technique=wish.technique, workers=wish.workers, arguments=(view,)
        )
        counts, lights = array("f"), array("f")
        for field in found.results:
            counts.extend(field.counts)
            lights.extend(field.lights)
        picture = fractal.png(view.width_px, view.height_px, fractal.colour(fractal.Field(counts, lights)))
        tile.write_whole(wish.output, picture)
        if wish.course is not None:
            tile.write_whole(wish.course, loops.picture.draw(found.record).encode())
    except (ValueError, OSError, loops.LoopError, loops.CrewError) as error:
        print(f"loop: {error}", file=sys.stderr)
        return 1
    record = found.record
    print(
        f"{wish.output}: {view.height_px} rows in {record.handed_out} chunks on {len(record.labels)} workers, "
        f"{record.makespan:.2f} s, max / mean {record.imbalance:.3f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
