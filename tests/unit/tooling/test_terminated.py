"""Tests that are told to end (SIGTERM) end what they have started, as after Ctrl-C; being told again breaks nothing off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.unit.tooling.test_leaks import INI, ROOT

STARTS = """
import os, subprocess, threading
import pytest

@pytest.fixture(scope="session")
def daemon():
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        # Told again now.
        open("ending", "w").close()
        open("go").close()
        process.kill()
    open("ended", "w").close()

def test_takes_too_long(daemon):
    {while_it_waits}

def test_is_not_begun():
    open("begun", "w").close()
"""


@pytest.mark.parametrize(
    "waits",
    [
        'open("up", "w").close(); threading.Event().wait()',
        "from tests.support.loops import run; run(forever())",
        """
    try:
        open("up", "w").close()
        threading.Event().wait()
    finally:
        raise AssertionError("clean-up failed")
    """,
    ],
    ids=["plain", "in a loop", "fails"],
)
def test_it_is_as_after_ctrl_c(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, waits: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeini(INI)
    pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text().replace('    "pytester",\n', ""))
    loop = 'async def forever():\n    open("up", "w").close()\n    await asyncio.Event().wait()\n'
    pytester.makepyfile("import asyncio\n" + loop + STARTS.format(while_it_waits=waits))
    for name in ("up", "ending", "go"):
        os.mkfifo(pytester.path / name)
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    with subprocess.Popen(words, cwd=pytester.path, stdout=subprocess.PIPE, text=True) as tests:
        try:
            (pytester.path / "up").read_text()
            tests.send_signal(signal.SIGTERM)
            (pytester.path / "ending").read_text()
            tests.send_signal(signal.SIGTERM)
            (pytester.path / "go").write_text("")
            out, _ = tests.communicate()
        finally:
            tests.kill()
    assert tests.returncode == pytest.ExitCode.INTERRUPTED, out
    assert (pytester.path / "ended").exists() and not (pytester.path / "begun").exists()
