"""Scripts as files: shared while somebody runs them, bounded, and private to their user."""

from __future__ import annotations

import os
from pathlib import Path

from esnoded.scripts import Scripts

ME, GROUP = os.getuid(), os.getgid()
SCRIPT = b"#!/bin/sh\nexit 0\n"


def files(directory: Path) -> set[str]:
    return {path.name for path in directory.glob("*/*")}


def test_one_file_serves_all_attempts_of_a_user_with_this_script(state_dir: Path) -> None:
    scripts = Scripts(state_dir / "scripts")
    first = scripts.hold((0, 7, 1), ME, GROUP, b"\1", SCRIPT)
    inode = os.stat(first).st_ino
    assert scripts.hold((1, 8, 1), ME, GROUP, b"\1", SCRIPT) == first
    assert os.stat(first).st_ino == inode and Path(first).read_bytes() == SCRIPT
    assert os.stat(first).st_mode & 0o777 == 0o500
    assert os.stat(state_dir / "scripts").st_mode & 0o777 == 0o711
    assert os.stat(os.path.dirname(first)).st_mode & 0o777 == 0o700


def test_only_files_that_nobody_runs_are_removed(state_dir: Path) -> None:
    scripts = Scripts(state_dir / "scripts", idle_max=2)
    running = scripts.hold((0, 1, 1), ME, GROUP, b"\1", SCRIPT)
    scripts.hold((1, 1, 1), ME, GROUP, b"\1", SCRIPT)
    scripts.release((1, 1, 1))
    for job_id in range(2, 9):
        scripts.hold((0, job_id, 1), ME, GROUP, bytes([job_id]), SCRIPT)
        scripts.release((0, job_id, 1))
    scripts.release((0, 99, 1))
    assert files(state_dir / "scripts") == {"01", "07", "08"} and os.path.exists(running)
    again = scripts.hold((0, 10, 1), ME, GROUP, b"\7", SCRIPT)
    assert os.path.basename(again) == "07"


def test_a_new_process_keeps_what_its_attempts_run_and_removes_the_rest(state_dir: Path) -> None:
    scripts = Scripts(state_dir / "scripts")
    kept = scripts.hold((0, 1, 1), ME, GROUP, b"\1", SCRIPT)
    scripts.hold((0, 2, 1), ME, GROUP, b"\2", SCRIPT)
    again = Scripts(state_dir / "scripts", idle_max=0)
    again.adopt([((0, 1, 1), ME, b"\1"), ((0, 3, 1), ME, b"\3")])
    assert files(state_dir / "scripts") == {"01"}
    assert again.hold((0, 3, 1), ME, GROUP, b"\3", SCRIPT)
    again.release((0, 1, 1))
    assert not os.path.exists(kept)
    Scripts(state_dir / "scripts").adopt([])
    assert not any((state_dir / "scripts").iterdir())
