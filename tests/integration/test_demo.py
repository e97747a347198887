"""`make demo` as a user sees it: it works, it fails with a reason, it can be interrupted, and it leaves nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import process

DEMO = (sys.executable, "-u", "-m", "escli.local.demo", "--output")
WIDTH_PX = 240
PICTURE_BYTES_MIN = 10_000


@pytest.fixture
def environment(state_dir: Path, adopt_orphans: None) -> Iterator[dict[str, str]]:
    others = {child.pid for child in process.children()}
    # Agents that root starts are of another user.
    state_dir.chmod(0o711)
    yield os.environ | {"TMPDIR": str(state_dir)}
    left = [child for child in process.children() if child.pid not in others]
    for child in left:
        if child.ended:
            os.waitpid(child.pid, 0)
    assert [child for child in left if not child.ended] == []


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_demo_makes_a_picture(state_dir: Path, environment: dict[str, str]) -> None:
    output = state_dir / "out"
    done = subprocess.run(
        [*DEMO, str(output), "--width", str(WIDTH_PX)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    for words in (
        "16 of 16 nodes are up",
        "tiles: 16 done",
        "join:  completed",
        "mandel-join",
        f"({WIDTH_PX} x {WIDTH_PX * 2 // 3}, ",
        "nothing is left",
    ):
        assert words in done.stdout
    picture = (output / "mandelbrot.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > PICTURE_BYTES_MIN
    assert [path.name for path in state_dir.iterdir()] == ["out"]


def test_a_demo_that_fails_says_why(state_dir: Path, environment: dict[str, str]) -> None:
    empty = state_dir / "empty"
    empty.mkdir()
    done = subprocess.run(
        [*DEMO, str(state_dir / "out")],
        # The tasks find no python3.
        env=environment | {"PATH": str(empty)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 1, done.stdout + done.stderr
    assert "== Failed: " in done.stdout
    assert "python3" in done.stdout
    assert "nothing is left" in done.stdout
    kept = done.stdout.rpartition("is kept in ")[2].rstrip(".\n")
    assert (Path(kept) / "log" / "esctld.log").exists()


def test_ctrl_c_ends_the_demo_and_all_it_started(state_dir: Path, environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [*DEMO, str(state_dir / "out")], env=environment, stdout=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        while not re.search(r"\b[1-9]\d* running", line := demo.stdout.readline()):
            assert line
        demo.send_signal(signal.SIGINT)
        rest, _ = demo.communicate(timeout=100)

    assert demo.returncode == 130
    assert "interrupted" in rest
    assert "nothing is left" in rest
    assert [path.name for path in state_dir.iterdir()] == ["out"]
