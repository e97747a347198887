"""Processes as the kernel reports them: identity, session, parentage, and their step.

A bare pid identifies nothing for long; a (pid, start time) pair does until the next boot.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from esnoded.task.program import STEP_MARKER

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_LINE_BYTES_MAX = 4096
_ENVIRON_BYTES_MAX = 256 * 1024
"""A process may have much more, which costs whoever reads it 2 ms a megabyte; a mark behind that is none."""


class Process(NamedTuple):
    """One line of `/proc/<pid>/stat`; `start_ticks` is in clock ticks since boot."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start_ticks: int


def read_boot_id() -> str:
    """The random identity the kernel drew at this boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def find_process(pid: int) -> Process | None:
    """The process with this pid, zombies included; None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            line = file.read(_LINE_BYTES_MAX)
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name is in parentheses and may itself hold blanks and parentheses.
    fields = line[line.rindex(b")") + 2 :].split()
    return Process(pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def start_ticks_of(pid: int) -> int:
    """The start time of a process, 0 when it is gone."""
    process = find_process(pid)
    return process.start_ticks if process else 0


def all_processes(names: Iterable[str] | None = None) -> Iterator[Process]:
    """Every process of the node, or those of these numbers; one after the other, about 15 us each."""
    for name in os.listdir("/proc") if names is None else names:
        if name.isdigit():
            process = find_process(int(name))
            if process is not None:
                yield process


def own_children() -> Iterator[Process]:
    """Children of this process, adopted ones included, and maybe others; a thread that alone collects them misses none."""
    with suppress(FileNotFoundError), open(f"/proc/self/task/{os.getpid()}/children") as file:
        return all_processes(file.read().split())
    # The kernel does not list them.
    return all_processes()


def uid_of(pid: int) -> int:
    """The user who runs a process, also a set-user-id program; -1 when it is gone."""
    with suppress(OSError), open(f"/proc/{pid}/status", "rb", buffering=0) as file:
        for line in file.read(_LINE_BYTES_MAX).split(b"\n"):
            if line.startswith(b"Uid:"):
                return int(line.split()[1])
    return -1


def marker_of(pid: int) -> str:
    """The step marker in a process's environment, empty when absent or not ours to read."""
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            environment = file.read(_ENVIRON_BYTES_MAX)
    except OSError:
        return ""
    prefix = STEP_MARKER.encode() + b"="
    for entry in environment.split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode(errors="replace")
    return ""


def become_subreaper() -> None:
    """Make orphaned descendants children of this process instead of init's. Raises OSError."""
    _turn_on(_PR_SET_CHILD_SUBREAPER, "cannot become the reaper of orphaned processes")


def hide() -> None:
    """No memory of this process is dumped, and none but root's looks into it. Its tasks' programs are as usual."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def renounce() -> None:
    """Neither this process nor what it runs gains rights by set-user-id programs or file capabilities. Raises OSError."""
    _turn_on(_PR_SET_NO_NEW_PRIVS, "cannot renounce new rights")


def _turn_on(option: int, problem: str) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), problem)


def kill_group(group: int, signum: int) -> None:
    """Signal a process group; a group that is gone, or holds only others' processes, is no error."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signum)


def kill_process(pid: int, signum: int) -> None:
    """Signal one process; one that is gone is no error."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)


def kill_exactly(process: Process, signum: int) -> None:
    """Signal one process that is no child of ours, unless another has got its number meanwhile."""
    with suppress(ProcessLookupError, PermissionError):
        fd = os.pidfd_open(process.pid)
        try:
            if start_ticks_of(process.pid) == process.start_ticks:
                signal.pidfd_send_signal(fd, signum)
        finally:
            os.close(fd)
