"""Which process is which: recycled pids, ended ones, and those that are found by their environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from escli.local import processes
from escli.local.processes import Identity

SLEEP = ("import time; time.sleep(600)",)
STUBBORN = (
    "import signal, sys, time; signal.signal(15, signal.SIG_IGN); print(1); sys.stdout.flush(); time.sleep(600)",
)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", *SLEEP], env=os.environ | {"MARK": "cluster-1"}) as process:
        try:
            # That a program was started is known a moment before its environment can be read.
            while not processes.marked("MARK", ["cluster-1\0"]):
                assert process.poll() is None
            yield process
        finally:
            process.kill()


def test_identity_of_a_living_process(child: subprocess.Popen[bytes]) -> None:
    identity = processes.identify(child.pid)
    assert processes.is_alive(identity)
    usage = processes.usage_of(identity)
    assert usage is not None
    assert 0 < usage.rss_mib < 1000
    assert 0 <= usage.uptime_s < 60


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"boot_id": "another"}, {"pid": 2**22 + 1}])
def test_another_process_is_not_taken_for_this_one(
    child: subprocess.Popen[bytes], change: dict[str, int | str]
) -> None:
    other = msgspec.structs.replace(processes.identify(child.pid), **change)
    assert not processes.is_alive(other)
    assert processes.usage_of(other) is None
    assert processes.open_pidfd(other) is None
    assert processes.end_all([other], 1.0) == []
    assert processes.is_alive(processes.identify(child.pid))


def test_an_ended_process_that_nobody_reaped_is_not_alive(child: subprocess.Popen[bytes]) -> None:
    identity = processes.identify(child.pid)
    child.kill()
    assert processes.wait_all([identity], 10) == []
    assert not processes.is_alive(identity)


def test_there_is_no_identity_of_nothing() -> None:
    with pytest.raises(ProcessLookupError):
        processes.identify(2**22 + 1)


def test_end_all_ends_politely(child: subprocess.Popen[bytes]) -> None:
    identity = processes.identify(child.pid)
    assert processes.wait_all([identity], 0) == [identity]
    assert processes.end_all([identity], 10) == []
    assert not processes.is_alive(identity)


def test_end_all_kills_what_does_not_listen() -> None:
    for hurry in (False, True):
        with subprocess.Popen([sys.executable, "-c", *STUBBORN], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            identity = processes.identify(process.pid)
            grace_s = 600 if hurry else 0.1
            assert processes.end_all([identity], grace_s, hurry=[bool, lambda: True][hurry]) == []
            assert not processes.is_alive(identity)


def test_processes_are_found_by_a_mark(child: subprocess.Popen[bytes]) -> None:
    mine = processes.identify(child.pid)
    assert processes.marked("MARK", ["cluster-"]) == [mine]
    assert processes.marked("MARK", ["cluster-1\0"]) == [mine]
    assert processes.marked("MARK", ["cluster-\0"]) == []
    assert processes.marked("MARK", []) == []


def test_signalling_a_process_that_has_ended_is_no_error(child: subprocess.Popen[bytes]) -> None:
    identity = processes.identify(child.pid)
    pidfd = processes.open_pidfd(identity)
    assert pidfd is not None
    child.kill()
    child.wait()
    processes.send(pidfd, signal.SIGTERM)
    processes.reap(identity.pid)
    os.close(pidfd)


def test_identities_survive_a_file() -> None:
    identity = Identity(1, 2, "three")
    assert msgspec.json.decode(msgspec.json.encode(identity), type=Identity) == identity
