"""The host's own health as a few words: `clock`, `disk`, `load`, `memory`.

Invariants: what cannot be read is no problem; the event loop never reads, because a file system that hangs would
hold it up (and is a problem: `disk`); a host in full use is healthy. A problem is said for at least `hold_s`, so a
value around its limit does not change the answers to every heartbeat.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

_PROC = Path("/proc")
_STA_UNSYNC = 0x0040
"""Of adjtimex(2): the clock is not disciplined, or its error is beyond 16 s."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Beyond which a host is not well. Jobs may use all cores and nearly all memory: that is what it is for."""

    memory_available_share: float = 0.02
    """Below this the kernel is about to kill: jobs alone are held to what they asked for."""
    memory_stalled_percent: float = 20.0
    """Of a minute, in which nothing ran because all waited for memory (PSI full avg60); computing alone gives 0."""
    disk_free_share: float = 0.02
    disk_free_bytes: int = 1 << 30
    """A disk is full below both limits: two per cent of a large disk are plenty."""
    load_per_core: float = 8.0
    load_min: float = 64.0
    """Five minutes' load above both: several threads a core are usual, a pile of blocked processes is more."""
    clock_jump_s: float = 2.0
    hold_s: float = 60.0
    fresh_s: float = 9.0
    """A reading serves for so long."""
    hang_s: float = 15.0
    """A reading that takes longer hangs: the disk does not answer."""


class Clocks(msgspec.Struct, frozen=True):
    """One look at the clocks: seconds of wall time and since boot; `synchronised` is None when it is not known."""

    wall_s: float
    boot_s: float
    synchronised: bool | None = None


class Sources:
    """Sources of readings. Each returns None when there is no such thing here."""

    def __init__(self, disks: tuple[Path, ...], proc: Path = _PROC) -> None:
        self._disks = disks
        self._proc = proc

    def memory_available_share(self) -> float | None:
        """MemAvailable of MemTotal."""
        try:
            lines = (self._proc / "meminfo").read_text().splitlines()
            fields = dict(line.split(":", 1) for line in lines)
            total = int(fields["MemTotal"].split()[0])
            return int(fields["MemAvailable"].split()[0]) / total
        except (OSError, ValueError, KeyError, IndexError, ZeroDivisionError):
            return None

    def memory_stalled_percent(self) -> float | None:
        """`full avg60` of the pressure file: kernels before 4.20, and some containers, have none."""
        try:
            for line in (self._proc / "pressure" / "memory").read_text().splitlines():
                kind, *fields = line.split()
                if kind == "full":
                    return float(dict(field.split("=", 1) for field in fields)["avg60"])
        except (OSError, ValueError, KeyError):
            return None
        return None

    def load_5min(self) -> float | None:
        """Load average over five minutes."""
        try:
            return float((self._proc / "loadavg").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            return None

    def cores(self) -> int:
        """Cores of the host."""
        return os.cpu_count() or 1

    def disks(self) -> list[os.statvfs_result]:
        """Of each directory that there is; may block for as long as its file system does."""
        found = []
        for disk in self._disks:
            try:
                found.append(os.statvfs(disk))
            except OSError:
                continue
        return found

    def clocks(self) -> Clocks:
        """Both clocks, read together."""
        return Clocks(time.time(), _boot_s(), _is_synchronised())


class Health:
    """Judges readings. Each call of `read` is one look; `problems` gives what holds at that time."""

    def __init__(self, sources: Sources, limits: Limits | None = None) -> None:
        self._sources = sources
        self._limits = limits if limits is not None else Limits()
        self._clocks: Clocks | None = None
        self._was_synchronised = False
        self._seen_s: dict[str, float] = {}

    def read(self) -> tuple[str, ...]:
        """The problems, sorted. Blocks while the disks do."""
        clocks = self._sources.clocks()
        now_s = clocks.boot_s
        checks = {
            "memory": self._memory_is_short(),
            "disk": any(self._is_full(disk) for disk in self._sources.disks()),
            "load": self._is_overloaded(),
            "clock": self._clock_is_off(clocks),
        }
        self._seen_s |= {word: now_s for word, is_bad in checks.items() if is_bad}
        held = (word for word, seen_s in self._seen_s.items() if now_s - seen_s <= self._limits.hold_s)
        return tuple(sorted(held))

    def _memory_is_short(self) -> bool:
        share = self._sources.memory_available_share()
        stalled = self._sources.memory_stalled_percent()
        return (share is not None and share < self._limits.memory_available_share) or (
            stalled is not None and stalled > self._limits.memory_stalled_percent
        )

    def _is_full(self, disk: os.statvfs_result) -> bool:
        """No room or no inodes left, or made read-only by the kernel after an error."""
        limits = self._limits
        if disk.f_flag & os.ST_RDONLY:
            return True
        free_bytes = disk.f_bavail * disk.f_frsize
        is_out_of_room = (
            disk.f_bavail < disk.f_blocks * limits.disk_free_share and free_bytes < limits.disk_free_bytes
        )
        # File systems without a fixed number of inodes say 0.
        return is_out_of_room or (disk.f_files > 0 and disk.f_favail < disk.f_files * limits.disk_free_share)

    def _is_overloaded(self) -> bool:
        load = self._sources.load_5min()
        limit = max(self._limits.load_min, self._limits.load_per_core * self._sources.cores())
        return load is not None and load > limit

    def _clock_is_off(self, clocks: Clocks) -> bool:
        """It jumped since the last look, or was synchronised once and is not any more.

        A site that synchronises no clocks has no problem that would tell its nodes apart.
        """
        before, self._clocks = self._clocks, clocks
        self._was_synchronised |= clocks.synchronised is True
        if self._was_synchronised and clocks.synchronised is False:
            return True
        if before is None:
            return False
        drift_s = (clocks.wall_s - before.wall_s) - (clocks.boot_s - before.boot_s)
        return abs(drift_s) > self._limits.clock_jump_s


class HealthWatch:
    """The last reading, renewed on demand: a reading is made in a thread of its own, one at a time.

    A daemon thread, so that one which hangs in a file system delays neither the loop nor the end of the process.
    """

    def __init__(
        self,
        read: Callable[[], tuple[str, ...]],
        limits: Limits | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._limits = limits if limits is not None else Limits()
        self._clock_s = clock_s
        self._problems: tuple[str, ...] = ()
        self._reading: threading.Thread | None = None
        self._begun_s = 0.0

    def problems(self) -> tuple[str, ...]:
        """The problems of the last reading, at once; begins a new one when due."""
        now_s = self._clock_s()
        reading = self._reading
        if reading is not None and reading.is_alive():
            hangs = now_s - self._begun_s > self._limits.hang_s
            return tuple(sorted({*self._problems, "disk"})) if hangs else self._problems
        if reading is None or now_s - self._begun_s >= self._limits.fresh_s:
            self._begun_s = now_s
            self._reading = threading.Thread(target=self._renew, name="health", daemon=True)
            self._reading.start()
        return self._problems

    def _renew(self) -> None:
        self._problems = self._read()


class _Timex(ctypes.Structure):
    """The used fields of `struct timex`, and padding for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def _is_synchronised() -> bool | None:
    """Check whether the kernel's clock is disciplined; None where that cannot be asked."""
    timex = _Timex()
    try:
        if ctypes.CDLL(None).adjtimex(ctypes.byref(timex)) < 0:
            return None
    except (OSError, AttributeError):
        return None
    return not timex.status & _STA_UNSYNC


def _boot_s() -> float:
    """Seconds since boot, time asleep included: a host that slept has not jumped."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def watch(state_dir: Path) -> HealthWatch:
    """The health of this host: its memory, load and clock, and the disks of the agent and of jobs' scratch files."""
    scratch = Path("/tmp")  # nosec B108 # how full it is; nothing is opened there
    return HealthWatch(Health(Sources((state_dir, scratch))).read)
