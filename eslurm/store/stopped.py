"""Ends a stopped process that holds a SQLite file's write lock.

The lock is the kernel's: only its owner or the owner's end releases it, and a stopped owner (SIGSTOP, Ctrl-Z) does
neither. Invariant: the only process to be ended is a stopped one that has this very file open and holds its write lock.
"""

from __future__ import annotations

import logging
import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger("eslurm.store")

_LOCKS = Path("/proc/locks")
_WRITE_LOCK_BYTE = 120
"""Byte of the file `-shm` on which a writer in WAL mode holds its lock (SQLite's WAL-index format)."""
_END_WAIT_MS = 1_000


def end_stopped_writer(database: str) -> int:
    """End the stopped process that holds the write lock of this file; its pid, 0 when there is none.

    Its transaction is rolled back, as after any crash. A process that this user may not signal is left alone, and so are
    those that this system does not show: their locks are waited for like any other.
    """
    for pid in write_lock_holders(database):
        with _descriptor_of(pid) as pidfd:
            # Looked at again: from here on the number cannot pass to another process.
            if pidfd < 0 or pid not in write_lock_holders(database) or not _is_stopped(pid):
                continue
            try:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
            log.warning("process %d was stopped while it held the lock of %s: ended it", pid, database)
            # Its locks are gone when it is.
            poller = select.poll()
            poller.register(pidfd, select.POLLIN)
            poller.poll(_END_WAIT_MS)
            return pid
    return 0


@contextmanager
def _descriptor_of(pid: int) -> Iterator[int]:
    """A descriptor of the process, -1 when there is none."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        yield -1
        return
    try:
        yield pidfd
    finally:
        os.close(pidfd)


def write_lock_holders(database: str) -> list[int]:
    """The pids that hold the write lock of this file now, none or one.

    A lock is `1: POSIX  ADVISORY  WRITE 4711 fe:01:123 120 120`: owner, file, first and last byte. Opening the file to
    query its lock would be simpler, but closing it again would drop every lock that this process itself has there.
    """
    shared = f"{database}-shm"
    try:
        inode = os.stat(shared).st_ino
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        words = line.split()
        # Waiting processes are shown behind an arrow.
        if len(words) != 8 or words[1] != "POSIX" or words[3] != "WRITE":
            continue
        first, last = int(words[6]), _WRITE_LOCK_BYTE if words[7] == "EOF" else int(words[7])
        is_its = words[5].endswith(f":{inode}") and first <= _WRITE_LOCK_BYTE <= last
        # Of another pid namespace's process only 0 is shown. Numbers of inodes are unique on one device only.
        if is_its and int(words[4]) > 0 and _has_open(int(words[4]), shared):
            found.append(int(words[4]))
    return found


def _is_stopped(pid: int) -> bool:
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    # The name in parentheses may itself hold blanks and parentheses.
    return line[line.rindex(b")") + 2 :].split()[0] == b"T"


def _has_open(pid: int, path: str) -> bool:
    descriptors = f"/proc/{pid}/fd"
    try:
        return any(os.path.samefile(f"{descriptors}/{name}", path) for name in os.listdir(descriptors))
    except OSError:
        return False
