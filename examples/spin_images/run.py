"""Computes the spin images of a whole cloud on all cores of the job, or of this machine (PSIA: one iteration, one
image).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import spin

from eslurm import loops

SHOWN = 256


def main(argv: Sequence[str]) -> int:
    """Computes and writes the images; 0, or 1 with one line on stderr."""
    parser = argparse.ArgumentParser(prog="run.py", description="Computes spin images of a point cloud.")
    parser.add_argument("cloud", nargs="?", type=Path, help="lines of x y z nx ny nz; default: a torus")
    parser.add_argument("--points", type=int, default=2000, help="of the torus (default: %(default)s)")
    parser.add_argument("--bins", type=int, default=spin.Shape().bins)
    parser.add_argument("--bin-size", type=float, default=spin.Shape().bin_size)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("spin"), help="default: %(default)s.u16 and .pgm"
    )
    parser.add_argument("--technique", default="FAC2", help="one of " + ", ".join(loops.TECHNIQUES))
    parser.add_argument("--workers", type=int, help="default: all cores of the job, or of this machine")
    parser.add_argument(
        "--course", type=Path, metavar="SVG", help="draw which worker computed which images when"
    )
    wish = parser.parse_args(argv)
    try:
        if not 1 <= wish.bins <= 256 or not wish.bin_size > 0:
            raise ValueError("bins are 1 to 256, and their size is above 0")
        if not 0 <= wish.points <= spin.POINTS_MAX:
            raise ValueError(f"points are 0 to {spin.POINTS_MAX}")
        cloud = spin.load(wish.cloud) if wish.cloud else spin.torus(wish.points)
        shape = spin.Shape(bins=wish.bins, bin_size=wish.bin_size)
        shown: list[bytes] = []
        with (
            wish.output.with_suffix(".u16").open("wb") as images,
            loops.stream(
                spin.image,
                len(cloud),
                technique=wish.technique,
                workers=wish.workers,
                arguments=(cloud, shape),
            ) as going,
        ):
            for _, image in going:
                images.write(image)
                if len(shown) < SHOWN:
                    shown.append(image)
        wish.output.with_suffix(".pgm").write_bytes(spin.sheet(shown, wish.bins))
        if wish.course is not None:
            wish.course.write_text(loops.picture.draw(going.record))
    except (ValueError, OSError, loops.LoopError, loops.CrewError) as error:
        print(f"run: {error}", file=sys.stderr)
        return 1
    record = going.record
    print(
        f"{wish.output}.u16: {len(cloud)} images in {record.handed_out} chunks on {len(record.labels)} workers, "
        f"{record.makespan:.2f} s, max / mean {record.imbalance:.3f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
