"""Each consumer's use over time (usdRS), and queries of a use over time: excess, and its end.

A use is given as `Steps`: instants in ascending order, and the use from each on. Invariant: a `Used` is the sum of its
consumer's bookings that were not revoked, from the last `advance` on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TypeAlias

from eslurm.core.model.units import SECOND_US
from eslurm.core.resources.timeline import INFINITY_US, Timeline

Steps: TypeAlias = tuple[list[int], list[int]]
"""Instants in ascending order, and the items used from each on; nothing is used before the first."""


class Used:
    """One consumer's use of one resource by running and planned jobs.

    Kept as changes, which two list operations book: bookings are more frequent than queries.
    """

    __slots__ = ("_at", "_changes", "_since_us", "_spans", "_sums", "now_us")

    def __init__(self, now_us: int = 0) -> None:
        self.now_us = now_us
        self._since_us = -INFINITY_US
        self._at: list[int] = []
        self._changes: list[int] = []
        self._sums: list[int] | None = None
        # (start, stop) of each booking, and of how many.
        self._spans: dict[tuple[int, int], int] = {}

    def book(self, start_us: int, stop_us: int, items: int) -> None:
        """Add a job that holds `items` over the interval."""
        span = (start_us, stop_us)
        self._spans[span] = self._spans.get(span, 0) + 1
        self._shift(start_us, stop_us, items)

    def revoke(self, start_us: int, stop_us: int, items: int) -> None:
        """Remove a booking. Raises `KeyError` for one that was not made."""
        span = (start_us, stop_us)
        left = self._spans[span] - 1
        if left:
            self._spans[span] = left
        else:
            del self._spans[span]
        self._shift(start_us, stop_us, -items)

    def advance(self, now_us: int) -> None:
        """Forget the use before now."""
        self.now_us = self._since_us = now_us
        passed = bisect_right(self._at, now_us)
        if passed:
            base = sum(self._changes[:passed])
            self._at[:passed] = [now_us] if base else []
            self._changes[:passed] = [base] if base else []
            self._sums = None

    def copy(self) -> Used:
        """An independent copy."""
        other = Used(self.now_us)
        other._since_us = self._since_us
        other._at = self._at.copy()
        other._changes = self._changes.copy()
        other._spans = self._spans.copy()
        return other

    @property
    def steps(self) -> Steps:
        """Instants and the use from each on; read-only."""
        if self._sums is None:
            self._sums = list(accumulate(self._changes))
        return self._at, self._sums

    @property
    def items_now(self) -> int:
        """Items used now."""
        return used_at(self.steps, self.now_us)

    @property
    def jobs_now(self) -> int:
        """Number of jobs that hold the resource now."""
        now_us = self.now_us
        return sum(count for (start, stop), count in self._spans.items() if start <= now_us < stop)

    @property
    def next_release_us(self) -> int | None:
        """Microseconds until the use falls below today's; None: never."""
        at_us = first_within(self.steps, self.items_now - 1, self.now_us)
        return at_us - self.now_us if at_us is not None else None

    def area_from(self, from_us: int) -> int:
        """Items times microseconds used from an instant on; `INFINITY_US` when that never ends."""
        at, used = self.steps
        if used and used[-1]:
            return INFINITY_US
        area = 0
        for index in range(len(at) - 2, -1, -1):
            if at[index + 1] <= from_us:
                break
            area += used[index] * (at[index + 1] - max(at[index], from_us))
        return area

    def area_below_from(self, most: int) -> int | None:
        """The first instant from which on at most `most` items times microseconds are used; None: never."""
        at, used = self.steps
        if used and used[-1]:
            return None
        area = 0
        for index in range(len(at) - 2, -1, -1):
            step = used[index] * (at[index + 1] - at[index])
            if area + step > most:
                # Within this step the area still to come shrinks by `used` each microsecond.
                return at[index + 1] - (most - area) // used[index]
            area += step
        return -INFINITY_US

    def _shift(self, start_us: int, stop_us: int, items: int) -> None:
        begin_us = max(start_us, self._since_us)
        if stop_us <= begin_us:
            return
        at, changes = self._at, self._changes
        self._sums = None
        both = ((begin_us, items), (stop_us, -items))
        for at_us, change in both if stop_us < INFINITY_US else both[:1]:
            index = bisect_left(at, at_us)
            if index == len(at) or at[index] != at_us:
                at.insert(index, at_us)
                changes.insert(index, change)
            elif changes[index] + change:
                changes[index] += change
            else:
                del at[index], changes[index]


def steps_of(timeline: Timeline) -> Steps:
    """The steps of a timeline; read-only."""
    return timeline._at, timeline._used


def used_at(steps: Steps, at_us: int) -> int:
    """Items used at one instant."""
    index = bisect_right(steps[0], at_us)
    return steps[1][index - 1] if index else 0


def last_over(steps: Steps, most: int, from_us: int, until_us: int) -> int | None:
    """The beginning of the last step in [from_us, until_us) in which more than `most` items, 0 at least, are used."""
    at, used = steps
    first = bisect_right(at, from_us)
    last = len(at) if until_us >= INFINITY_US else bisect_left(at, until_us, first)
    if first < last and max(used[first:last]) > most:
        while used[last - 1] <= most:
            last -= 1
        return at[last - 1]
    return from_us if first and used[first - 1] > most else None


def first_within(steps: Steps, most: int, from_us: int) -> int | None:
    """The first instant from `from_us` on at which at most `most` items are used."""
    at, used = steps
    index = bisect_right(at, from_us)
    if (used[index - 1] if index else 0) <= most:
        return from_us
    # The answer is mostly near: a loop beats copying what lies behind.
    while index < len(at):
        if used[index] <= most:
            return at[index]
        index += 1
    return None


def amount_words(items: int, resource: str) -> str:
    """`640 cores`, `1 core`, `2048 MiB of memory`, `3 gpu`."""
    if resource == "memory_mib":
        return f"{items} MiB of memory"
    if resource in ("cores", "nodes", "jobs"):
        return f"{items} {resource.removesuffix('s') if items == 1 else resource}"
    return f"{items} {resource}"


def length_words(length_us: int) -> str:
    """`2 h 10 min`: the two largest units, rounded up to seconds; `INFINITY_US` is `no end`."""
    if length_us >= INFINITY_US:
        return "no end"
    seconds = -(-max(0, length_us) // SECOND_US)
    words: list[str] = []
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, seconds = divmod(seconds, size)
        if count:
            words.append(f"{count} {unit}")
    return " ".join(words[:2]) or "0 s"
