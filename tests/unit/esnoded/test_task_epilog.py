"""The site's program after each task: what it is told, how long it may run, and what is left of its output."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from esnoded.task.epilog import EpilogFailed, run_task_epilog
from tests.unit.esnoded.test_task_prolog import children


@pytest.fixture(autouse=True)
def handled() -> Iterator[None]:
    """In a step its process is the epilog's own."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def epilog(directory: Path, text: str, limit_s: float = 60.0) -> None:
    path = directory / "epilog"
    path.write_text(f"#!/bin/sh\ncd {directory} || exit 99\n{text}\n")
    path.chmod(0o755)
    run_task_epilog(str(path), {"PATH": "/usr/bin:/bin", "MODE": "kept"}, limit_s)


def test_it_has_the_environment_and_its_output_goes_nowhere(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    epilog(tmp_path, 'echo "$MODE" > told; read line || echo empty >> told; echo out; echo err >&2')
    assert (tmp_path / "told").read_text() == "kept\nempty\n"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo no room; exit 3", r"failed: exit code 3: no room$"),
        ("kill -9 $$", r"failed: signal 9$"),
    ],
)
def test_a_failure_says_how_with_the_end_of_the_output(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(EpilogFailed, match=says):
        epilog(tmp_path, text)


def test_one_that_is_no_program_says_so() -> None:
    with pytest.raises(EpilogFailed, match=r"task epilog /nowhere: no such file"):
        run_task_epilog("/nowhere", {}, 1.0)


@pytest.mark.parametrize("text", ["exec sleep 600", "exec >&- 2>&-; exec sleep 600", "exec yes"])
def test_it_ends_at_its_limit_and_a_flood_of_output_is_bounded(
    tmp_path: Path, text: str, adopt_orphans: None
) -> None:
    before = children()
    with pytest.raises(EpilogFailed, match="did not end in time") as failed:
        epilog(tmp_path, text, limit_s=0.5)
    assert len(str(failed.value)) < 1_000 and children() == before


def test_a_child_that_keeps_the_output_open_is_not_waited_for(tmp_path: Path, adopt_orphans: None) -> None:
    os.mkfifo(tmp_path / "gate")
    epilog(tmp_path, "{ read line < gate; } &")
    (tmp_path / "gate").write_text("go\n")
    # Its own step would end it.
    os.waitpid(-1, 0)


def test_the_signal_that_ends_the_tasks_leaves_it_alone(tmp_path: Path) -> None:
    epilog(tmp_path, "kill -15 $$; kill -15 $PPID; touch survived")
    assert (tmp_path / "survived").exists()
