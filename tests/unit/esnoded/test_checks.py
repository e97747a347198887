"""The check of a node with a fault: it passes, or says why not, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from esnoded.checks import run_check
from tests.support.loops import both_loops, run


def program(directory: Path, text: str, mode: int = 0o755) -> str:
    path = directory / "check"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)
    return str(path)


@both_loops
def test_it_passes_by_its_exit_code_and_is_quoted_when_it_does_not(state_dir: Path, uvloop: bool) -> None:
    def checked(text: str) -> str:
        return run(run_check(program(state_dir, text), "cn1", 60.0), uvloop=uvloop)

    assert checked("echo fine; test $SLURMD_NODENAME = cn1 && test $PWD = /") == ""
    assert checked("echo no; echo /scratch >&2; exit 3") == "exit code 3: no /scratch"
    assert checked("kill -9 $$") == "ended by signal 9"
    assert checked("head -c 100000 /dev/zero | tr '\\0' x; exit 1") == "exit code 1: " + 400 * "x"


def test_one_that_hangs_is_ended_with_its_session(state_dir: Path, adopt_orphans: None) -> None:
    pids = state_dir / "pids"
    path = program(state_dir, f"sleep 600 & echo $! > {pids}; echo working; trap '' TERM; wait; sleep 600")
    assert run(run_check(path, "cn1", 0.5)) == "it did not end within 0.5 s: working"
    assert os.waitpid(int(pids.read_text()), 0)[1] == signal.SIGKILL


@pytest.mark.parametrize(
    ("mode", "says"), [(0o644, "not a file that can be executed"), (0o777, "others may write to it")]
)
def test_one_that_another_user_could_change_does_not_run(state_dir: Path, mode: int, says: str) -> None:
    ran = state_dir / "ran"
    why = run(run_check(program(state_dir, f"touch {ran}", mode), "cn1", 60.0))
    assert why.startswith("it cannot be run: ") and says in why and not ran.exists()
