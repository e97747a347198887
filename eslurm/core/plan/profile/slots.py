"""The slots of the profile: the instants at which a booking starts or ends, and the nodes that fit between them.

Every queried amount of a resource has a *row*: per slot the set of nodes with at least that much free. Rows are built on
first use, updated by every booking, and few: a booking touches only those whose amount it crosses. Invariants: instants
strictly ascending, the first is now; at every other one a booking starts or ends; where none starts, no set loses a member
(so an interval needs only its first slot and those at whose beginning a booking starts).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from functools import reduce
from itertools import accumulate, compress, pairwise
from operator import and_
from typing import Final, TypeAlias

from eslurm.core.plan.profile.node_profile import Part, Profile
from eslurm.core.plan.profile.rows import Holds, Row, at_least, making, untouched
from eslurm.core.plan.slices import exhaust
from eslurm.core.resources import bits
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import Vector

Marks: TypeAlias = dict[int, int]
"""Slot -> the positions whose membership in a row flips from this slot on."""

ROWS_MAX: Final = 48
"""Of one resource. Amounts beyond are bracketed by the rows there are."""

ROW_IDLE_ASKS: Final = 2000
"""A row that so many searches did not need may make room for another."""

ROW_ASKS: Final = 3

GRAIN_MIN_US: Final = 1 << 20
"""About a second."""

MISSES_MAX: Final = 1000
CROSSED_MAX: Final = 20_000


class Slots:
    """Instants, rows and sums. `starts` and `stops` count bookings, `rises` are changes of use per resource.

    `edition` changes with the set of rows.
    """

    __slots__ = (
        "_all",
        "_asked",
        "_clock",
        "_crossed",
        "_missed",
        "_sums",
        "_wanted",
        "at",
        "edition",
        "idle",
        "rises",
        "rows",
        "starts",
        "stops",
        "values",
    )

    def __init__(self, width: int, now_us: int) -> None:
        self.at = [now_us]
        self.starts = [0]
        self.stops = [0]
        self.rises: list[list[int]] = [[0] for _ in range(width)]
        # What is used from each slot on, by resource, as long as it is known.
        self._sums: dict[int, list[int]] = {}
        self.edition = 0
        # Per resource the amounts that have a row, ascending, and the rows.
        self.values: list[list[int]] = [[] for _ in range(width)]
        self.rows: list[list[Row]] = [[] for _ in range(width)]
        self.idle: Row | None = None
        self._asked: dict[tuple[int, int], int] = {}
        self._missed: dict[tuple[int, int], int] = {}
        self._wanted: list[tuple[int, int]] = []
        self._clock = 0
        self._all = self._parallel()
        # (free before, free after, total) -> rows by their number in `_all`; begun anew whenever these change.
        self._crossed: dict[tuple[Vector, Vector, Vector], tuple[int, ...]] = {}

    def copy(self) -> Slots:
        """An independent copy; costs copying lists of pointers."""
        other = Slots.__new__(Slots)
        other.at = self.at.copy()
        other.starts = self.starts.copy()
        other.stops = self.stops.copy()
        other.rises = [rises.copy() for rises in self.rises]
        other._sums = {}
        other.edition = self.edition
        other.values = [values.copy() for values in self.values]
        other.rows = [[row.copy() for row in rows] for rows in self.rows]
        other.idle = self.idle.copy() if self.idle is not None else None
        other._asked = self._asked.copy()
        other._missed = self._missed.copy()
        other._wanted = self._wanted.copy()
        other._clock = self._clock
        other._all = other._parallel()
        other._crossed = self._crossed
        return other

    # Instants

    def window(self, start_us: int, stop_us: int) -> tuple[int, int]:
        """The slots [first, last) of an interval that begins not earlier than now."""
        at = self.at
        first = bisect_right(at, start_us) - 1
        return first, bisect_left(at, stop_us, first + 1)

    def find(self, at_us: int) -> int | None:
        """The slot that begins at an instant."""
        index = bisect_left(self.at, at_us)
        return index if index < len(self.at) and self.at[index] == at_us else None

    def coarse(self, start_us: int, stop_us: int) -> tuple[int, int]:
        """An interval that begins and ends where slots do, or on the grid; it fits wherever the exact one does."""
        at = self.at
        index = bisect_right(at, start_us) - 1
        start_us = at[index]
        index = bisect_left(at, stop_us)
        if stop_us >= INFINITY_US or (index < len(at) and at[index] == stop_us):
            return start_us, stop_us
        grain_us = max(GRAIN_MIN_US, 1 << max(0, (stop_us - at[0]).bit_length() - 6))
        rounded_us = -(-stop_us // grain_us) * grain_us
        return start_us, min(rounded_us, at[index]) if index < len(at) else rounded_us

    def begin(self, at_us: int) -> int:
        """The slot that begins at an instant; splits the present one."""
        index = bisect_left(self.at, at_us)
        if index == len(self.at) or self.at[index] != at_us:
            self.at.insert(index, at_us)
            self.starts.insert(index, 0)
            self.stops.insert(index, 0)
            for rises in self.rises:
                rises.insert(index, 0)
            self._sums.clear()
            for row in self._all:
                row.insert(index, row[index - 1])
        return index

    def release(self, index: int) -> None:
        """Join a slot with the one before unless a booking still starts or ends between them."""
        if index and not self.starts[index] and not self.stops[index]:
            del self.at[index], self.starts[index], self.stops[index]
            for rises in self.rises:
                del rises[index]
            self._sums.clear()
            for row in self._all:
                del row[index]

    def advance(self, now_us: int) -> None:
        """Forget everything before `now_us`."""
        past = bisect_right(self.at, now_us) - 1
        if past > 0:
            del self.at[:past], self.starts[:past], self.stops[:past]
            for rises in self.rises:
                rises[: past + 1] = [sum(rises[: past + 1])]
            self._sums.clear()
            for row in self._all:
                del row[:past]
        self.at[0] = now_us
        self.starts[0] = self.stops[0] = 0

    # Sums

    def use(self, first: int, last: int, amounts: Iterable[int]) -> None:
        """Add to the use of each resource from one slot until another (0: for ever)."""
        for rises, amount in zip(self.rises, amounts, strict=True):
            rises[first] += amount
            if last:
                rises[last] -= amount
        self._sums.clear()

    def used(self, resource: int) -> list[int]:
        """The use of a resource from each slot on; read-only, until something changes."""
        known = self._sums.get(resource)
        if known is None:
            known = self._sums[resource] = list(accumulate(self.rises[resource]))
        return known

    # Rows

    def everywhere(self, row: Row, first: int, last: int) -> int:
        """The positions that a row has in all slots [first, last)."""
        if last - first == 1:
            return row[first]
        begun = compress(row[first + 1 : last], self.starts[first + 1 : last])
        return reduce(and_, begun, row[first])

    def searched(self, resource: int, amount: int, profiles: Sequence[Profile]) -> tuple[Row | None, bool]:
        """The row for a searched amount (above zero), and True.

        Without space for it one with all that fit and more, or None for all nodes, and False.
        """
        self._clock += 1
        row = self._known(resource, amount)
        if row is not None:
            self._asked[resource, amount] = self._clock
            return row, True
        if not self._has_room(resource):
            index = bisect_left(self.values[resource], amount)
            return (self.rows[resource][index - 1] if index else None), False
        exhaust(self._building(resource, amount, profiles))
        return self.rows[resource][bisect_left(self.values[resource], amount)], True

    def ask_again(self, asked: Iterable[tuple[int, int]]) -> None:
        """Note another search for amounts with rows of their own: rows in use stay."""
        for key in asked:
            self._clock += 1
            self._asked[key] = self._clock

    def preparing(
        self, asked: Iterable[tuple[int, int]], profiles: Sequence[Profile], *, with_idle: bool
    ) -> Generator[None, None, None]:
        """Build the rows that a search for these amounts (resource, amount) uses, as far as there is space.

        The profile must not change until it is complete.
        """
        for resource, amount in asked:
            if self._known(resource, amount) is None and self._has_room(resource):
                yield from self._building(resource, amount, profiles)
        while self._wanted:
            resource, amount = self._wanted.pop()
            if self._known(resource, amount) is None:
                yield from self._building(resource, amount, profiles)
        if with_idle and self.idle is None:
            self.idle = yield from making(untouched, self.at, profiles, None, None)
            self._renumber()

    def bracket(self, resource: int, amount: int) -> tuple[Row | None, Row | None]:
        """The nearest rows at or below and at or above an amount: the first contains all that fit, the second only those.

        Mapping queries many amounts, most of them once: recurring ones get a row with the next preparation, while there is
        space.
        """
        values = self.values[resource]
        index = bisect_left(values, amount)
        if index < len(values) and values[index] == amount:
            row = self.rows[resource][index]
            return row, row
        if len(values) < ROWS_MAX // 4:
            key = (resource, amount)
            if len(self._missed) >= MISSES_MAX:
                self._missed.clear()
            missed = self._missed[key] = self._missed.get(key, 0) + 1
            if missed == ROW_ASKS and len(self._wanted) < ROWS_MAX // 4:
                self._wanted.append(key)
        return self._around(resource, index)

    def build_idle(self, profiles: Sequence[Profile]) -> Row:
        """Build the row of nodes without bookings."""
        self.idle = self.made(untouched, profiles)
        self._renumber()
        return self.idle

    def made(self, holds: Holds, profiles: Sequence[Profile]) -> Row:
        """A row from the nodes alone."""
        return exhaust(making(holds, self.at, profiles, None, None))

    def _known(self, resource: int, amount: int) -> Row | None:
        values = self.values[resource]
        index = bisect_left(values, amount)
        return self.rows[resource][index] if index < len(values) and values[index] == amount else None

    def _around(self, resource: int, index: int) -> tuple[Row | None, Row | None]:
        rows = self.rows[resource]
        return (rows[index - 1] if index else None), (rows[index] if index < len(rows) else None)

    def _has_room(self, resource: int) -> bool:
        """Check whether there is space for one more row of a resource; the least recently used one gives way."""
        values = self.values[resource]
        if len(values) < ROWS_MAX:
            return True
        stalest = min(values, key=lambda value: self._asked[resource, value])
        if self._clock - self._asked[resource, stalest] <= ROW_IDLE_ASKS:
            return False
        index = values.index(stalest)
        del values[index], self.rows[resource][index], self._asked[resource, stalest]
        self._renumber()
        return True

    def _building(
        self, resource: int, amount: int, profiles: Sequence[Profile]
    ) -> Generator[None, None, None]:
        below, above = self._around(resource, bisect_left(self.values[resource], amount))
        row = yield from making(at_least(resource, amount), self.at, profiles, below, above)
        values = self.values[resource]
        index = bisect_left(values, amount)
        values.insert(index, amount)
        self.rows[resource].insert(index, row)
        self._asked[resource, amount] = self._clock
        self._missed.pop((resource, amount), None)
        self._renumber()

    def flip(self, parts: Sequence[Part], size: int) -> None:
        """Update the rows, over this number of positions, after changes of free amounts."""
        merged: defaultdict[tuple[int, int, tuple[int, ...]], list[int]] = defaultdict(list)
        known = self._crossed
        for positions, changes, total in parts:
            for start_us, stop_us, old, new in changes:
                crossed = known.get((old, new, total))
                if crossed is None:
                    crossed = self._cross(old, new, total)
                if crossed:
                    key = (start_us, stop_us, crossed)
                    merged[key] += positions
        if len(merged) == 1:
            ((stay, positions),) = merged.items()
            first, last, mask = self._located(*stay[:2], positions, size)
            for index in stay[2]:
                _flip_between(self._all[index], first, last, mask)
            return
        marks: dict[int, Marks] = {}
        for (start_us, stop_us, crossed), positions in merged.items():
            first, last, mask = self._located(start_us, stop_us, positions, size)
            for index in crossed:
                marked = marks.get(index)
                if marked is None:
                    marks[index] = {first: mask, last: mask}
                else:
                    marked[first] = marked.get(first, 0) ^ mask
                    marked[last] = marked.get(last, 0) ^ mask
        for index, marked in marks.items():
            _flip(self._all[index], marked)

    def _located(
        self, start_us: int, stop_us: int, positions: Sequence[int], size: int
    ) -> tuple[int, int, int]:
        """An interval as slots, and positions as a set."""
        mask = 1 << positions[0] if len(positions) == 1 else bits.mask_of(positions, size)
        first = bisect_left(self.at, start_us)
        return first, bisect_left(self.at, stop_us, first) if stop_us < INFINITY_US else len(self.at), mask

    def _cross(self, old: Vector, new: Vector, total: Vector) -> tuple[int, ...]:
        """The rows (as numbered in `_all`) that a node enters or leaves when its free amounts change."""
        crossed: list[int] = []
        offset = 0
        for values, before, after in zip(self.values, old, new, strict=True):
            low, high = (before, after) if before < after else (after, before)
            crossed += range(offset + bisect_right(values, low), offset + bisect_right(values, high))
            offset += len(values)
        if self.idle is not None and (old == total or new == total):
            crossed.append(offset)
        if len(self._crossed) >= CROSSED_MAX:
            self._crossed = {}
        return self._crossed.setdefault((old, new, total), tuple(crossed))

    def _renumber(self) -> None:
        self._all = self._parallel()
        self._crossed = {}
        self.edition += 1

    def _parallel(self) -> list[Row]:
        rows = [row for of_resource in self.rows for row in of_resource]
        return [*rows, self.idle] if self.idle is not None else rows


def _flip_between(row: Row, first: int, last: int, mask: int) -> None:
    row[first:last] = [members ^ mask for members in row[first:last]]


def _flip(row: Row, marks: Marks) -> None:
    running = 0
    ordered = sorted(marks)
    for first, last in pairwise(ordered):
        running ^= marks[first]
        if running:
            _flip_between(row, first, last, running)
