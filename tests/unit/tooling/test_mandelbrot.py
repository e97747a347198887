"""The worked example: a PNG that decodes, bands that join without a seam, clear errors, scripts that run under sh."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "mandelbrot"
SIZE = ("--width", "36", "--height", "25", "--iterations", "200")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The example's modules, imported as its scripts import each other."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    names = ("fractal", "tile", "join")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    modules = {name: __import__(name) for name in names}
    for name in names:
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, name, modules[name])
    return SimpleNamespace(**modules)


def environment(**variables: str) -> dict[str, str]:
    """A job's environment: only what is given, and where programs are."""
    return {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **variables}


def sh(script: str, *arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a batch script of the example as a node would: by plain sh, in the submit directory."""
    return subprocess.run(
        ["sh", str(EXAMPLE / script), *arguments],
        cwd=cwd,
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
    )


def decode(data: bytes) -> tuple[int, int, bytes]:
    """Width, height and RGB bytes of an 8-bit RGB PNG; asserts every length and checksum on the way."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = [], 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", data, at + 8 + length) == (zlib.crc32(kind + body),)
        chunks.append((kind, body))
        at += 12 + length
    assert [kind for kind, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, *form = struct.unpack(">IIBBBBB", chunks[0][1])
    assert form == [8, 2, 0, 0, 0]
    lines, stride = zlib.decompress(chunks[1][1]), width * 3
    assert len(lines) == height * (stride + 1)
    pixels, above = b"", bytes(stride)
    for start in range(0, len(lines), stride + 1):
        row = lines[start + 1 : start + 1 + stride]
        if lines[start] == 2:
            row = bytes((now + before) & 255 for now, before in zip(row, above, strict=True))
        else:
            assert lines[start] == 0
        pixels, above = pixels + row, row
    return width, height, pixels


def test_a_png_decodes_to_the_pixels_it_was_made_of(example: SimpleNamespace) -> None:
    pixels = bytes((x * 7 + y * 13 + c * 101) & 255 for y in range(5) for x in range(11) for c in range(3))
    assert decode(example.fractal.png(11, 5, pixels)) == (11, 5, pixels)
    with pytest.raises(ValueError, match="need 165 bytes, got 164"):
        example.fractal.png(11, 5, pixels[:-1])


@pytest.mark.parametrize("count", [1, 4, 7, 25])
def test_tiles_join_to_exactly_the_picture_computed_at_once(
    example: SimpleNamespace, tmp_path: Path, count: int
) -> None:
    view = example.fractal.View(36, 25, max_iterations=200)
    for number in range(count):
        example.tile.save(example.tile.render(view, number, count), tmp_path)
    joined = example.join.join(example.join.load_all(tmp_path))
    assert joined == example.fractal.compute(view, range(25))


@pytest.mark.parametrize(("height", "count"), [(640, 16), (25, 7), (3, 3)])
def test_bands_cover_each_row_once_and_differ_by_one_row_at_most(
    example: SimpleNamespace, height: int, count: int
) -> None:
    view = example.fractal.View(height_px=height)
    bands = [example.fractal.band(view, number, count) for number in range(count)]
    assert [row for band in bands for row in band] == list(range(height))
    assert max(map(len, bands)) - min(map(len, bands)) <= 1
    with pytest.raises(ValueError, match="does not exist"):
        example.fractal.band(view, count, count)


@pytest.mark.parametrize(
    ("point", "inside"),
    [
        (0j, True),
        (-1 + 0j, True),
        (-0.1 + 0.7j, True),
        (-1.76 + 0j, True),
        (0.3 + 0j, False),
        (2 + 2j, False),
    ],
)
def test_points_known_to_be_in_the_set_or_not(example: SimpleNamespace, point: complex, inside: bool) -> None:
    fractal = example.fractal
    found = fractal.in_main_bodies(point) or fractal.escape(point, 2000, 0.001)[0] == fractal.INSIDE
    assert found is inside


def test_the_smooth_count_has_no_steps(example: SimpleNamespace) -> None:
    counts = [example.fractal.escape(complex(0.5 + i * 1e-3, 0.5), 500, 1e-3)[0] for i in range(1000)]
    assert max(abs(b - a) for a, b in pairwise(counts)) < 0.05
    assert counts[0] - counts[-1] > 2


def test_a_picture_wholly_inside_the_set_is_plain(example: SimpleNamespace) -> None:
    view = example.fractal.View(4, 2, -0.1, 0.0, 0.01, 50)
    assert example.fractal.colour(example.fractal.compute(view, range(2))) == bytes(example.fractal.INK) * 8


def test_the_default_picture_is_full_of_colour(example: SimpleNamespace) -> None:
    view = example.fractal.View(72, 48)
    pixels = example.fractal.colour(example.fractal.compute(view, range(48)))
    colours = {pixels[i : i + 3] for i in range(0, len(pixels), 3)}
    assert len(colours) > 2000
    assert min(max(each[c] for each in colours) - min(each[c] for each in colours) for c in range(3)) > 180


def test_the_scripts_run_under_sh_as_an_array_and_a_job_after_it(tmp_path: Path) -> None:
    for task in range(3):
        done = sh(
            "tiles.sbatch",
            "tiles",
            *SIZE,
            cwd=tmp_path,
            SLURM_SUBMIT_DIR=str(EXAMPLE),
            SLURM_ARRAY_TASK_ID=str(task),
            SLURM_ARRAY_TASK_COUNT="3",
        )
        assert (done.returncode, done.stderr) == (0, "")
    done = sh("join.sbatch", cwd=tmp_path, MANDELBROT_HOME=str(EXAMPLE))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "mandelbrot.png: 36 x 25 pixels from 3 tiles\n"
    assert decode((tmp_path / "mandelbrot.png").read_bytes())[:2] == (36, 25)
    assert sorted(path.name for path in (tmp_path / "tiles").iterdir()) == [
        f"000{task}-of-0003.tile" for task in range(3)
    ]


def test_the_array_script_asks_for_what_the_readme_says() -> None:
    lines = (EXAMPLE / "tiles.sbatch").read_text().splitlines()
    assert lines[0] == "#!/bin/sh"
    options = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]
    assert {"--array=0-15%8", "-n 1", "-o tile-%A_%a.out"} <= set(options)


def test_own_variables_win_over_slurms(example: SimpleNamespace, tmp_path: Path) -> None:
    variables = {"SLURM_ARRAY_TASK_ID": "0", "ESLURM_ARRAY_TASK_ID": "1", "ESLURM_ARRAY_TASK_COUNT": "2"}
    assert example.tile.main([str(tmp_path), *SIZE], variables) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["0001-of-0002.tile"]


@pytest.mark.parametrize(
    ("variables", "arguments", "message"),
    [
        ({}, (), "which tile?"),
        ({"SLURM_ARRAY_TASK_ID": "x"}, (), "SLURM_ARRAY_TASK_ID is 'x', not a number"),
        ({"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "2"}, (), "band 3 of 2 does not exist"),
        ({}, ("--index", "0", "--count", "26"), "more than the picture's 25 rows"),
        ({}, ("--index", "0", "--count", "1", "--span", "0"), "must be above 0"),
    ],
)
def test_a_tile_that_makes_no_sense_is_refused(
    example: SimpleNamespace,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    variables: dict[str, str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    assert example.tile.main([str(tmp_path / "tiles"), *SIZE, *arguments], variables) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "tiles").exists()


def test_a_missing_tile_is_named_with_the_command_that_computes_it(tmp_path: Path) -> None:
    for task in ("0", "2", "4"):
        sh(
            "tiles.sbatch",
            "out",
            *SIZE,
            "--index",
            task,
            "--count",
            "5",
            cwd=tmp_path,
            MANDELBROT_HOME=str(EXAMPLE),
        )
    done = sh("join.sbatch", "out", cwd=tmp_path, MANDELBROT_HOME=str(EXAMPLE))
    assert done.returncode == 1
    assert "2 of 5 tiles are missing in out: 1,3" in done.stderr
    assert "essubmit --array=1,3 tiles.sbatch out --count 5" in done.stderr
    assert not (tmp_path / "mandelbrot.png").exists()


def test_no_tiles_damaged_tiles_and_mixed_tiles_are_refused(
    example: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def complaint() -> str:
        assert example.join.main([str(tmp_path), "-o", str(tmp_path / "x.png")]) == 1
        return capsys.readouterr().err

    assert "no tiles in" in complaint()
    view = example.fractal.View(8, 4, max_iterations=50)
    path = example.tile.save(example.tile.render(view, 0, 2), tmp_path)
    whole = path.read_bytes()
    for damaged in (b"", whole[:30], whole[:-5], b"x" + whole):
        path.write_bytes(damaged)
        assert f"{path} is not a whole tile" in complaint()
    path.write_bytes(whole)
    example.tile.save(example.tile.render(view._replace(span=1.0), 1, 2), tmp_path)
    assert "different pictures" in complaint()


def test_a_write_that_fails_leaves_the_old_file_and_no_draft(
    example: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="disk full"):
        example.tile.write_whole(path, b"new")
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"file": b"old"}
