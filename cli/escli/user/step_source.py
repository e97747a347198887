"""Descriptors from which the input of a step is read.

Invariants: no read blocks, or changes a descriptor that other processes share; in the background of its terminal this
process reads nothing of it, and is not stopped.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from eslurm.core.model.step_input import TerminalSize


class InputSource:
    """A descriptor to read from without waiting; owns it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._mode = os.fstat(fd).st_mode
        self._is_terminal = stat.S_ISCHR(self._mode) and os.isatty(fd)
        self._socket = socket.socket(fileno=fd) if stat.S_ISSOCK(self._mode) else None
        self._stopping: Any = None
        if self._is_terminal:
            # A process that reads in the background is stopped, with all output of its tasks.
            with contextlib.suppress(ValueError):
                self._stopping = signal.signal(signal.SIGTTIN, signal.SIG_IGN)

    def fileno(self) -> int:
        """Readable when `read` has something, unless it is a file."""
        return self._fd

    @property
    def wakes(self) -> int:
        """Another descriptor that interrupts the wait when it is readable; -1: none."""
        return -1

    def begin(self) -> None:
        """All nodes are there; the first read follows."""

    def take_size(self) -> TerminalSize | None:
        """The new size of a terminal, once."""
        return None

    @property
    def is_mine(self) -> bool:
        """Check whether it is for this process to read now: of a terminal, in the foreground only."""
        if not self._is_terminal:
            return True
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:
            # It is not the one that controls this process.
            return True

    def read(self, size: int) -> bytes | None:
        """At most `size` bytes, none at the end; None: there is nothing now."""
        try:
            if self._socket is not None:
                return self._socket.recv(size, socket.MSG_DONTWAIT)
            if stat.S_ISCHR(self._mode) or stat.S_ISFIFO(self._mode):
                poller = select.poll()
                poller.register(self._fd, select.POLLIN)
                if not poller.poll(0):
                    return None
            return os.read(self._fd, size)
        except BlockingIOError:
            return None
        except OSError as error:
            return None if error.errno == errno.EIO and not self.is_mine else b""

    def close(self) -> None:
        """Close it."""
        if self._socket is not None:
            self._socket.close()
        else:
            os.close(self._fd)
        if self._stopping is not None:
            signal.signal(signal.SIGTTIN, self._stopping)


def own_input() -> InputSource:
    """This process's standard input; the end at once where it has none."""
    # Where it was closed its number is another file's by now.
    if sys.__stdin__ is None:
        return InputSource(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    mode = os.fstat(0).st_mode
    if stat.S_ISFIFO(mode):
        # Opened anew it does not block, and stays as it is for other processes that read from it.
        with contextlib.suppress(OSError):
            return InputSource(os.open("/proc/self/fd/0", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    return InputSource(os.dup(0))
