"""Deadlines of the supervisor, in microseconds of CLOCK_BOOTTIME.

A cancelled timer leaves the heap when it falls due or when most of the heap is cancelled, so the heap
stays within a small multiple of the timers that are still wanted: a step of one second may carry a time limit of a week.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

_REBUILD_MIN = 1024


class Timer:
    """One deadline; `cancel` may be called at any time, also after it fired."""

    __slots__ = ("_timers", "callback", "due_us", "order")

    def __init__(self, timers: Timers, due_us: int, order: int, callback: Callable[[], None]) -> None:
        self._timers = timers
        self.due_us = due_us
        self.order = order
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Never call back."""
        if self.callback is not None:
            self.callback = None
            self._timers.note_cancelled()

    def __lt__(self, other: Timer) -> bool:
        return (self.due_us, self.order) < (other.due_us, other.order)


class Timers:
    """A heap of deadlines; equal ones fire in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._order = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, due_us: int, callback: Callable[[], None]) -> Timer:
        """Call back in the first pass at or after `due_us`."""
        self._order += 1
        timer = Timer(self, due_us, self._order, callback)
        heapq.heappush(self._heap, timer)
        return timer

    def note_cancelled(self) -> None:
        """Count one dead timer, and rebuild the heap when most of it is dead."""
        self._cancelled += 1
        if self._cancelled > _REBUILD_MIN and self._cancelled * 2 > len(self._heap):
            self._heap = [timer for timer in self._heap if timer.callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def next_due_us(self) -> int | None:
        """Time of the next timer, None without any."""
        while self._heap and self._heap[0].callback is None:
            heapq.heappop(self._heap)
            self._cancelled = max(0, self._cancelled - 1)
        return self._heap[0].due_us if self._heap else None

    def run_due(self, now_us: int) -> None:
        """Call back everything due by `now_us`; timers set meanwhile wait for the next pass."""
        due: list[Timer] = []
        while (next_us := self.next_due_us()) is not None and next_us <= now_us:
            due.append(heapq.heappop(self._heap))
        for timer in due:
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
