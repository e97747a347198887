"""One task of the job array: computes one band of rows and leaves it in the output directory as a tile file.

Owns the tile file's format. A tile appears under its name complete or not at all, so a task that was killed
half-way and run again, or run twice at once, does no harm.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
import tempfile
import zlib
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import fractal

MAGIC = b"mandelbrot-tile-1\n"
SUFFIX = ".tile"


class Tile(NamedTuple):
    """Band `number` of `total` of the picture `view`."""

    view: fractal.View
    number: int
    total: int
    field: fractal.Field


def render(view: fractal.View, number: int, total: int) -> Tile:
    """Computes one tile. ValueError when the number is not below the total."""
    return Tile(view, number, total, fractal.compute(view, fractal.band(view, number, total)))


def save(tile: Tile, directory: Path) -> Path:
    """Writes the tile into `directory`, which is made if need be, and returns its path."""
    header = json.dumps({"view": tile.view._asdict(), "number": tile.number, "total": tile.total}).encode()
    body = zlib.compress(_packed(tile.field.counts) + _packed(tile.field.lights), 6)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{tile.number:04d}-of-{tile.total:04d}{SUFFIX}"
    write_whole(path, MAGIC + struct.pack("<I", len(header)) + header + body)
    return path


def load(path: Path) -> Tile:
    """Reads a tile file. ValueError when it is damaged or something else."""
    data = path.read_bytes()
    try:
        if not data.startswith(MAGIC):
            raise ValueError("it does not start as one")
        (length,) = struct.unpack_from("<I", data, len(MAGIC))
        start = len(MAGIC) + 4
        header = json.loads(data[start : start + length])
        view = fractal.View(**header["view"])
        number, total = int(header["number"]), int(header["total"])
        pixels = len(fractal.band(view, number, total)) * view.width_px
        body = zlib.decompress(data[start + length :])
        if len(body) != 8 * pixels:
            raise ValueError(f"it holds {len(body)} bytes, not {8 * pixels}")
    except (ValueError, KeyError, TypeError, struct.error, zlib.error) as error:
        raise ValueError(f"{path} is not a whole tile: {error}") from error
    field = fractal.Field(_unpacked(body[: 4 * pixels]), _unpacked(body[4 * pixels :]))
    return Tile(view, number, total, field)


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file so that no reader ever sees part of it, however many write it at once."""
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files for the owner alone; a result is as readable as the user's umask says.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(draft, 0o666 & ~umask)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def _packed(values: array[float]) -> bytes:
    if sys.byteorder == "big":
        values = array("f", values)
        values.byteswap()
    return values.tobytes()


def _unpacked(data: bytes) -> array[float]:
    values = array("f")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def task_number(environ: Mapping[str, str], name: str) -> int | None:
    """`ESLURM_ARRAY_<name>`, else `SLURM_ARRAY_<name>`, else None. ValueError when it is no number."""
    for variable in (f"ESLURM_ARRAY_{name}", f"SLURM_ARRAY_{name}"):
        text = environ.get(variable)
        if text:
            if not text.isdecimal():
                raise ValueError(f"{variable} is {text!r}, not a number")
            return int(text)
    return None


def options(argv: Sequence[str], environ: Mapping[str, str]) -> argparse.Namespace:
    """The command line, with the array's variables as defaults. ValueError when a variable is no number."""
    view = fractal.View()
    parser = argparse.ArgumentParser(prog="tile.py", description="Computes one tile of a Mandelbrot picture.")
    parser.add_argument("directory", type=Path, help="where the tile goes")
    parser.add_argument(
        "--index", type=int, default=task_number(environ, "TASK_ID"), help="which tile, from 0"
    )
    parser.add_argument(
        "--count", type=int, default=task_number(environ, "TASK_COUNT"), help="how many tiles"
    )
    parser.add_argument("--width", type=int, default=view.width_px, metavar="PX")
    parser.add_argument("--height", type=int, default=view.height_px, metavar="PX")
    parser.add_argument("--centre", type=float, nargs=2, default=(view.centre_re, view.centre_im))
    parser.add_argument("--span", type=float, default=view.span, help="width of the picture in the plane")
    parser.add_argument("--iterations", type=int, default=view.max_iterations)
    return parser.parse_args(argv)


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Computes and saves one tile; 0, or 1 with one line on stderr."""
    try:
        wish = options(argv, environ)
        if wish.index is None or wish.count is None:
            raise ValueError("which tile? Run as a task of a job array, or give --index and --count")
        view = fractal.View(
            wish.width, wish.height, wish.centre[0], wish.centre[1], wish.span, wish.iterations
        )
        if min(view.width_px, view.height_px, view.max_iterations) < 1 or view.span <= 0:
            raise ValueError("width, height, iterations and span must be above 0")
        if wish.count > view.height_px:
            raise ValueError(f"{wish.count} tiles are more than the picture's {view.height_px} rows")
        path = save(render(view, wish.index, wish.count), wish.directory)
    except (ValueError, OSError) as error:
        print(f"tile: {error}", file=sys.stderr)
        return 1
    rows = fractal.band(view, wish.index, wish.count)
    print(f"{path}: rows {rows.start} to {rows.stop - 1} of {view.height_px}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
