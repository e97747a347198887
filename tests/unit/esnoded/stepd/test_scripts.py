"""Scripts as files: one for each step, private to its user, and never another content."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eslurm.core.model.job import Principal
from esnoded.procd.scripts import Scripts
from tests.unit.esnoded.stepd.kit import key

ME = Principal("me", os.getuid(), os.getgid())
SCRIPT = b"#!/bin/sh\nexit 0\n"


def test_each_step_has_a_file_of_its_own_that_goes_with_it(state_dir: Path) -> None:
    directory = state_dir / "scripts"
    scripts = Scripts(str(directory))
    first = scripts.hold(key(7), ME, SCRIPT)
    assert first == str(directory / "7.1.-1.0") and Path(first).read_bytes() == SCRIPT
    assert os.stat(first).st_mode & 0o777 == 0o500
    assert directory.stat().st_mode & 0o777 == 0o711
    second = scripts.hold(key(8), ME, SCRIPT)
    scripts.release(key(7))
    scripts.release(key(7))
    assert list(directory.iterdir()) == [Path(second)]
    scripts.close()


@pytest.mark.parametrize("change", ["content", "mode", "link", "fifo", "directory", "gone"])
def test_what_was_there_is_written_anew(change: str, state_dir: Path) -> None:
    scripts = Scripts(str(state_dir / "scripts"))
    path = Path(scripts.hold(key(1), ME, SCRIPT))
    other = state_dir / "other"
    other.write_bytes(SCRIPT)
    match change:
        case "content":
            path.chmod(0o700)
            path.write_bytes(b"#!/bin/sh\nexit 1\n")
        case "mode":
            path.chmod(0o4500)
        case _:
            path.unlink()
    if change == "link":
        path.symlink_to(other)
    elif change == "fifo":
        os.mkfifo(path, 0o500)
    elif change == "directory":
        path.mkdir()
        with pytest.raises(OSError):
            scripts.hold(key(1), ME, SCRIPT)
        path.rmdir()
    assert Path(scripts.hold(key(1), ME, SCRIPT)) == path
    assert path.read_bytes() == SCRIPT and not path.is_symlink() and path.is_file()
    assert path.stat().st_mode & 0o7777 == 0o500
    scripts.close()


def test_a_new_supervisor_removes_what_it_finds_whatever_it_is(state_dir: Path) -> None:
    directory = state_dir / "scripts"
    directory.mkdir()
    kept = state_dir / "kept"
    kept.write_text("")
    (directory / "link").symlink_to(kept)
    os.mkfifo(directory / "new")
    (directory / "1000" / "deep" / "deeper").mkdir(parents=True)
    (directory / "1000" / "away").symlink_to(state_dir)
    os.mkfifo(directory / "1000" / "deep" / "fifo")
    Scripts(str(directory), spares_homes=True).close()
    assert {path.name for path in directory.iterdir()} == {"1000"}, "jobs run that were started from there"
    Scripts(str(directory)).close()
    assert not list(directory.iterdir()) and kept.exists()


def test_a_link_in_the_place_of_the_directory_is_not_followed(state_dir: Path) -> None:
    (state_dir / "elsewhere").mkdir()
    (state_dir / "elsewhere" / "file").write_text("")
    (state_dir / "scripts").symlink_to(state_dir / "elsewhere")
    with pytest.raises(OSError):
        Scripts(str(state_dir / "scripts"))
    assert (state_dir / "elsewhere" / "file").exists()
