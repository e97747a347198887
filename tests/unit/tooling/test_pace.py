"""The bound on the CPU time of one test: what computes too long fails by name, what waits does not."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

SOURCE = """
import subprocess, sys, threading, time

def test_computes():
    until_s = time.process_time() + 0.4
    while time.process_time() < until_s:
        pass

def test_lets_a_command_compute():
    subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.4: pass"], check=True)

def test_waits():
    threading.Event().wait(0.4)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project of tests that may compute for a fifth of a second."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("THOROUGH", raising=False)
    pytester.makeini("[pytest]\naddopts = -p tests.support.pace -p no:cacheprovider --cpu-max-s=0.2\n")
    pytester.makepyfile(SOURCE)
    return pytester


def test_what_computes_too_long_fails_and_what_waits_does_not(project: pytest.Pytester) -> None:
    result = project.runpytest_inprocess()
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        ["*the test takes * s of CPU time, more than the 0.2 s that a test may take*"]
    )
    result.stdout.fnmatch_lines(["FAILED *test_computes*", "FAILED *test_lets_a_command_compute*"])


def test_a_thorough_run_may_take_longer(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THOROUGH", "1")
    project.runpytest_inprocess().assert_outcomes(passed=3)
