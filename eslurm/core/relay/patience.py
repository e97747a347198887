"""Adaptive time-out of acknowledgements.

Owns the recent delays and this process' own lag. Invariant: the answer is never below the floor, and a late look at the
clock widens it by the lateness: a process that was itself asleep must read its inbox before it may blame its children.
"""

from __future__ import annotations

from collections import deque

SAMPLES_MAX = 512
RECALCULATE_EVERY = 16
WINDOW_US = 10_000_000
"""Window of delays: one overload must not make a relay patient for good."""
FIRST_ESTIMATE_AT = 16


class Patience:
    """The adaptive acknowledgement time-out: 2 x p99 of recent delays between floor and ceiling."""

    def __init__(self, floor_us: int, ceiling_us: int) -> None:
        self._floor_us = floor_us
        self._ceiling_us = ceiling_us
        self._delays: deque[tuple[int, int]] = deque(maxlen=SAMPLES_MAX)
        self._until_recalculation = FIRST_ESTIMATE_AT
        self._base_us = floor_us
        self.lag_us = 0

    def timeout_us(self) -> int:
        """Age in microseconds at which an unacknowledged send makes its addressee suspect.

        The lag counts twice: once for the time slept, once for reading what came in meanwhile.
        """
        return self._base_us + 2 * self.lag_us

    def note_ack(self, delay_us: int, now_us: int) -> None:
        """Learn from one acknowledgement; late ones count too, else the estimate could only shrink."""
        delays = self._delays
        delays.append((now_us, delay_us))
        self._until_recalculation -= 1
        if self._until_recalculation == 0:
            self._until_recalculation = RECALCULATE_EVERY
            while delays[0][0] < now_us - WINDOW_US:
                delays.popleft()
            ordered = sorted([delay for _, delay in delays])
            p99_us = ordered[(len(ordered) * 99) // 100]
            self._base_us = min(max(2 * p99_us, self._floor_us), self._ceiling_us)

    def note_lag(self, lag_us: int) -> None:
        """Learn how late this process handled its timers; the worst recent lag fades by a quarter."""
        self.lag_us = max(lag_us, self.lag_us * 3 // 4)
