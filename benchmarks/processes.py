"""Processes that a benchmark starts, watches and ends.

Invariant: this process adopts whatever its descendants leave behind, so `end_descendants` leaves none of them.
"""

from __future__ import annotations

import compileall
import contextlib
import ctypes
import importlib.util
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
PACKAGES = ("eslurm", "esctld", "essatd", "esnoded", "escli")
READY_S = 60.0
STOP_S = 20.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_ROUNDS_MAX = 50
_kept: list[set[int]] = []


class NotReady(Exception):
    """A process ended, or said nothing, instead of becoming ready. The text holds its last words."""


def adopt_orphans() -> None:
    """Make this process the parent of whatever its descendants leave behind."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot adopt orphans (PR_SET_CHILD_SUBREAPER)")


def module(name: str, *arguments: str) -> list[str]:
    """The command line that runs a module with this interpreter."""
    return [sys.executable, "-P", "-m", name, *arguments]


def compile_packages() -> None:
    """Compile the product as an installation does: or the first start of each daemon would do it, and be measured."""
    compiled = True
    for name in PACKAGES:
        found = importlib.util.find_spec(name)
        if found is not None and found.submodule_search_locations:
            for place in found.submodule_search_locations:
                compiled = compileall.compile_dir(place, quiet=2) and compiled
    if not compiled:
        sys.stderr.write("bench: not everything could be compiled: start-up times and memory are too high\n")


class Daemon:
    """One daemon: started when it has said that it is ready. Its log is a file beside its state."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._command = list(command)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._cpu_before_s = 0.0
        self._ready_fd = -1

    def launch(self) -> int:
        """Start it without waiting; the descriptor on which it will say that it is ready."""
        reading, writing = os.pipe()
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [*self._command, "--ready-fd", str(writing)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writing,),
                start_new_session=True,
            )
        os.close(writing)
        return reading

    def start(self) -> None:
        """Start it and wait until it is ready. Raises `NotReady`."""
        self.wait_ready(self.launch())

    def relaunch(self) -> None:
        """Start it again, and wait for nothing."""
        ready_fd = self.launch()
        if self._ready_fd >= 0:
            os.close(self._ready_fd)
        # Open as long as it runs: it may take its time to become ready, and must not meet a closed pipe then.
        self._ready_fd = ready_fd

    def wait_ready(self, ready_fd: int, timeout_s: float = READY_S) -> None:
        """Wait for the line it writes when it serves."""
        try:
            readable, _, _ = select.select([ready_fd], [], [], timeout_s)
            if readable and os.read(ready_fd, 256):
                return
        finally:
            os.close(ready_fd)
        words = self._log.read_text(errors="replace")[-2000:]
        raise NotReady(f"{self.name} did not become ready; its last words:\n{words}")

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End it without any warning."""
        assert self._process is not None
        if self.alive:
            self._cpu_before_s = self.cpu_s()
        self._process.kill()
        self._process.wait()

    @property
    def alive(self) -> bool:
        """Check whether its process is there, stopped or not."""
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        """Send it a signal; nothing if it has ended."""
        if self.alive:
            for pid in self._pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def stop(self) -> None:
        """Ask it to end, and wait."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        self.signal(signal.SIGCONT)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def cpu_s(self) -> float:
        """CPU seconds it has used so far, those before a restart included."""
        return self._cpu_before_s + sum(map(cpu_s, self._pids()))

    def rss_mb(self) -> float:
        """Its resident memory in MB (2^20 bytes)."""
        return sum(map(rss_mb, self._pids()))

    def _pids(self) -> list[int]:
        """Its process, and the one that it keeps as another user where root has started it."""
        try:
            text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return [self.pid]
        return [self.pid, *map(int, text.split())]


def cpu_s(pid: int) -> float:
    """CPU seconds of a process, without its children's; 0 when it is gone."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S if fields else 0.0


def rss_mb(pid: int) -> float:
    """Resident memory of a process in MB (2^20 bytes)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _stat(pid: int) -> list[str]:
    """The fields after the name, from the state on; empty when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()


def keep(pids: set[int]) -> None:
    """Processes in this set are left alone, now and later, with all that are below them."""
    _kept.append(pids)


def descendants() -> list[int]:
    """All processes below this one, those that have ended but were not waited for included; not those to `keep`."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        fields = _stat(int(name))
        if fields:
            children.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    left = [os.getpid()]
    kept = set().union(*_kept)
    while left:
        below = [pid for pid in children.get(left.pop(), []) if pid not in kept]
        found += below
        left += below
    return found


def end_descendants() -> int:
    """Kill and reap everything below this process; how many there were. In rounds: a process may fork meanwhile."""
    count = 0
    for _ in range(_ROUNDS_MAX):
        pids = descendants()
        if not pids:
            return count
        count += len(pids)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap(set(pids))
    raise RuntimeError(f"processes that do not end: {descendants()}")


def _reap(pids: set[int]) -> None:
    """Wait for these; the killed ones end in a moment."""
    deadline = time.monotonic() + STOP_S
    while time.monotonic() < deadline and (left := pids.intersection(descendants())):
        for pid in left:
            # Whose parent lives a moment longer is not ours to wait for yet.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.002)
