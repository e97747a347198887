"""Stages of tests: what each runs, and that an interruption ends all that was started, in each process that runs tests."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.tooling.test_leaks import INI, ROOT

STARTS = """
import os, subprocess, threading
import pytest

@pytest.fixture(scope="session")
def daemon(worker_id):
    with subprocess.Popen(["sleep", "600"]) as process:
        yield
        process.kill()
    open(f"ended.{worker_id}", "w").close()

def test_takes_too_long(daemon, worker_id):
    open(f"up.{worker_id}", "w").close()
    while True:
        threading.Event().wait(0.05)
"""
"""Python may miss a signal that comes after it has looked for one and before it waits: it looks again now and then."""
IMPATIENT = """
from xdist.workermanage import NodeManager
NodeManager.EXIT_TIMEOUT = 0
"""
"""pytest-xdist would kill its workers at once."""


def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files of tests, and the conftest of this project."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeini(INI)
    conftest = (ROOT / "tests" / "conftest.py").read_text().replace('    "pytester",\n', "")
    pytester.makeconftest(conftest + IMPATIENT)
    pytester.makepyfile(test_one=STARTS, test_two=STARTS)


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_what_each_worker_has_started(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, by: signal.Signals
) -> None:
    """A terminal interrupts all processes, `make` terminates the first one alone."""
    project(pytester, monkeypatch)
    for worker in ("gw0", "gw1"):
        os.mkfifo(pytester.path / f"up.{worker}")
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n2", "--dist=loadfile"]
    with subprocess.Popen(
        words,
        cwd=pytester.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as tests:
        try:
            for worker in ("gw0", "gw1"):
                (pytester.path / f"up.{worker}").read_text()
            if by is signal.SIGINT:
                os.killpg(tests.pid, by)
            else:
                tests.send_signal(by)
            out, _ = tests.communicate()
        finally:
            tests.kill()
    assert tests.returncode == pytest.ExitCode.INTERRUPTED, out
    assert all((pytester.path / f"ended.{worker}").exists() for worker in ("gw0", "gw1")), out


# Stands for Python: notes its words.
PYTHON = """#!/bin/sh
printf '%s\\n' "$@" >{work}/words
exit 7
"""


def words_of(tmp_path: Path, *options: str, script: str = "test") -> list[str]:
    """The words with which a stage's script calls Python; the programs that tests need are all there."""
    for name in ("prometheus", "prometheus-alertmanager", "postgres"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    python = tmp_path / "python"
    python.write_text(PYTHON.format(work=shlex.quote(str(tmp_path))))
    python.chmod(0o755)
    done = subprocess.run(
        ["sh", f"scripts/{script}.sh", python, *options],
        cwd=ROOT,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdout=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 7
    return (tmp_path / "words").read_text().split("\n")[:-1]


STAGES = ("integration", "security")
"""Directories of tests whose stage is a script of the same name."""


def test_each_directory_of_tests_belongs_to_one_stage(tmp_path: Path) -> None:
    words = words_of(tmp_path)
    rooms = {
        path.parent.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").glob("*/**/test_*.py")
    }
    run_here = {
        word.removeprefix("tests/") for word in words if word.startswith("tests/") and "/" not in word[6:]
    }
    recipe = (ROOT / "Makefile").read_text().partition("\nworlds: ")[2].partition("\n\n")[0]
    assert "-m pytest tests/sim " in recipe
    assert "-m pytest tests/clients " in (ROOT / "scripts/clients.sh").read_text()
    assert "-m pytest tests/packages " in (ROOT / "scripts/packages.sh").read_text()
    elsewhere = {*STAGES, "sim", "clients", "packages"}
    assert not run_here & elsewhere and run_here | elsewhere == rooms
    assert any(word.startswith("--numprocesses=") for word in words)


@pytest.mark.parametrize("room", STAGES)
def test_a_stage_of_its_own_runs_its_directory(tmp_path: Path, room: str) -> None:
    assert f"tests/{room}" in words_of(tmp_path, script=room)
    assert words_of(tmp_path, "-x", script=room) == ["-m", "pytest", f"tests/{room}", "-x"]


def test_launches_of_each_daemon_run_with_all_other_tests(tmp_path: Path) -> None:
    """A change that no daemon starts with shows in `make test`."""
    launches = [word for word in words_of(tmp_path) if word.startswith("tests/integration/")]
    assert launches
    for launch in launches:
        path, _, name = launch.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text() if name else (ROOT / path).exists(), launch


def test_with_options_it_is_plain_pytest(tmp_path: Path) -> None:
    assert words_of(tmp_path, "tests/unit", "-k", "tree") == ["-m", "pytest", "tests/unit", "-k", "tree"]


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_stage_ends_after_its_command(tmp_path: Path, by: signal.Signals) -> None:
    """Stages are logged beside `up`: this test may itself be part of one."""
    command = (
        f"trap 'sleep 0.3; echo {by.name} >end; exit 5' {by.name[3:]}; echo >up; while :; do sleep 0.02; done"
    )
    os.mkfifo(tmp_path / "up")
    with subprocess.Popen(
        ["sh", "scripts/stage.sh", "test", "sh", "-c", f"cd {shlex.quote(str(tmp_path))}; {command}"],
        cwd=ROOT,
        env=os.environ | {"STAGE_LOG": str(tmp_path / "stages")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as script:
        (tmp_path / "up").read_text()
        if by is signal.SIGINT:
            os.killpg(script.pid, by)
        else:
            script.send_signal(by)
        assert script.stderr is not None
        # Its end is the end of everything that was started.
        script.stderr.read()
    assert script.returncode == 5
    assert (tmp_path / "end").read_text() == f"{by.name}\n"
    assert (tmp_path / "stages").read_text().split()[1:] == ["s", "test", "FAILED", "(5)"]
