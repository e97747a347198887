"""The site's program before each task: what its lines do, and when it stops the task."""

from __future__ import annotations

from pathlib import Path

import pytest

from esnoded.task.program import STEP_MARKER
from esnoded.task.prolog import OUTPUT_BYTES_MAX, PrologFailed, run_task_prolog

ENV = {"PATH": "/usr/bin:/bin", "GONE": "1", STEP_MARKER: "mark"}


def prolog(directory: Path, text: str, limit_s: float = 60.0) -> tuple[dict[str, str], str]:
    """The task's environment, and what is in its output file."""
    path, output = directory / "prolog", directory / "output"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    with output.open("wb") as file:
        env = run_task_prolog(str(path), ENV, file.fileno(), file.fileno(), limit_s, STEP_MARKER)
    return env, output.read_text()


def children() -> set[str]:
    """The processes that this one has to wait for."""
    return {
        pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()
    }


def test_its_lines_change_the_environment_or_go_to_the_output(tmp_path: Path) -> None:
    env, output = prolog(
        tmp_path,
        "echo export A=b=c; echo 'export SPACED=a  b '; echo export EMPTY=; echo unset GONE; echo print hello there; "
        "echo print; echo anything else; echo seen $SLURM_SCRIPT_CONTEXT >&2",
    )
    assert env == {"PATH": ENV["PATH"], STEP_MARKER: "mark", "A": "b=c", "SPACED": "a  b ", "EMPTY": ""}
    assert output == "seen prolog_task\nhello there\n\n"


def test_names_that_are_none_and_the_mark_stay(tmp_path: Path) -> None:
    lines = (
        "export 1A=x",
        "export A B=x",
        "export =x",
        "export NOTHING",
        f"export {STEP_MARKER}=x",
        f"unset {STEP_MARKER}",
    )
    env, _ = prolog(tmp_path, "\n".join(f"echo '{line}'" for line in lines))
    assert env == ENV


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("exit 3", "failed: exit code 3"),
        ("kill -9 $$", "failed: signal 9"),
        # By the shell itself: a program that it runs would outlive it for a moment.
        (f"printf %0{OUTPUT_BYTES_MAX + 1}d 0; exec sleep 600", "prints more than 65536 bytes"),
        ("exec sleep 600", "did not end in time"),
        ("exec >&-; exec sleep 600", "did not end in time"),
    ],
)
def test_a_task_whose_prolog_fails_is_not_started(
    tmp_path: Path, text: str, says: str, adopt_orphans: None
) -> None:
    before = children()
    with pytest.raises(PrologFailed, match=says):
        prolog(tmp_path, text, limit_s=1.0)
    # In a task this process ends now.
    assert children() == before


def test_one_that_is_no_program_says_so(tmp_path: Path) -> None:
    with pytest.raises(PrologFailed, match=r"task prolog /nowhere: no such file"):
        run_task_prolog("/nowhere", ENV, 1, 2, 1.0, STEP_MARKER)
