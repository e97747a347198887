"""The last job: joins all tiles of a directory into one PNG picture, or says which of them are missing."""

from __future__ import annotations

import argparse
import sys
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path

import fractal
import tile


def load_all(directory: Path) -> list[tile.Tile]:
    """All tiles of one picture in order.

    ValueError when there are none, when some are missing, or when they are of different pictures.
    """
    tiles = sorted(
        (tile.load(path) for path in directory.glob(f"*{tile.SUFFIX}")), key=lambda each: each.number
    )
    if not tiles:
        raise ValueError(f"no tiles in {directory}: run tiles.sbatch first")
    if len({(each.view, each.total) for each in tiles}) > 1:
        raise ValueError(
            f"the tiles in {directory} are of different pictures: empty it and run tiles.sbatch again"
        )
    total = tiles[0].total
    missing = sorted(set(range(total)) - {each.number for each in tiles})
    if missing:
        named = ",".join(map(str, missing))
        raise ValueError(
            f"{len(missing)} of {total} tiles are missing in {directory}: {named}"
            f" (to compute them: essubmit --array={named} tiles.sbatch {directory} --count {total})"
        )
    return tiles


def join(tiles: Iterable[tile.Tile]) -> fractal.Field:
    """The whole picture's field from all its tiles, in order."""
    counts, lights = array("f"), array("f")
    for each in tiles:
        counts.extend(each.field.counts)
        lights.extend(each.field.lights)
    return fractal.Field(counts, lights)


def main(argv: Sequence[str]) -> int:
    """Writes the picture; 0, or 1 with one line on stderr."""
    parser = argparse.ArgumentParser(prog="join.py", description="Joins tiles into one PNG picture.")
    parser.add_argument("directory", type=Path, help="where the tiles are")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("mandelbrot.png"), help="default: %(default)s"
    )
    wish = parser.parse_args(argv)
    try:
        tiles = load_all(wish.directory)
        view = tiles[0].view
        picture = fractal.png(view.width_px, view.height_px, fractal.colour(join(tiles)))
        tile.write_whole(wish.output, picture)
    except (ValueError, OSError) as error:
        print(f"join: {error}", file=sys.stderr)
        return 1
    print(f"{wish.output}: {view.width_px} x {view.height_px} pixels from {len(tiles)} tiles")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
