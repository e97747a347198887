"""The persistent records of `procd`, in a file of root's: launches, and the processes that it has started.

Invariants: a launch is in the file before its process exists, so a credential starts its step once, also after a restart;
a later `procd` ends processes by its own records, never by the supervisor's word. Each record is a line of its own, so a
torn one spoils no other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from eslurm.core.model.step_key import StepKey

LAUNCHES_MAX = 262_144
"""Credentials last a minute or two: so many launches in that time are more than a host can start."""
_RECORDS_MIN = 65_536


class Booted(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The following records are of this boot."""

    boot_id: str


class Launched(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """By a credential that ends at `until_us` (UTC)."""

    key: StepKey
    until_us: int


class Began(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A process that leads a session; with its start time in ticks it is known from others of that number."""

    pid: int
    start_ticks: int


_decoder = msgspec.json.Decoder(Booted | Launched | Began)


class Launches:
    """The open file. `leaders` are start times by pid of what an earlier `procd` has started in this boot."""

    def __init__(self, path: str, boot_id: str) -> None:
        """Read the file if there is one. `rewrite` follows before anything else. Raises OSError."""
        self._path = path
        self._boot_id = boot_id
        self._until_us: dict[StepKey, int] = {}
        self.leaders: dict[int, int] = {}
        self._fd = -1
        self._count = self._rewrite_at = 0
        self._is_this_boot = False
        with suppress(FileNotFoundError), open(path, "rb") as file:
            for line in file:
                with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                    self._take(_decoder.decode(line))

    def _take(self, record: Booted | Launched | Began) -> None:
        match record:
            case Booted(boot_id):
                self._is_this_boot = boot_id == self._boot_id
            case Launched(key, until_us):
                self._until_us[key] = until_us
            case Began(pid, start_ticks) if self._is_this_boot:
                self.leaders[pid] = start_ticks

    def learn(self, used: Mapping[StepKey, int], leaders: Mapping[int, int]) -> None:
        """Take over what an earlier version has kept elsewhere; `rewrite` follows."""
        self._until_us.update(used)
        self.leaders.update(leaders)

    def rewrite(self) -> None:
        """Keep what counts still. Raises OSError."""
        fresh = f"{self._path}.new"
        records: list[msgspec.Struct] = [Booted(self._boot_id)]
        records += [Launched(key, until_us) for key, until_us in self._until_us.items()]
        records += [Began(pid, ticks) for pid, ticks in self.leaders.items()]
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.writelines(map(_line, records))
            os.rename(fresh, self._path)
        except OSError:
            os.close(fd)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._count = fd, len(records)
        self._rewrite_at = max(_RECORDS_MIN, 2 * self._count)

    def is_used(self, key: StepKey, now_us: int) -> bool:
        """Check whether the step was launched before, by a credential that has not ended yet."""
        return self._until_us.get(key, 0) >= now_us

    def use(self, key: StepKey, until_us: int, now_us: int) -> None:
        """Remember a launch until its credential has ended. Raises OSError when that cannot be."""
        if self._count >= self._rewrite_at or len(self._until_us) >= LAUNCHES_MAX:
            self._until_us = {old: ends_us for old, ends_us in self._until_us.items() if ends_us >= now_us}
            if len(self._until_us) >= LAUNCHES_MAX:
                raise OSError("too many launches are remembered: try again in a minute")
            self.rewrite()
        self._add(Launched(key, until_us))
        self._until_us[key] = until_us

    def began(self, pid: int, start_ticks: int) -> None:
        """A process was started."""
        self.leaders[pid] = start_ticks
        # It runs: if the disk is full it is still known by its mark.
        with suppress(OSError):
            self._add(Began(pid, start_ticks))

    def ended(self, pid: int) -> None:
        """It was collected."""
        self.leaders.pop(pid, None)

    def _add(self, record: msgspec.Struct) -> None:
        self._count += 1
        line = _line(record)
        if os.write(self._fd, line) != len(line):
            raise OSError("the record of launches cannot be written: the disk is full")


def _line(record: msgspec.Struct) -> bytes:
    # The line before it may be torn.
    return b"\n" + msgspec.json.encode(record) + b"\n"
