"""Progress of long work: one line on a terminal that is overwritten; elsewhere a line now and then.

Work that is done within `QUIET_S` shows nothing.
"""

from __future__ import annotations

import sys
import time
from typing import Final

QUIET_S: Final = 2.0
TERMINAL_EVERY_S: Final = 0.5
ELSEWHERE_EVERY_S: Final = 30.0


class Progress:
    """Use as a context: the line goes away at its end."""

    def __init__(self, what: str, unit: str) -> None:
        self._what = what
        self._unit = unit
        self._began = time.monotonic()
        self._next = self._began + QUIET_S
        self._width = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()

    def show(self, done: int, total: int) -> None:
        """So many of so many: call it often."""
        now = time.monotonic()
        if now < self._next:
            return
        terminal = sys.stderr.isatty()
        self._next = now + (TERMINAL_EVERY_S if terminal else ELSEWHERE_EVERY_S)
        text = f"{self._what}: {done:,} of {total:,} {self._unit}, {now - self._began:.0f} s"
        if terminal:
            sys.stderr.write("\r" + text.ljust(self._width))
            self._width = max(self._width, len(text))
        else:
            sys.stderr.write(f"eslurm: {text}\n")
        sys.stderr.flush()
