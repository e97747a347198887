"""The timers of a relay: one pending instant per record or requester.

Invariant: an item's valid entry is the one that equals its `timer_us`; every other entry, and every
entry of a closed record, is stale and is skipped, so moving a timer costs no search.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from eslurm.core.relay.record import Record, Requester

Item = Record | Requester


class Timers:
    """A heap of (instant, sequence, item); the sequence keeps equal instants in order."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Item]] = []
        self._sequence = 0

    def schedule(self, item: Item, at_us: int) -> None:
        """Wake `item` at `at_us`, unless it is woken earlier anyway."""
        if item.timer_us is None or at_us < item.timer_us:
            item.timer_us = at_us
            self._sequence += 1
            heappush(self._heap, (at_us, self._sequence, item))

    def pop_due(self, now_us: int) -> Iterator[Item]:
        """The items that are due, each without a timer afterwards."""
        while self._heap and self._heap[0][0] <= now_us:
            at_us, _, item = heappop(self._heap)
            if not _is_stale(at_us, item):
                item.timer_us = None
                yield item

    def next_us(self) -> int | None:
        """The earliest valid instant."""
        heap = self._heap
        while heap:
            at_us, _, item = heap[0]
            if not _is_stale(at_us, item):
                return at_us
            heappop(heap)
        return None


def _is_stale(at_us: int, item: Item) -> bool:
    record = item if isinstance(item, Record) else item.record
    return record.closed or item.timer_us != at_us
