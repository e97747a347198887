"""Virtual time: what happens next is the earliest call, and the first made among those of one instant.

Invariant: time never goes back, and a run is a function of the calls made alone: nothing here looks at a
clock or draws at random.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeAlias

Call: TypeAlias = Callable[[], None]


class Scheduler:
    """A heap of (instant, sequence, call). Instants are microseconds."""

    def __init__(self, start_us: int) -> None:
        self.at_us = start_us
        self.calls = 0
        self._heap: list[tuple[int, int, Call]] = []
        self._sequence = 0

    def now_us(self) -> int:
        """The present."""
        return self.at_us

    def call_at(self, due_us: int, callback: Call) -> None:
        """Call back at `due_us`, at once if that has passed, after everything that is due before."""
        self._sequence += 1
        if due_us < self.at_us:
            due_us = self.at_us
        heappush(self._heap, (due_us, self._sequence, callback))

    def call_in(self, delay_us: int, callback: Call) -> None:
        """Call back after a while."""
        self.call_at(self.at_us + delay_us, callback)

    def run(self, until_us: int, done: Callable[[], bool] | None = None) -> bool:
        """Play up to and including `until_us`; True as soon as `done` says so after a call."""
        heap = self._heap
        while heap and heap[0][0] <= until_us:
            due_us, _, callback = heappop(heap)
            self.at_us = due_us
            self.calls += 1
            callback()
            if done is not None and done():
                return True
        self.at_us = max(self.at_us, until_us)
        return False
