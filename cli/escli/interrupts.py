"""Ctrl-C, SIGTERM and SIGHUP as a condition to check between two steps, instead of an exception within one.

Invariant: while `Interrupts` is entered no signal breaks a step off: a daemon that was just started is always recorded
before a signal is handled. Only for the main thread; elsewhere it does nothing.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import types
from collections.abc import Callable, Sequence

from escli.errors import Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Counts the requests to stop; use as a context manager. `first` is the first signal, `last` the last one, 0 before."""

    def __init__(self, signals: Sequence[int] = _SIGNALS) -> None:
        self.count = 0
        self.first = 0
        self.last = 0
        self._signals = signals
        self._told = 0
        self._before: dict[int, Callable[[int, types.FrameType | None], object] | int | None] = {}
        self._read_fd = self._write_fd = -1

    def __enter__(self) -> Interrupts:
        self._read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        if threading.current_thread() is threading.main_thread():
            for signum in self._signals:
                self._before[signum] = signal.signal(signum, self._on_signal)
        return self

    def __exit__(self, *_exc: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        os.close(self._read_fd)
        os.close(self._write_fd)

    def fileno(self) -> int:
        """The descriptor that is readable from the first request on."""
        return self._read_fd

    def _on_signal(self, signum: int, _frame: types.FrameType | None) -> None:
        self.first = self.first or signum
        self.last = signum
        self.request()

    def request(self) -> None:
        """Ask to stop, as a signal does."""
        self.count += 1
        try:
            os.write(self._write_fd, b"!")
        except BlockingIOError:
            return  # The pipe holds enough to wake a waiter.

    def check(self) -> None:
        """Raise `Interrupted` if there was a request since the last time it was raised."""
        if self.count > self._told:
            self._told = self.count
            raise Interrupted

    def forget(self) -> None:
        """Empty the descriptor: it is readable again from the next request on."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_fd, 4096)

    def wait(self, fds: Sequence[int], timeout_s: float) -> list[int]:
        """The readable ones of `fds`, after `timeout_s` at most. Raises `Interrupted`."""
        poller = select.poll()
        for fd in (self._read_fd, *fds):
            poller.register(fd, select.POLLIN)
        ready = [fd for fd, _ in poller.poll(max(0.0, timeout_s) * 1000)]
        if self._read_fd in ready:
            self.forget()
        self.check()
        return [fd for fd in ready if fd != self._read_fd]

    def is_hurried(self) -> Callable[[], bool]:
        """A check for later: has there been one more request since now?"""
        before = self.count
        return lambda: self.count > before
