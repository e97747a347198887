"""Scripts as files: shared while steps run them, bounded, private to their user, and never another content."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from eslurm.core.model.job import Principal
from esnoded.procd.scripts import Scripts
from tests.kits.stepd import key

ME = Principal("me", os.getuid(), os.getgid())
SCRIPT = b"#!/bin/sh\nexit 0\n"
DIGEST = hashlib.sha256(SCRIPT).digest()


def files(directory: Path) -> set[str]:
    return {path.name.partition("-")[2] for path in directory.iterdir()}


def hold(scripts: Scripts, job: int, content: bytes = SCRIPT, digest: bytes = DIGEST) -> str:
    return scripts.hold(key(job), ME, digest, content)


def test_one_file_serves_all_attempts_of_a_user_with_this_script(state_dir: Path) -> None:
    scripts = Scripts(str(state_dir / "scripts"))
    first = hold(scripts, 7)
    inode = os.stat(first).st_ino
    assert hold(scripts, 8) == first == str(state_dir / "scripts" / f"{ME.uid}-{DIGEST.hex()}")
    assert os.stat(first).st_ino == inode and Path(first).read_bytes() == SCRIPT
    assert os.stat(first).st_mode & 0o777 == 0o500
    assert os.stat(state_dir / "scripts").st_mode & 0o777 == 0o711
    os.close(scripts._fd)


def test_only_files_that_no_step_runs_are_removed(state_dir: Path) -> None:
    scripts = Scripts(str(state_dir / "scripts"), idle_max=2)
    running = hold(scripts, 1, digest=b"\1")
    scripts.hold(key(1, node=1), ME, b"\1", SCRIPT)
    scripts.release(key(1, node=1))
    for job in range(2, 9):
        hold(scripts, job, digest=bytes([job]))
        scripts.release(key(job))
    scripts.release(key(99))
    assert files(state_dir / "scripts") == {"01", "07", "08"} and os.path.exists(running)
    hold(scripts, 10, digest=b"\7")
    hold(scripts, 11, digest=b"\x0b")
    scripts.release(key(11))
    scripts.release(key(1))
    assert files(state_dir / "scripts") == {"07", "0b", "01"}
    os.close(scripts._fd)


@pytest.mark.parametrize("change", ["content", "mode", "link", "fifo", "directory", "gone"])
def test_what_a_user_has_changed_is_written_anew(change: str, state_dir: Path) -> None:
    scripts = Scripts(str(state_dir / "scripts"))
    path = Path(hold(scripts, 1))
    other = state_dir / "other"
    other.write_bytes(SCRIPT)
    other.chmod(0o500)
    match change:
        case "content":
            path.chmod(0o700)
            path.write_bytes(b"#!/bin/sh\nexit 1\n")
            path.chmod(0o500)
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
            hold(scripts, 2)
        path.rmdir()
    assert Path(hold(scripts, 2)) == path
    assert path.read_bytes() == SCRIPT and not path.is_symlink() and path.is_file()
    assert path.stat().st_mode & 0o7777 == 0o500
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
