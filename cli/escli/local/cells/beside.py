"""The same work for several cells beside each other, each in a process of its own.

Processes, not threads: what starts and stops a cluster is written for one thread, and msgspec builds what it knows of a type
at its first use, which two threads must not do at once. Invariant: a signal to this process reaches each child once it can
handle it, and no child outlives the call.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import NoReturn

import msgspec

from escli import exits
from escli.errors import ClusterError, Interrupted
from escli.interrupts import Interrupts

AT_ONCE = min(8, max(2, os.cpu_count() or 1))
PROGRESS_S = 2.0
"""Work without an end for so long says how far it is, if that has changed."""
_POLL_S = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Tell = Callable[[str], None]
Work = Callable[[str, Interrupts, Tell], bytes]
"""Name of the cell, what interrupts the work, where its progress goes; returns what the parent needs of it."""


class Ending(msgspec.Struct, frozen=True):
    """The result of the work for one cell: `data`, or an error with this text."""

    data: bytes = b""
    error: str = ""
    code: int = exits.OK
    tail: tuple[str, ...] = ()
    was_interrupted: bool = False

    def get(self) -> bytes:
        """The data. Raises `ClusterError`, `Interrupted`."""
        if self.was_interrupted:
            raise Interrupted
        if self.error:
            raise ClusterError(self.error, self.code, self.tail)
        return self.data


class _Word(msgspec.Struct, frozen=True):
    """One line of a child: of its progress, or its last one."""

    line: str = ""
    ending: Ending | None = None


class _Child:
    """One process at work. `last`: the latest line of its progress."""

    def __init__(self, name: str, work: Work) -> None:
        self.name = name
        self.last = ""
        self.ending: Ending | None = None
        self._rest = b""
        sys.stdout.flush()
        sys.stderr.flush()
        self.read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
        # Until the child has handlers of its own.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            self.pid = os.fork()
            if self.pid == 0:
                _be_child(name, work, write_fd)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(write_fd)

    def read(self) -> bool:
        """Read what it said; false when that was all."""
        data = os.read(self.read_fd, 65536)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            word = msgspec.json.decode(line, type=_Word)
            self.last = word.line or self.last
            self.ending = word.ending or self.ending
        return bool(data)

    def end(self) -> Ending:
        """Forget it; how it ended."""
        os.close(self.read_fd)
        os.waitpid(self.pid, 0)
        return self.ending or Ending(error="its process was killed", code=exits.FAILED)


def _be_child(name: str, work: Work, write_fd: int) -> NoReturn:
    def say(word: _Word) -> None:
        os.write(write_fd, msgspec.json.encode(word) + b"\n")

    try:
        with Interrupts() as interrupts:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            try:
                ending = Ending(work(name, interrupts, lambda line: say(_Word(line))))
            except Interrupted:
                ending = Ending(was_interrupted=True)
            except ClusterError as error:
                ending = Ending(b"", error.text, error.code, error.tail)
            except Exception as error:
                tail = tuple(traceback.format_exc().splitlines()[-12:])
                ending = Ending(b"", f"{type(error).__name__}: {error}", exits.FAILED, tail)
            say(_Word(ending=ending))
    finally:
        os._exit(0)


def each(
    names: Sequence[str],
    work: Work,
    interrupts: Interrupts,
    *,
    goes_on: bool,
    on_end: Callable[[str, Ending], None],
    on_progress: Callable[[dict[str, str]], None],
) -> bool:
    """Do the work for each name, some at once; returns whether that was interrupted.

    An interrupt is passed to the children; without `goes_on` no further ones begin. `on_progress` gets the latest line of
    each that is at work, after a while without an end.
    """
    waiting = deque(names)
    running: dict[int, _Child] = {}
    was_interrupted = False
    told_s = time.monotonic()
    told: dict[str, str] = {}
    while running or (waiting and (goes_on or not was_interrupted)):
        while waiting and len(running) < AT_ONCE and (goes_on or not was_interrupted):
            child = _Child(waiting.popleft(), work)
            running[child.read_fd] = child
        try:
            ready = interrupts.wait(list(running), _POLL_S)
        except Interrupted:
            was_interrupted = True
            for child in running.values():
                os.kill(child.pid, signal.SIGTERM)
            continue
        for fd in ready:
            if not running[fd].read():
                child = running.pop(fd)
                on_end(child.name, child.end())
                told_s = time.monotonic()
        if time.monotonic() - told_s >= PROGRESS_S:
            told_s = time.monotonic()
            now = {child.name: child.last for child in running.values()}
            if now != told:
                told = now
                on_progress(now)
    return was_interrupted
