"""`make test` runs the tests in parts side by side: together they are all of them, and each one's failure is the whole's."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
IGNORE = "--ignore-glob="

# Stands for Python: notes its words, and ends as it is told for its part of the tests.
PYTHON = """#!/bin/sh
case "$*" in
*--ignore-glob*) part=second ;;
*tests/property*) part=third ;;
*) part=first ;;
esac
printf '%s\\n' "$@" >{work}/$part.words
echo "this is the $part part"
if [ "$part" = "{waits}" ]; then
    trap 'echo SIGINT >{work}/$part.end; exit 2' INT
    trap 'echo SIGTERM >{work}/$part.end; exit 2' TERM
    echo >{work}/up
    while :; do sleep 0.02; done
fi
[ "$part" != "{fails}" ] || exit 7
"""


def fake(work: Path, *, fails: str = "", waits: str = "") -> Path:
    path = work / "python"
    path.write_text(PYTHON.format(work=shlex.quote(str(work)), fails=fails, waits=waits))
    path.chmod(0o755)
    return path


def words_of(work: Path, part: str) -> list[str]:
    """What pytest was told beside its options."""
    words = (work / f"{part}.words").read_text().split("\n")[:-1]
    assert words[:2] == ["-m", "pytest"]
    return [word for word in words[2:] if word.startswith(("tests", IGNORE))]


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "scripts/test.sh", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_parts_are_all_tests_and_none_is_in_two(tmp_path: Path) -> None:
    assert run(fake(tmp_path)).returncode == 0
    parts = {part: words_of(tmp_path, part) for part in ("first", "second", "third")}
    everywhere, *ignored = parts["second"]
    assert everywhere == "tests"
    left_out = {path for one in ignored for path in ROOT.glob(one.removeprefix(IGNORE))}
    named = [ROOT / word for word in parts["first"] + parts["third"]]
    # A stage of its own: scripts/security.sh.
    left_out.remove(ROOT / "tests" / "security")
    assert len(named) == len(set(named)) and set(named) == left_out
    assert not [one for one in named if set(one.parents) & set(named)], "within another"
    assert all(one.exists() for one in named)


@pytest.mark.parametrize("fails", ["first", "second", "third"])
def test_the_failure_of_a_part_is_the_whole_s(tmp_path: Path, fails: str) -> None:
    done = run(fake(tmp_path, fails=fails))
    assert done.returncode == 7
    assert done.stderr == f"FAILED: the {fails} part of the tests, see above\n"
    assert [line for line in done.stdout.splitlines() if line.startswith("this")] == [
        f"this is the {part} part" for part in ("first", "second", "third")
    ]


def interrupted(*words: str | Path, up: Path, by: signal.Signals) -> int:
    """How a script ends that is interrupted when it has said that it is up; a terminal interrupts all that it started.

    Stages are logged beside `up`: this test may itself be part of one.
    """
    os.mkfifo(up)
    with subprocess.Popen(
        ["sh", *words],
        cwd=ROOT,
        env=os.environ | {"STAGE_LOG": str(up.with_name("stages"))},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as script:
        up.read_text()
        if by is signal.SIGINT:
            os.killpg(script.pid, by)
        else:
            script.send_signal(by)
        assert script.stderr is not None
        # Its end is the end of everything that was started.
        script.stderr.read()
    return script.returncode


@pytest.mark.parametrize("part", ["first", "second", "third"])
@pytest.mark.parametrize(("by", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_reaches_every_part(tmp_path: Path, part: str, by: signal.Signals, code: int) -> None:
    python = fake(tmp_path, waits=part)
    assert interrupted("scripts/test.sh", python, up=tmp_path / "up", by=by) == code
    assert (tmp_path / f"{part}.end").read_text() == f"{by.name}\n"


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_stage_ends_after_its_command(tmp_path: Path, by: signal.Signals) -> None:
    command = (
        f"trap 'sleep 0.3; echo {by.name} >end; exit 5' {by.name[3:]}; echo >up; while :; do sleep 0.02; done"
    )
    words = ("scripts/stage.sh", "test", "sh", "-c", f"cd {shlex.quote(str(tmp_path))}; {command}")
    assert interrupted(*words, up=tmp_path / "up", by=by) == 5
    assert (tmp_path / "end").read_text() == f"{by.name}\n"
    assert (tmp_path / "stages").read_text().split()[1:] == ["s", "test", "FAILED", "(5)"]


def test_with_options_it_is_plain_pytest(tmp_path: Path) -> None:
    assert run(fake(tmp_path), "tests/unit", "-k", "tree").returncode == 0
    assert (tmp_path / "first.words").read_text().split() == ["-m", "pytest", "tests/unit", "-k", "tree"]
