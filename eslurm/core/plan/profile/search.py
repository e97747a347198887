"""Search for a start: every rule and the resource profile are asked in turn until none moves it any more.

This is the intersection of C-31 without building it, and it records which rule moved the job to which time. Invariant: the
result is allowed by all constraints and fits the profile, and no earlier start from the same instant on is and does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from eslurm.core.plan.placement.compiled_request import CompiledRequest, joined
from eslurm.core.plan.placement.protocols import Assignment, Closure, Constraint
from eslurm.core.plan.profile.profile import ResourceProfile
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import Vector, add

RESOURCES = "resources"
"""The kind of a move that the book made: too little was free."""


class Move(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One rule that forbids a start before `to_us`; `INFINITY_US`: always."""

    kind: str
    to_us: int
    text: str = ""


class PlacementQuery(msgspec.Struct, frozen=True, gc=False):
    """A placement query: an interval of `duration_us` for `need` inside [from_us, until_us).

    The job may run longer by `beyond_us`, up to its limit: `until_us` and the begins in `closed` are earlier by that, and
    the constraints know it. Constraints count the job's expected amounts. `recount` gives those of an assignment, if
    larger.
    """

    need: CompiledRequest
    duration_us: int
    from_us: int
    until_us: int = INFINITY_US
    constraints: tuple[Constraint, ...] = ()
    closed: tuple[Closure, ...] = ()
    recount: Callable[[CompiledRequest, Assignment], tuple[Constraint, ...]] | None = None
    beyond_us: int = 0


class Start(msgspec.Struct, frozen=True, gc=False):
    """The first start found, the nodes, and the last move of each rule that moved the job there."""

    at_us: int
    chosen: Assignment
    moves: tuple[Move, ...] = ()


class NoStart(msgspec.Struct, frozen=True, gc=False):
    """There is no start in the interval; the last of `moves` is the rule that forbids it."""

    moves: tuple[Move, ...]


def first_start(
    book: ResourceProfile, query: PlacementQuery, from_us: int, until_us: int = INFINITY_US
) -> Start | NoStart:
    """The first start from `from_us` on within the query's own interval; it ends before `until_us`."""
    at_us = max(from_us, query.from_us)
    until_us = min(until_us, query.until_us)
    constraints, duration_us, need = query.constraints, query.duration_us, query.need
    if not constraints:
        found = book.earliest(need, duration_us, at_us, until_us, query.closed)
        if found is None:
            return NoStart((Move(RESOURCES, INFINITY_US),))
        moves = (Move(RESOURCES, found[0]),) if found[0] > at_us else ()
        return Start(found[0], found[1], moves)
    moved: dict[int, int] = {}
    other: Start | NoStart | None = None
    while True:
        agreed_us = _agreed(constraints, duration_us, at_us, until_us, moved)
        if agreed_us is None:
            return other or NoStart(_moves(constraints, moved))
        found = book.earliest(need, duration_us, agreed_us, until_us, query.closed)
        if found is None:
            _note(moved, _BOOK, INFINITY_US)
            return other or NoStart(_moves(constraints, moved))
        at_us, chosen = found
        if at_us > agreed_us:
            _note(moved, _BOOK, at_us)
            continue
        stricter = query.recount(need, chosen) if query.recount is not None else ()
        known: dict[int, int] = {}
        counted_us = _agreed(stricter, duration_us, at_us, until_us, known)
        if counted_us == at_us:
            return Start(at_us, chosen, _moves(constraints, moved))
        if other is None:
            against = (*_moves(constraints, moved), *_moves(stricter, known))
            other = _with_less(book, query, chosen, at_us, until_us, against)
        # With as much as this it may start later, with less perhaps before.
        if counted_us is None or (isinstance(other, Start) and other.at_us <= counted_us):
            return other
        at_us = counted_us


def _with_less(
    book: ResourceProfile,
    query: PlacementQuery,
    chosen: Assignment,
    at_us: int,
    until_us: int,
    moves: tuple[Move, ...],
) -> Start | NoStart:
    """The first start of a job that may not have all of `chosen`; `moves` are the rules against that."""
    frugal = _frugal(book.topology, query.need, chosen)
    if frugal is None:
        return NoStart(moves)
    found = first_start(book, msgspec.structs.replace(query, need=frugal), at_us, until_us)
    return msgspec.structs.replace(found, moves=(*moves, *found.moves))


def start_exactly(book: ResourceProfile, query: PlacementQuery, at_us: int) -> Start | NoStart:
    """The start at one instant, or the rules against it."""
    against = _against_any(query, at_us)
    if against is not None:
        return against
    chosen = book.fits_at(query.need, at_us, query.duration_us, query.closed)
    if chosen is None:
        return NoStart((Move(RESOURCES, INFINITY_US),))
    found = _recounted(query, at_us, chosen)
    if isinstance(found, Start):
        return found
    frugal = _frugal(book.topology, query.need, chosen)
    if frugal is None:
        return found
    other = start_exactly(book, msgspec.structs.replace(query, need=frugal), at_us)
    return other if isinstance(other, Start) else found


def start_with(query: PlacementQuery, at_us: int, chosen: Assignment) -> Start | NoStart:
    """The start at one instant on these nodes, which are free and open, or the rules against it."""
    return _against_any(query, at_us) or _recounted(query, at_us, chosen)


def _against_any(query: PlacementQuery, at_us: int) -> NoStart | None:
    """The rules that forbid a start at that instant on any nodes; None: they allow it."""
    until_us = query.until_us
    if at_us < query.from_us or (until_us < INFINITY_US and at_us + query.duration_us > until_us):
        return NoStart(())
    against = _against(query.constraints, query, at_us)
    return NoStart(against) if against else None


def _recounted(query: PlacementQuery, at_us: int, chosen: Assignment) -> Start | NoStart:
    """The start with as much as this, or the rules against that."""
    stricter = query.recount(query.need, chosen) if query.recount is not None else ()
    against = _against(stricter, query, at_us)
    return NoStart(against) if against else Start(at_us, chosen)


def _frugal(topology: Topology, need: CompiledRequest, chosen: Assignment) -> CompiledRequest | None:
    """The same request on the fewest nodes, or without the largest of those chosen; None when it cannot do with less."""
    if need.members:
        return None
    replace = msgspec.structs.replace
    if need.exclusive:
        largest = max(topology.totals[position] for position, _, _ in chosen)
        kept = need.allowed
        for group in topology.groups.values():
            kept &= ~group.get(largest, 0)
        return narrowed(need, kept) if kept and not need.include & ~kept else None
    if len(need.parts) == 1:
        part = need.parts[0]
        fewest = max(part.nodes_floor, need.include.bit_count())
        return replace(need, parts=(replace(part, nodes_max=fewest),)) if fewest < len(chosen) else None
    if need.pack or need.scatter or len(chosen) == 1:
        return None
    packed: Vector = ()
    for part in need.parts:
        amounts = part.amounts(part.tasks)
        packed = add(packed, amounts) if packed else amounts
    return replace(need, pack=True, packed=packed, filters=((packed, 1),))


def _against(constraints: Sequence[Constraint], query: PlacementQuery, at_us: int) -> tuple[Move, ...]:
    """The constraints that forbid a start at that instant."""
    stop_us = min(at_us + query.duration_us, INFINITY_US)
    return tuple(
        [
            Move(constraint.kind, INFINITY_US, constraint.why())
            for constraint in constraints
            if constraint.earliest(query.duration_us, at_us, stop_us) != at_us
        ]
    )


def narrowed(need: CompiledRequest, within: int) -> CompiledRequest:
    """The same request restricted to these positions: a job inside a reservation (C-41)."""
    replace = msgspec.structs.replace
    if need.members:
        # Equal parts still share one compiled request.
        known = {id(one): narrowed(one, within) for one in need.members}
        return joined([known[id(one)] for one in need.members])
    parts = tuple(replace(part, allowed=part.allowed & within) for part in need.parts)
    return replace(need, parts=parts, allowed=need.allowed & within)


_BOOK = -1


def _agreed(
    constraints: Sequence[Constraint], duration_us: int, at_us: int, until_us: int, moved: dict[int, int]
) -> int | None:
    """The first instant from `at_us` on that no constraint forbids."""
    content = 0
    index = 0
    while content < len(constraints):
        found_us = constraints[index].earliest(duration_us, at_us, until_us)
        if found_us is None:
            _note(moved, index, INFINITY_US)
            return None
        if found_us > at_us:
            _note(moved, index, found_us)
            at_us, content = found_us, 0
        content += 1
        index = (index + 1) % len(constraints)
    return at_us


def _note(moved: dict[int, int], index: int, to_us: int) -> None:
    """Add a move; the latest comes last."""
    moved.pop(index, None)
    moved[index] = to_us


def _moves(constraints: Sequence[Constraint], moved: dict[int, int]) -> tuple[Move, ...]:
    return tuple(
        Move(RESOURCES, to_us)
        if index == _BOOK
        else Move(constraints[index].kind, to_us, constraints[index].why())
        for index, to_us in moved.items()
    )


class SearchBounds:
    """Lower bounds of starts, by query, while planning goes on.

    Bookings only make starts later, so a start found for one job bounds those of all equal queries. A release from some
    instant on lowers the bounds of queries that could reach it.
    """

    __slots__ = ("_bounds", "_freed_us", "_serial", "_serials")

    def __init__(self) -> None:
        self._bounds: dict[int, tuple[int, int]] = {}
        # Instants from which something was given back, and when that was: both ascend, so the earliest instant of all
        # those given back since some moment is the first behind it.
        self._freed_us: list[int] = []
        self._serials: list[int] = []
        self._serial = 0

    def bound_us(self, query: int, duration_us: int) -> int:
        """No start before this instant is possible; 0: unknown."""
        known = self._bounds.get(query)
        if known is None:
            return 0
        bound_us, serial = known
        freed_us = self._freed_since(serial)
        return bound_us if freed_us is None else max(0, min(bound_us, freed_us - duration_us + 1))

    def learn(self, query: int, bound_us: int) -> None:
        """Record that there is no start before `bound_us`."""
        self._bounds[query] = (bound_us, self._serial)

    def freed(self, from_us: int) -> None:
        """Record a release from this instant on."""
        self._serial += 1
        while self._freed_us and self._freed_us[-1] >= from_us:
            self._freed_us.pop()
            self._serials.pop()
        self._freed_us.append(from_us)
        self._serials.append(self._serial)

    def _freed_since(self, serial: int) -> int | None:
        serials = self._serials
        if not serials or serials[-1] <= serial:
            return None
        low, high = 0, len(serials) - 1
        while low < high:
            middle = (low + high) // 2
            if serials[middle] > serial:
                high = middle
            else:
                low = middle + 1
        return self._freed_us[low]
