"""The leak checks: each kind of leftover fails the test that left it, by name, and no other.

Method: small test files run in a pytest of their own, with this project's conftest.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import leaks, process

ROOT = Path(__file__).parents[3]

INI = """
[pytest]
timeout = 30
filterwarnings = error
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """An empty project with this project's conftest."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeini(INI)
    pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text().replace('    "pytester",\n', ""))
    return pytester


def outcome(project: pytest.Pytester, source: str) -> pytest.RunResult:
    project.makepyfile(source)
    return project.runpytest_subprocess("-p", "no:cacheprovider")


def test_a_clean_test_passes_with_descriptors_children_and_loops_of_its_own(project: pytest.Pytester) -> None:
    result = outcome(
        project,
        """
        import asyncio, os, subprocess
        from tests.support.loops import both_loops, run

        @both_loops
        def test_clean(uvloop, tmp_path):
            with open(tmp_path / "x", "w") as file:
                file.write("x")
            subprocess.run(["true"], check=True)
            assert run(asyncio.sleep(0, 7), uvloop=uvloop) == 7
        """,
    )
    result.assert_outcomes(passed=2)


def test_an_open_descriptor_is_named_and_charged_to_its_test_only(project: pytest.Pytester) -> None:
    result = outcome(
        project,
        """
        import os

        def test_leaks():
            os.open("/dev/null", os.O_RDONLY)

        def test_innocent():
            pass
        """,
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(
        ["*ERROR at teardown of test_leaks*", "*file descriptor left open: * -> /dev/null"]
    )


def test_a_running_child_is_named_and_ended(project: pytest.Pytester) -> None:
    result = outcome(
        project,
        """
        import os

        def test_leaks():
            pid = os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
            with open("pid", "w") as file:
                file.write(str(pid))

        def test_innocent():
            with open("pid") as file:
                pid = int(file.read())
            assert not os.path.exists(f"/proc/{pid}")
        """,
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*child process still running: * sleep 600"])


def test_a_child_that_ended_without_being_waited_for_is_named(project: pytest.Pytester) -> None:
    result = outcome(
        project,
        """
        import os

        def test_leaks():
            pid = os.posix_spawn("/bin/true", ["true"], {})
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        """,
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*child process ended but never waited for: * *true*"])


def test_an_adopted_orphan_is_found(project: pytest.Pytester) -> None:
    result = outcome(
        project,
        """
        import subprocess

        def test_leaks(adopt_orphans):
            subprocess.run(["sh", "-c", "sleep 600 >/dev/null & exit 0"], check=True)
        """,
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*child process still running: * sleep 600"])


def test_a_task_on_a_loop_of_the_tests_own_is_found(project: pytest.Pytester) -> None:
    result = outcome(
        project,
        """
        import asyncio
        keep = []

        def test_leaks():
            loop = asyncio.new_event_loop()
            keep.extend([loop, loop.create_task(asyncio.sleep(60), name="forgotten")])
            loop.run_until_complete(asyncio.sleep(0))

        def test_innocent():
            loop, task = keep
            task.cancel()
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            loop.close()
        """,
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*asyncio task not finished: *forgotten*"])


def test_a_grpc_server_and_channel_closed_in_order_are_no_leak(project: pytest.Pytester) -> None:
    result = outcome(
        project,
        """
        import grpc
        from tests.support.loops import both_loops, run

        @both_loops
        def test_clean(uvloop):
            async def scenario():
                server = grpc.aio.server()
                port = server.add_insecure_port("127.0.0.1:0")
                await server.start()
                async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                    await channel.channel_ready()
                await server.stop(None)

            run(scenario(), uvloop=uvloop)
        """,
    )
    result.assert_outcomes(passed=2)


def test_a_property_test_may_use_the_autouse_checks(project: pytest.Pytester) -> None:
    result = outcome(
        project,
        """
        from hypothesis import given, strategies

        @given(strategies.integers())
        def test_clean(number):
            assert number == number
        """,
    )
    result.assert_outcomes(passed=1)


def test_a_test_that_hangs_ends_at_its_time_limit(project: pytest.Pytester) -> None:
    result = outcome(
        project,
        """
        import threading, pytest

        @pytest.mark.timeout(0.5)
        def test_hangs():
            threading.Event().wait()
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Timeout*0.5*"])


def test_tests_without_a_time_limit_are_refused(project: pytest.Pytester) -> None:
    project.makeini("[pytest]\ntimeout = 0\n")
    project.makepyfile("def test_anything(): pass")
    result = project.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*tests need a time limit*"])


def test_children_are_seen_running_then_ended_then_gone() -> None:
    known = {child.pid for child in process.children()}
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        (seen,) = [each for each in process.children() if each.pid not in known]
        assert (seen.pid, seen.ended) == (child.pid, False)
        child.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        (seen,) = [each for each in process.children() if each.pid not in known]
        assert (seen.pid, seen.ended) == (child.pid, True)
    finally:
        child.kill()
        child.communicate()
    assert child.pid not in {each.pid for each in process.children()}


def test_end_kills_and_reaps_and_does_not_mind_one_that_is_gone() -> None:
    pid = os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
    child = process.Child(pid, "S", "sleep 600")
    leaks.end([child])
    leaks.end([child])
    assert pid not in {each.pid for each in process.children()}


def test_descriptors_name_their_targets(tmp_path: Path) -> None:
    before = process.descriptors()
    with open(tmp_path / "x", "w") as file:
        assert process.descriptors() - before == {process.Descriptor(file.fileno(), str(tmp_path / "x"))}
    assert process.descriptors() == before
