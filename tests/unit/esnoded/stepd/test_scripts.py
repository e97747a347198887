"""Scripts as files: one for each step while it runs, private to its user, and never another content."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eslurm.core.model.job import Principal
from esnoded.procd.scripts import Scripts
from tests.kits.stepd import key

ME = Principal("me", os.getuid(), os.getgid())
SCRIPT = b"#!/bin/sh\nexit 0\n"


def test_each_step_has_a_file_of_its_own_as_long_as_it_runs(state_dir: Path) -> None:
    scripts = Scripts(str(state_dir / "scripts"))
    first, second = scripts.hold(key(7), ME, SCRIPT), scripts.hold(key(7, attempt=2), ME, SCRIPT)
    assert first.startswith(f"{state_dir}/scripts/{key(7)}-") and first != second
    for path in (first, second):
        assert Path(path).read_bytes() == SCRIPT and os.stat(path).st_mode & 0o7777 == 0o500
    assert os.stat(state_dir / "scripts").st_mode & 0o777 == 0o711
    scripts.release(key(7))
    scripts.release(key(99))
    assert [str(path) for path in (state_dir / "scripts").iterdir()] == [second]
    os.close(scripts._fd)


def test_no_name_can_be_foretold_and_each_is_new(state_dir: Path) -> None:
    scripts = Scripts(str(state_dir / "scripts"))
    first = scripts.hold(key(1), ME, SCRIPT)
    os.unlink(first)
    os.symlink("/etc/passwd", first)
    second = scripts.hold(key(1), ME, b"#!/bin/true\n")
    assert second != first and not os.path.lexists(first)
    assert Path(second).read_bytes() == b"#!/bin/true\n"
    os.close(scripts._fd)


def test_a_script_that_cannot_be_written_leaves_nothing(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    scripts = Scripts(str(state_dir / "scripts"))
    monkeypatch.setattr(os, "fchown", full)
    with pytest.raises(OSError, match="no space"):
        scripts.hold(key(1), Principal("other", os.getuid() + 1, 1), SCRIPT)
    assert not list((state_dir / "scripts").iterdir())
    os.close(scripts._fd)


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
    os.close(Scripts(str(directory), spares_homes=True)._fd)
    assert {path.name for path in directory.iterdir()} == {"1000"}, "jobs run that were started from there"
    os.close(Scripts(str(directory))._fd)
    assert not list(directory.iterdir()) and kept.exists()


def test_a_link_in_the_place_of_the_directory_is_not_followed(state_dir: Path) -> None:
    (state_dir / "elsewhere").mkdir()
    (state_dir / "elsewhere" / "file").write_text("")
    (state_dir / "scripts").symlink_to(state_dir / "elsewhere")
    with pytest.raises(OSError):
        Scripts(str(state_dir / "scripts"))
    assert (state_dir / "elsewhere" / "file").exists()
