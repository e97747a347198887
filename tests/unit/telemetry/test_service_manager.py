"""What systemd hears of a daemon, over a socket of the test's own."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eslurm.telemetry import service_manager
from tests.support.loops import run

DAEMON = """
import asyncio
from eslurm.telemetry.process import announced, run_daemon, stop_on_signals

async def main():
    stopped = asyncio.Event()
    stop_on_signals(stopped.set)
    announced(None).set_result("here:1")
    await stopped.wait()

run_daemon("d", main, "asyncio")
"""


@pytest.fixture
def heard(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    path = str(state_dir / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(path)
        channel.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        yield channel


def test_a_daemon_tells_that_it_is_ready_alive_and_stopping(heard: socket.socket) -> None:
    environ = os.environ | {"WATCHDOG_USEC": "200000"}
    with subprocess.Popen([sys.executable, "-c", DAEMON], env=environ, stdout=subprocess.DEVNULL) as daemon:
        said = [heard.recv(100)]
        while said.count(b"WATCHDOG=1") < 3:
            said.append(heard.recv(100))
        assert said.count(b"READY=1") == 1
        daemon.send_signal(signal.SIGTERM)
        while (last := heard.recv(100)) == b"WATCHDOG=1":
            pass
        assert last == b"STOPPING=1"
        assert daemon.wait(30) == 0


def test_an_abstract_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"eslurm-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(f"\0{name}")
        channel.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        service_manager.tell(service_manager.READY)
        assert channel.recv(100) == b"READY=1"


def test_nothing_is_sent_without_a_service_manager(
    heard: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET")
    service_manager.tell(service_manager.READY)
    heard.setblocking(False)
    with pytest.raises(BlockingIOError):
        heard.recv(100)


def test_a_service_manager_that_is_gone_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, state_dir: Path
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(state_dir / "gone"))
    service_manager.tell(service_manager.READY)


@pytest.mark.parametrize(
    "usec, pid, seconds", [("5000000", "", 5.0), ("5000000", "1", 0.0), ("", "", 0.0), ("x", "", 0.0)]
)
def test_the_watchdog_of_this_process_alone(
    usec: str, pid: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", usec)
    monkeypatch.setenv("WATCHDOG_PID", pid or str(os.getpid()))
    assert service_manager.watchdog_s() == seconds


def test_without_a_watchdog_nothing_keeps_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)

    async def check() -> None:
        await asyncio.wait_for(service_manager.keep_watchdog(), 30)

    run(check())
