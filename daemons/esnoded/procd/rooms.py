"""Private directories of jobs: a mount namespace for each attempt on a node, with file systems in memory of its own.

All steps of the attempt on that node share it. It lasts until the agent says that the attempt has left the node, or this
process ends: a namespace that no descriptor and no process holds is gone with all that is in it, so nothing has to be
removed. Memory of its files is memory of the job.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from eslurm.core.model.step_key import NodeAttempt, StepKey
from esnoded.procd.log import complain

_CLONE_NEWNS = 0x20000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_SLAVE = 2, 4, 16384, 1 << 19
_HERE = "/proc/self/ns/mnt"


class Rooms:
    """The rooms of attempts, each a descriptor of its namespace."""

    def __init__(self) -> None:
        self._fds: dict[NodeAttempt, int] = {}

    def find(self, key: StepKey, directories: Iterable[str], size_mib: int) -> int:
        """The descriptor of the room of the step's attempt, which is made with its first step. Raises OSError.

        Each of the directories is empty in it and holds `size_mib` at most, 0: half of the node's memory.
        """
        attempt = (key.node, key.job_id, key.attempt)
        if attempt not in self._fds:
            self._fds[attempt] = _make(directories, size_mib)
        return self._fds[attempt]

    def close(self, attempts: Iterable[NodeAttempt]) -> None:
        """Let go of the rooms of these attempts, if they have one: with their last process they are gone."""
        for attempt in attempts:
            if (fd := self._fds.pop(attempt, -1)) >= 0:
                os.close(fd)


def enter(fd: int) -> None:
    """Move this process, which has one thread, into a room. Raises OSError."""
    _check(_libc().setns(fd, _CLONE_NEWNS), "cannot enter the private directories of the job")


def _make(directories: Iterable[str], size_mib: int) -> int:
    options = "mode=1777" + (f",size={size_mib}m" if size_mib else "")
    libc, home = _libc(), os.open(_HERE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Not in a child: a namespace is one of few calls, a fork costs more than all of them.
        _check(libc.unshare(_CLONE_NEWNS), "cannot make private directories")
        try:
            # What is mounted on the host later is seen here, and nothing of here on the host.
            _check(libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None), "cannot make mounts private")
            for path in directories:
                flags, target = _MS_NOSUID | _MS_NODEV, os.fsencode(path)
                _check(
                    libc.mount(b"tmpfs", target, b"tmpfs", flags, options.encode()), f"cannot mount {path}"
                )
            return os.open(_HERE, os.O_RDONLY | os.O_CLOEXEC)
        finally:
            if libc.setns(home, _CLONE_NEWNS):
                # It must not go on in a job's directories.
                complain("cannot leave the private directories of a job")
                os._exit(1)
    finally:
        os.close(home)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, text: str) -> None:
    """Raises OSError when a call has failed."""
    if result:
        raise OSError(ctypes.get_errno(), f"{text}: {os.strerror(ctypes.get_errno())}")
