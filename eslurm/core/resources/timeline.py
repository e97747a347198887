"""RUSV: use of ONE resource at each instant from now to infinity (C-18).

A timeline is a step function kept in canonical form: instants strictly ascending, neighbouring values differ, nothing
stored where nothing is used. Invariants: used + free = total at every instant and neither is below zero; an operation that
would break this raises `TimelineError` and leaves the timeline as it was. A *defect* is the part of the total that is out
of service: used items stay used, but only `available` = total - defect counts for free ones. Times are integer
microseconds, slots are half open [start_us, stop_us), and `INFINITY_US` as a stop means for ever.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, compress
from typing import Final

import msgspec

INFINITY_US: Final = (1 << 63) - 1

MIN_GAP_US: Final = 1_000_000
"""minDist: free gaps that are no longer than this are not worth a slot (C-24)."""


class Slot(msgspec.Struct, frozen=True, array_like=True):
    """`items` of the resource over [start_us, stop_us); used or free, by context."""

    start_us: int
    stop_us: int
    items: int


class TimelineError(ValueError):
    """The operation would use more than the total, or release more than is used."""


class Timeline:
    """The use of one resource over time. `at` and `used` describe the steps, see the module."""

    __slots__ = ("_at", "_used", "defect", "total")

    def __init__(self, total: int, defect: int = 0) -> None:
        if total < 0:
            raise ValueError(f"a timeline's total must not be negative: {total}")
        if not 0 <= defect <= total:
            raise ValueError(f"a timeline's defect must be within its total of {total}: {defect}")
        self.total = total
        self.defect = defect
        self._at: list[int] = []
        self._used: list[int] = []

    @classmethod
    def from_slots(cls, total: int, slots: Iterable[Slot]) -> Timeline:
        """The sum of used slots that may overlap (C-20); linear in their number after one sort."""
        deltas: dict[int, int] = {}
        for slot in slots:
            _check_slot(slot.start_us, slot.stop_us, slot.items)
            deltas[slot.start_us] = deltas.get(slot.start_us, 0) + slot.items
            if slot.stop_us < INFINITY_US:
                deltas[slot.stop_us] = deltas.get(slot.stop_us, 0) - slot.items
        result = cls(total)
        used = 0
        for at_us in sorted(deltas):
            delta = deltas[at_us]
            if delta == 0:
                continue
            used += delta
            _check_range(used, total)
            result._at.append(at_us)
            result._used.append(used)
        return result

    @classmethod
    def from_changes(cls, total: int, at_us: Sequence[int], changes: Sequence[int]) -> Timeline:
        """A timeline from the changes of use at ascending instants."""
        if len(at_us) != len(changes):
            raise ValueError(f"{len(at_us)} instants do not go with {len(changes)} changes")
        result = cls(total)
        result._at = list(compress(at_us, changes))
        result._used = list(accumulate(filter(None, changes)))
        if result._used:
            _check_range(min(result._used), total)
            _check_range(max(result._used), total)
        return result

    def copy(self) -> Timeline:
        """An independent copy."""
        result = Timeline(self.total, self.defect)
        result._at = self._at.copy()
        result._used = self._used.copy()
        return result

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Timeline):
            return NotImplemented
        mine = (self.total, self.defect, self._at, self._used)
        return mine == (other.total, other.defect, other._at, other._used)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"Timeline({self.total}, {self.defect}, {list(self.slots())})"

    # Reading

    @property
    def available(self) -> int:
        """Items in service (avl): maxAvl - defect."""
        return self.total - self.defect

    def slots(self) -> tuple[Slot, ...]:
        """The stored slots: ascending, each with a use above 0."""
        stops = [*self._at[1:], INFINITY_US]
        return tuple(
            Slot(start, stop, used)
            for start, stop, used in zip(self._at, stops, self._used, strict=False)
            if used
        )

    def used_at(self, at_us: int) -> int:
        """Items used at one instant."""
        index = bisect_right(self._at, at_us) - 1
        return self._used[index] if index >= 0 else 0

    def free_at(self, at_us: int) -> int:
        """Free items at one instant; 0 where a defect leaves less than is used."""
        return max(self.available - self.used_at(at_us), 0)

    def least_free(self, start_us: int, stop_us: int) -> int:
        """The smallest number of free items anywhere in [start_us, stop_us)."""
        return max(self.available - max(self._values(start_us, stop_us)), 0)

    def least_used(self, start_us: int, stop_us: int) -> int:
        """The smallest number of used items anywhere in [start_us, stop_us)."""
        return min(self._values(start_us, stop_us))

    def earliest_fit(
        self, items: int, duration_us: int, from_us: int, until_us: int = INFINITY_US
    ) -> int | None:
        """The first instant from `from_us` on at which `items` are free for `duration_us`; None when there is none.

        The whole interval lies before `until_us`; a duration of `INFINITY_US` means for ever.
        """
        for window in self._windows(items, from_us, until_us):
            if _lasts(window.start_us, window.stop_us, duration_us):
                return window.start_us
        return None

    def free_slots(self, items: int, duration_us: int, from_us: int, until_us: int) -> list[Slot]:
        """getFreeSlots (C-23): the windows in [from_us, until_us) in which at least `items` stay free.

        Each is as long as possible, at least `duration_us`, and carries the least number of free items in it.
        """
        return [
            window
            for window in self._windows(items, from_us, until_us)
            if _lasts(window.start_us, window.stop_us, duration_us)
        ]

    # Changing

    def increment(self, start_us: int, stop_us: int, items: int) -> None:
        """Use `items` more over the interval (C-19). Raises when that exceeds the available items."""
        _check_slot(start_us, stop_us, items)
        _check_range(max(self._values(start_us, stop_us)) + items, self.available)
        self._shift(start_us, stop_us, items)

    def hold(self, start_us: int, stop_us: int, items: int) -> None:
        """Use `items` more over the interval even when fewer are available: what is already held must count.

        The total grows by what is missing, as out of service.
        """
        _check_slot(start_us, stop_us, items)
        lack = max(self._values(start_us, stop_us)) + items - self.total
        if lack > 0:
            self.total += lack
            self.defect += lack
        self._shift(start_us, stop_us, items)

    def decrement(self, start_us: int, stop_us: int, items: int) -> None:
        """Use `items` less over the interval (C-19). Raises when the use would fall below 0."""
        _check_slot(start_us, stop_us, items)
        _check_range(min(self._values(start_us, stop_us)) - items, self.total)
        self._shift(start_us, stop_us, -items)

    def forget(self, before_us: int) -> None:
        """Drop the steps that have no effect at or after an instant."""
        past = bisect_right(self._at, before_us) - 1
        if past < 0:
            return
        if not self._used[past]:
            past += 1
        del self._at[:past], self._used[:past]

    # Combining

    def plus(self, other: Timeline) -> Timeline:
        """The sum of both uses, against this timeline's total (C-20). Raises when the sum exceeds it."""
        return self._combined(other, self.total, lambda mine, theirs: mine + theirs, self.defect)

    def minus(self, other: Timeline) -> Timeline:
        """This use without the other's (C-20). Raises when the other is larger anywhere."""
        return self._combined(other, self.total, lambda mine, theirs: mine - theirs, self.defect)

    def transposed(self, period_us: int, items: int, from_us: int, until_us: int) -> Timeline:
        """cronToRUSV (C-46): this timeline's slots, one period from instant 0 on, repeated over [from_us, until_us).

        Each repeated slot uses `items` of a total of `items`. The last period begins before `until_us`, which is finite.
        """
        if period_us <= 0 or not from_us < until_us < INFINITY_US:
            raise ValueError(f"a period of {period_us} cannot be repeated over [{from_us}, {until_us})")
        template = self.slots()
        if template and not 0 <= template[0].start_us < template[-1].stop_us <= period_us:
            raise ValueError(f"a template's slots lie within its period of {period_us}: {self!r}")
        result = Timeline(items)
        for offset_us in range(from_us - from_us % period_us, until_us, period_us):
            for slot in template:
                start_us = max(slot.start_us + offset_us, from_us)
                stop_us = min(slot.stop_us + offset_us, until_us)
                if start_us >= stop_us:
                    continue
                if result._at and result._at[-1] == start_us:
                    result._at[-1] = stop_us
                else:
                    result._at += (start_us, stop_us)
                    result._used += (items, 0)
        return result

    def normalised(self, min_gap_us: int = MIN_GAP_US) -> Timeline:
        """Close free gaps of at most `min_gap_us` between slots of equal use (C-24).

        The gap counts as used afterwards, so the result never promises more than the original. Applying it again changes
        nothing.
        """
        result = Timeline(self.total, self.defect)
        for slot in self.slots():
            closes_gap = (
                len(result._at) > 1
                and result._used[-1] == 0
                and result._used[-2] == slot.items
                and slot.start_us - result._at[-1] <= min_gap_us
            )
            if closes_gap:
                del result._at[-1], result._used[-1]
            elif result._at and result._at[-1] == slot.start_us:
                result._used[-1] = slot.items
            else:
                result._at.append(slot.start_us)
                result._used.append(slot.items)
            if slot.stop_us < INFINITY_US:
                result._at.append(slot.stop_us)
                result._used.append(0)
        return result

    def check(self) -> None:
        """Raise `TimelineError` unless the steps are canonical and within [0, total]."""
        before_at, before_used = -INFINITY_US, 0
        for at_us, used in zip(self._at, self._used, strict=True):
            if at_us <= before_at or at_us >= INFINITY_US or used == before_used:
                raise TimelineError(f"not canonical at {at_us}: {self!r}")
            _check_range(used, self.total)
            before_at, before_used = at_us, used

    # Inside

    def _values(self, start_us: int, stop_us: int) -> list[int]:
        first = bisect_right(self._at, start_us) - 1
        last = bisect_left(self._at, stop_us)
        if first < 0:
            return [0, *self._used[:last]]
        return self._used[first:last]

    def _shift(self, start_us: int, stop_us: int, delta: int) -> None:
        first = self._split(start_us)
        last = self._split(stop_us) if stop_us < INFINITY_US else len(self._at)
        for index in range(first, last):
            self._used[index] += delta
        # Inside the interval neighbours still differ; only its two ends may now be equal.
        self._join(last)
        self._join(first)

    def _split(self, at_us: int) -> int:
        index = bisect_left(self._at, at_us)
        if index == len(self._at) or self._at[index] != at_us:
            self._at.insert(index, at_us)
            self._used.insert(index, self._used[index - 1] if index else 0)
        return index

    def _join(self, index: int) -> None:
        if index < len(self._at) and self._used[index] == (self._used[index - 1] if index else 0):
            del self._at[index], self._used[index]

    def _windows(self, items: int, from_us: int, until_us: int) -> Iterable[Slot]:
        """The maximal windows inside [from_us, until_us) with at least `items` free."""
        at, used, available = self._at, self._used, self.available
        index = bisect_right(at, from_us)
        now_us, now_used = from_us, (used[index - 1] if index else 0)
        open_us, most_used = -1, 0
        is_open = False
        while now_us < until_us:
            if max(available - now_used, 0) >= items:
                if not is_open:
                    is_open, open_us, most_used = True, now_us, now_used
                elif now_used > most_used:
                    most_used = now_used
            elif is_open:
                is_open = False
                yield Slot(open_us, now_us, max(available - most_used, 0))
            if index == len(at):
                break
            now_us, now_used = at[index], used[index]
            index += 1
        if is_open:
            yield Slot(open_us, until_us, max(available - most_used, 0))

    def _combined(
        self, other: Timeline, total: int, rule: Callable[[int, int], int], defect: int = 0
    ) -> Timeline:
        """`rule` applied to both uses at every instant; `rule(0, 0)` must be 0."""
        result = Timeline(total, defect)
        mine = theirs = before = 0
        left = right = 0
        while left < len(self._at) or right < len(other._at):
            next_left = self._at[left] if left < len(self._at) else INFINITY_US
            next_right = other._at[right] if right < len(other._at) else INFINITY_US
            at_us = min(next_left, next_right)
            if next_left == at_us:
                mine = self._used[left]
                left += 1
            if next_right == at_us:
                theirs = other._used[right]
                right += 1
            used = rule(mine, theirs)
            if used != before:
                _check_range(used, total)
                result._at.append(at_us)
                result._used.append(used)
                before = used
        return result


def min_free(system: Timeline, consumer: Timeline, limit: int) -> Timeline:
    """Items that one consumer may still use: min(free of the system, limit - used by the consumer) (C-21, C-a).

    `consumer` holds the consumer's use; a use above the limit (it was lowered) leaves nothing and does not raise. The
    answer is a timeline whose *free* items are that minimum.
    """
    total = min(system.available, limit)
    return system._combined(
        consumer,
        total,
        lambda used, by_consumer: total - min(max(system.available - used, 0), max(limit - by_consumer, 0)),
    )


def intersection(left: Timeline, right: Timeline) -> Timeline:
    """A timeline whose free items are the lesser of both at every instant (C-22, C-b)."""
    total = min(left.available, right.available)
    return left._combined(
        right,
        total,
        lambda mine, theirs: total - min(max(left.available - mine, 0), max(right.available - theirs, 0)),
    )


def _lasts(start_us: int, stop_us: int, duration_us: int) -> bool:
    return stop_us == INFINITY_US or stop_us - start_us >= duration_us


def _check_slot(start_us: int, stop_us: int, items: int) -> None:
    if not start_us < stop_us <= INFINITY_US:
        raise ValueError(f"a slot must start before it stops: [{start_us}, {stop_us})")
    if items <= 0:
        raise ValueError(f"a slot must hold at least one item: {items}")


def _check_range(used: int, total: int) -> None:
    if not 0 <= used <= total:
        raise TimelineError(f"{used} of {total} items would be used")
