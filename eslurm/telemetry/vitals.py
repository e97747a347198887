"""Metrics of a daemon's own process: memory, CPU, descriptors, sockets, and the lag of its event loop."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from pathlib import Path

SAMPLE_S = 0.25
SELF = Path("/proc/self")
_STARTED_S = time.time()


class LoopLag:
    """The worst lag of the event loop since the last look. `start` and `stop` it with the process."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._worst_s = 0.0

    def start(self) -> None:
        """Begin to measure."""
        self._due_s = self._loop.time() + SAMPLE_S
        self._timer = self._loop.call_at(self._due_s, self._sample)

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()

    def take_us(self) -> int:
        """The worst lag since the last call, in microseconds; a sample that is overdue now counts."""
        worst_s = max(self._worst_s, self._loop.time() - self._due_s)
        self._worst_s = 0.0
        return int(worst_s * 1_000_000)

    def _sample(self) -> None:
        self._worst_s = max(self._worst_s, self._loop.time() - self._due_s)
        self.start()


def rss_bytes(process: Path = SELF) -> int:
    """Resident memory; 0 where the kernel does not say."""
    try:
        pages = (process / "statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def sockets(process: Path = SELF) -> int:
    """Open sockets; 0 where the kernel does not say."""
    count = 0
    try:
        with os.scandir(process / "fd") as entries:
            for entry in entries:
                count += _is_socket(entry.path)
    except OSError:
        return 0
    return count


def open_files(process: Path = SELF) -> int:
    """Open descriptors; 0 where the kernel does not say."""
    try:
        return len(os.listdir(process / "fd"))
    except OSError:
        return 0


def open_files_max() -> int:
    """Greatest number of open descriptors of this process."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def cpu_s() -> float:
    """CPU time of this process so far, without its children's."""
    return time.process_time()


def started_s() -> float:
    """Begin of this process, approximately: the import of this module, in seconds since the epoch."""
    return _STARTED_S


def _is_socket(path: str) -> bool:
    try:
        return os.readlink(path).startswith("socket:")
    except OSError:
        # Closed since it was listed.
        return False
