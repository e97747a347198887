"""The applications that share out loops: the same picture as by tiles, spin images that do not change with the cloud's
place.
"""

from __future__ import annotations

import math
import subprocess
import sys
from array import array
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


def python(directory: str, program: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-B", str(EXAMPLES / directory / program), *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def spin(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The example's mathematics, imported as its program does."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "spin_images"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "spin", raising=False)
    module = __import__("spin")
    monkeypatch.delitem(sys.modules, "spin")
    return SimpleNamespace(**vars(module))


def test_the_loops_picture_is_that_of_the_tiles(tmp_path: Path) -> None:
    size = ("--width", "36", "--height", "25", "--iterations", "200")
    done = python(
        "mandelbrot",
        "loop.py",
        *size,
        "--workers",
        "2",
        "-o",
        "loop.png",
        "--course",
        "course.svg",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "25 rows" in done.stdout
    for index in range(2):
        python("mandelbrot", "tile.py", "tiles", *size, "--index", str(index), "--count", "2", cwd=tmp_path)
    assert python("mandelbrot", "join.py", "tiles", "-o", "tiles.png", cwd=tmp_path).returncode == 0
    assert (tmp_path / "loop.png").read_bytes() == (tmp_path / "tiles.png").read_bytes()
    ElementTree.parse(tmp_path / "course.svg")


def test_a_wrong_option_is_one_line(tmp_path: Path) -> None:
    for directory, program, words in (
        ("mandelbrot", "loop.py", ("--technique", "LIFO", "--workers", "1")),
        ("spin_images", "run.py", ("--technique", "LIFO", "--workers", "1")),
        ("spin_images", "run.py", ("--bins", "0")),
        ("spin_images", "run.py", ("absent.txt",)),
    ):
        done = python(directory, program, *words, cwd=tmp_path)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1, done.stderr


def test_spin_images_of_a_cloud(tmp_path: Path, spin: SimpleNamespace) -> None:
    done = python("spin_images", "run.py", "--points", "40", "--bins", "8", "--workers", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    images = (tmp_path / "spin.u16").read_bytes()
    cloud = spin.torus(40)
    shape = spin.Shape(bins=8)
    assert images == b"".join(spin.image(at, cloud, shape) for at in range(40))
    assert (tmp_path / "spin.pgm").read_bytes().startswith(b"P5 144 27 255\n")


def test_a_spin_image_by_hand(spin: SimpleNamespace) -> None:
    """Over the origin with its normal upwards: a point 0.5 above and 1.5 beside is in column 1, two rows of 1 about the
    middle.
    """
    cloud = [spin.Point(0, 0, 0, 0, 0, 1), spin.Point(0, 1.5, 0.5, 0, 0, 1), spin.Point(0, 0, -0.5, 0, 0, -1)]
    counts = array("H", spin.image(0, cloud, spin.Shape(bins=2, bin_size=1.0, angle=1.5)))
    # The point itself has alpha and beta 0; the third one looks the other way.
    assert counts.tolist() == [0, 1, 1, 0]


def test_spin_images_do_not_change_when_the_object_is_turned(spin: SimpleNamespace) -> None:
    cloud = spin.torus(60)
    c, s = math.cos(1.0), math.sin(1.0)
    turned = [
        spin.Point(
            c * p.x - s * p.y + 3,
            s * p.x + c * p.y - 2,
            p.z + 1,
            c * p.nx - s * p.ny,
            s * p.nx + c * p.ny,
            p.nz,
        )
        for p in cloud
    ]
    shape = spin.Shape()
    for at in range(0, 60, 10):
        before, after = (array("H", spin.image(at, each, shape)) for each in (cloud, turned))
        # A point on the edge of two bins may fall to either side.
        assert sum(abs(a - b) for a, b in zip(before, after, strict=True)) <= 4


def test_a_file_of_points(tmp_path: Path, spin: SimpleNamespace) -> None:
    file = tmp_path / "cloud.txt"
    file.write_text("0 0 0 0 0 2\n1 2 3 0 1 0\n")
    assert spin.load(file) == [spin.Point(0, 0, 0, 0, 0, 1), spin.Point(1, 2, 3, 0, 1, 0)]
    file.write_text("0 0 0 0 0 2\n1 2 3 0 0 0\n")
    with pytest.raises(ValueError, match=r"cloud\.txt:2: give six numbers"):
        spin.load(file)
