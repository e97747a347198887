"""Unit tests mirror the rooms of the product: a newcomer finds the tests of a room under its name."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "tests" / "unit"
NO_ROOMS = {"benchmarks", "tooling"}
"""Tests of the benchmarks, and of the tests' own helpers."""


def room_of(directory: Path) -> Path:
    name = directory.relative_to(UNIT)
    return next(
        (room for room in (ROOT / "daemons" / name, ROOT / "eslurm" / name) if room.is_dir()),
        ROOT / "cli" / "escli" / Path(*name.parts[1:]),
    )


def test_each_directory_is_a_rooms() -> None:
    directories = {path.parent for path in UNIT.rglob("test_*.py")} - {UNIT}
    lost = [each for each in directories if not room_of(each).is_dir()]
    assert {each.name for each in lost} <= NO_ROOMS, lost


def test_the_core_itself_has_no_tests_beside_its_rooms() -> None:
    assert not list((UNIT / "core").glob("*.py"))


def test_shared_worlds_lie_in_one_place() -> None:
    """A helper that several directories of tests use is no file of one of them."""
    for path in (ROOT / "tests").rglob("*.py"):
        own = ".".join(path.parent.relative_to(ROOT).parts)
        for line in path.read_text().splitlines():
            words = line.split()
            if words[:1] == ["from"] and words[1].startswith("tests.unit."):
                room, _, module = words[1].rpartition(".")
                is_shared = not module.startswith(("test_", "conftest")) and not own.startswith(room)
                assert not is_shared, f"{path}: {words[1]} belongs into tests/kits"
