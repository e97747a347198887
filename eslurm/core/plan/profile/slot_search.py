"""Necessary conditions of one request on the profile's slots, tested before mapping, cheapest first (C-31).

Per slot so many nodes must have so much free (`Need.filters`), and all nodes together at least the job's sum
(`Need.floor`). Invariant: a refused interval has no mapping; one that passes may still have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import and_
from typing import Final, TypeAlias

from eslurm.core.plan.placement.compiled_request import CompiledRequest
from eslurm.core.plan.profile.node_profile import Profile
from eslurm.core.plan.profile.rows import Row
from eslurm.core.plan.profile.slots import Slots
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import CORES, Vector, fits, least, scale

Test: TypeAlias = tuple[list[Row], int, int, Vector]
"""(rows of which a node must be in all, how many nodes, the positions that have so much at all, the amounts).

No amounts where the rows say more or less than that these are free."""

Floor: TypeAlias = tuple[int, int]
"""(resource, the most of it that may be in use on all nodes together)."""

SLOTS_AT_FIRST: Final = 2
KNOWN_MAX: Final = 1_024


class Conditions:
    """The conditions of one request, looked up in the slots: valid until the rows change (`Slots.edition`).

    `asked` are the (resource, amount) pairs with a row of their own. Not `is_exact`: some found no space for a row.
    """

    __slots__ = ("asked", "floors", "is_exact", "need", "tests")

    def __init__(
        self, need: CompiledRequest, topology: Topology, slots: Slots, profiles: Sequence[Profile]
    ) -> None:
        self.need = need
        self.tests: list[Test] = []
        self.asked: list[tuple[int, int]] = []
        self.is_exact = True
        for amounts, nodes, exclusive, within in _asked(need, topology):
            if exclusive:
                idle = slots.idle if slots.idle is not None else slots.build_idle(profiles)
                self.tests.append(([idle], nodes, _large_enough(topology, amounts) & within, ()))
                continue
            asked = [(resource, amount) for resource, amount in enumerate(amounts) if amount > 0]
            found = [slots.searched(resource, amount, profiles) for resource, amount in asked]
            rows = [row for row, _ in found if row is not None]
            exact = all(is_exact for _, is_exact in found)
            # Positions of one part alone say too little about the same amounts of another part.
            is_whole = exact and within == -1
            self.tests.append((rows, nodes, within, amounts if is_whole else ()))
            self.asked += asked
            self.is_exact = self.is_exact and exact
        self.floors: list[Floor] = []
        for resource, floor in enumerate(need.floor):
            if floor > max((nodes * amounts[resource] for amounts, nodes in need.filters), default=0):
                total = sum(total[resource] * mask.bit_count() for total, mask in _totals(topology))
                self.floors.append((resource, total - floor))


class Lookup:
    """The conditions of recently searched requests, by identity of the request."""

    __slots__ = ("_edition", "_known")

    def __init__(self) -> None:
        self._edition = -1
        self._known: dict[int, Conditions] = {}

    def knows(self, need: CompiledRequest, slots: Slots) -> bool:
        """Check whether all rows of the request exist."""
        known = self._known.get(id(need)) if self._edition == slots.edition else None
        return known is not None and known.need is need

    def conditions(
        self, need: CompiledRequest, topology: Topology, slots: Slots, profiles: Sequence[Profile]
    ) -> Conditions:
        """The conditions of the request; looked up anew only where the rows have changed."""
        known = self._known.get(id(need)) if self._edition == slots.edition else None
        if known is not None and known.need is need:
            slots.ask_again(known.asked)
            return known
        made = Conditions(need, topology, slots, profiles)
        if self._edition != slots.edition or len(self._known) >= KNOWN_MAX:
            self._known.clear()
            self._edition = slots.edition
        # Where a row had no room there may be some the next time.
        if made.is_exact:
            self._known[id(need)] = made
        return made


class Search:
    """The conditions of one request against the current slots; invalid once the profile has changed.

    `fitting` holds, for the last interval that passed, the positions with the requested amounts; `looked` counts the
    examined slots.
    """

    __slots__ = ("_ahead", "_enough", "_floors", "_seen", "_slots", "_tests", "_within", "fitting", "looked")

    def __init__(self, conditions: Conditions, within: int, slots: Slots) -> None:
        self.fitting: dict[Vector, int] = {}
        self.looked = 0
        # Per slot from `_seen` on whether `passing` has found it good enough.
        self._seen = 0
        self._enough = b""
        self._ahead = SLOTS_AT_FIRST
        self._slots = slots
        self._within = within
        self._tests = conditions.tests
        self._floors = [(slots.used(resource), most) for resource, most in conditions.floors]

    def leave_out(self, own: int, first: int, last: int) -> None:
        """From now on intervals end before slot `last`, and bookings from slot `first` on at `own` do not count.

        These nodes then look as if they had no other booking.
        """
        self._tests = [
            ([_with(row, own, first, last) for row in rows], nodes, large, ())
            for rows, nodes, large, _ in self._tests
        ]
        self._floors = [
            ([*used[:first], *[most] * (last - first), *used[last:]], most) for used, most in self._floors
        ]

    def passing(self, first: int) -> int:
        """The first slot from `first` on that alone has enough nodes left for the most demanding test.

        The number of slots when there is none. From call to call `first` never falls.
        """
        size = len(self._slots.at)
        while first < size:
            seen = self._seen + len(self._enough)
            if first < seen:
                found = self._enough.find(1, first - self._seen)
                if found >= 0:
                    return self._seen + found
                first = seen
            else:
                self._seen, self._enough = first, self._tested(first, min(first + self._ahead, size))
                self._ahead *= 2
        return size

    def _tested(self, first: int, last: int) -> bytes:
        """For each slot, whether enough nodes are left in it."""
        self.looked += last - first
        if not self._tests or not self._tests[0][0]:
            return b"\x01" * (last - first)
        rows, nodes, large, _ = self._tests[0]
        left: Iterator[int] = map((self._within & large).__and__, rows[0][first:last])
        for row in rows[1:]:
            left = map(and_, left, row[first:last])
        return bytes(map(nodes.__le__, map(int.bit_count, left)))

    def failed(self, within: int, first: int, last: int) -> int:
        """A slot such that no stay which begins up to it, and not earlier than `first`, can hold; -1: may fit.

        Seen from the end of the stay [first, last): the later the slot at which too little is left, the farther the
        search may go on.
        """
        self.looked += last - first
        for used, most in self._floors:
            if max(used[first:last]) > most:
                return max(index for index in range(first, last) if used[index] > most)
        starts = self._slots.starts
        fitting: dict[Vector, int] = {}
        for rows, nodes, large, amounts in self._tests:
            left = within & large
            for index in range(last - 1, first, -1):
                if starts[index]:
                    for row in rows:
                        left &= row[index]
                    if left.bit_count() < nodes:
                        return index
            for row in rows:
                left &= row[first]
            if left.bit_count() < nodes:
                return first
            if amounts:
                fitting[amounts] = left
        self.fitting = fitting
        return -1


_Asked: TypeAlias = tuple[Vector, int, bool, int]
"""(amounts, how many nodes must have them, whether idle, of these positions)."""


def _asked(need: CompiledRequest, topology: Topology) -> Iterable[_Asked]:
    """The filters of the request, the most demanding first; of several parts, each on the part's own nodes."""
    if not need.members:
        filters = sorted(need.filters, key=lambda item: -item[1])
        return [(amounts, nodes, need.exclusive, -1) for amounts, nodes in filters]
    asked_nodes: dict[tuple[Vector, bool, int], int] = {}
    together: dict[tuple[Vector, bool, int], int] = {}
    # Of the parts in one partition that are alone on each node: the least amounts, and all their nodes.
    apart: dict[int, tuple[Vector, int]] = {}
    for one in need.members:
        for amounts, nodes in one.filters:
            key = amounts, one.exclusive, one.allowed
            asked_nodes[key] = max(asked_nodes.get(key, 0), nodes)
        amounts, nodes = one.filters[0]
        key = amounts, one.exclusive, one.allowed
        if one.exclusive or not _holds_two(topology, amounts, one.allowed):
            together[key] = together.get(key, 0) + nodes
        if one.exclusive or not _holds_two(topology, amounts[: CORES + 1], one.allowed):
            before = apart.get(one.allowed, (amounts, 0))
            apart[one.allowed] = least(before[0], amounts), before[1] + nodes
    for key, nodes in together.items():
        asked_nodes[key] = max(asked_nodes[key], nodes)
    for within, (amounts, nodes) in apart.items():
        key = amounts, False, within
        asked_nodes[key] = max(asked_nodes.get(key, 0), nodes)
    asked = [(*key, nodes) for key, nodes in asked_nodes.items()]
    # Where the fewest nodes can be spared a search fails first.
    asked.sort(key=lambda item: item[2].bit_count() - item[3])
    return [(amounts, nodes, exclusive, within) for amounts, exclusive, within, nodes in asked]


def _holds_two(topology: Topology, amounts: Vector, within: int) -> bool:
    twice = scale(amounts, 2)
    return any(mask & within and fits(twice, total) for total, mask in _totals(topology))


def _with(row: Row, own: int, first: int, last: int) -> Row:
    """A row with these positions added in slots [first, last)."""
    return [*row[:first], *[members | own for members in row[first:last]], *row[last:]]


def _totals(topology: Topology) -> Iterator[tuple[Vector, int]]:
    for group in topology.groups.values():
        yield from group.items()


def _large_enough(topology: Topology, amounts: Vector) -> int:
    found = 0
    for total, mask in _totals(topology):
        if fits(amounts, total):
            found |= mask
    return found
