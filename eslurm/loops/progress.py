"""A line on standard error that says how far a loop is, drawn anew at most ten times a second."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from eslurm.loops.record import Record

__all__ = ["Progress"]

EVERY_S = 0.1
WIDTH = 30


class Progress:
    """The bar of one loop; silent unless wanted, or unless standard error is a terminal when `wanted` is None."""

    def __init__(self, wanted: bool | None, out: TextIO | None = None) -> None:
        self._out = sys.stderr if out is None else out
        self._is_on = self._out.isatty() if wanted is None else wanted
        self._next = 0.0
        self._began = time.monotonic()

    def show(self, record: Record, workers: int) -> None:
        """Draw the line, if it is time for it."""
        now = time.monotonic()
        if self._is_on and now >= self._next:
            self._next = now + EVERY_S
            self._draw(record, workers, now - self._began, "")

    def end(self, record: Record, workers: int) -> None:
        """Draw the line for the last time, and leave it."""
        if self._is_on:
            self._draw(record, workers, time.monotonic() - self._began, "\n")

    def _draw(self, record: Record, workers: int, elapsed: float, end: str) -> None:
        share = record.done / record.n if record.n else 1.0
        bar = "#" * int(share * WIDTH)
        left = f"{elapsed / share - elapsed:.0f} s left" if 0 < share < 1 else f"{elapsed:.1f} s"
        self._out.write(
            f"\r[{bar:<{WIDTH}}] {share:4.0%} {record.done}/{record.n}, {workers} workers, {left}\x1b[K{end}"
        )
        self._out.flush()
