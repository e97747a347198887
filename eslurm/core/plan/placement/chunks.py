"""Mapping several kinds of chunks of one job (C-33, C-34).

Scattered chunks have a node each: decided exactly, by counting for every set of kinds the nodes that could hold any of
them. Packed chunks are one amount on one node. Otherwise chunks may share nodes, which is bin packing: expensive kinds
first, cheap nodes first, each node filled; when that fails the fewest nodes are tried, then a node for each chunk, then a
bounded search (`packing`). Invariant: a result holds every chunk whole, and never more than is free.
"""

from __future__ import annotations

from eslurm.core.plan.placement.capacity import capacities, fitting
from eslurm.core.plan.placement.compiled_request import CompiledRequest, Part
from eslurm.core.plan.placement.packing import search
from eslurm.core.plan.placement.protocols import Assignment, Availability
from eslurm.core.resources import bits
from eslurm.core.resources.vector import CORES, Vector, add, fits, scale, subtract, times


class _Taken:
    """Amounts that an unfinished mapping has given to the job, by position."""

    def __init__(self, room: Availability) -> None:
        self._room = room
        self.free: dict[int, Vector] = {}
        self.shares: dict[int, tuple[Vector, int]] = {}

    def free_on(self, position: int) -> Vector:
        free = self.free.get(position)
        return free if free is not None else self._room.free_on(position)

    def take(self, position: int, part: Part, count: int) -> None:
        amounts = scale(part.unit, count)
        self.free[position] = subtract(self.free_on(position), amounts)
        before = self.shares.get(position)
        self.shares[position] = (add(before[0], amounts), before[1] + count) if before else (amounts, count)

    def chosen(self) -> Assignment:
        return [(position, *self.shares[position]) for position in sorted(self.shares)]


def choose(room: Availability, need: CompiledRequest, candidates: int) -> Assignment | None:
    """Nodes for all chunks within `candidates`, or None. A job that names nodes must use each of them."""
    if need.pack:
        return _packed(room, need, candidates)
    if need.scatter:
        found = _scattered(room, need, candidates)
        return search(room, need, candidates).chosen if found is None and need.include else found
    for widest_first in (False, True):
        found = _shared(room, need, candidates, widest_first)
        if found is not None:
            return found
    return _scattered(room, need, candidates) or search(room, need, candidates).chosen


def is_impossible(room: Availability, need: CompiledRequest, candidates: int) -> bool:
    """Check whether the absence of a mapping, after `choose` found none, is proved."""
    is_exact = need.pack or (need.scatter and not need.include)
    return is_exact or search(room, need, candidates).is_proved


def _packed(room: Availability, need: CompiledRequest, candidates: int) -> Assignment | None:
    amounts = need.packed
    whole = room.fitting(amounts) & candidates
    if not any(amounts[index] for index in room.topology.devices):
        for part in need.parts:
            whole = fitting(room, part, amounts, whole)
    if not whole or need.include & ~whole or need.include.bit_count() > 1:
        return None
    position = bits.lowest(need.include or whole)
    return [(position, amounts, need.tasks)]


def _shared(
    room: Availability, need: CompiledRequest, candidates: int, widest_first: bool
) -> Assignment | None:
    taken = _Taken(room)
    for part in need.parts:
        if not _take_all(room, part, need.include, candidates & part.allowed, taken, widest_first):
            return None
    if any(position not in taken.shares for position in bits.all_positions(need.include)):
        return None
    return taken.chosen()


def _take_all(
    room: Availability, part: Part, include: int, candidates: int, taken: _Taken, widest_first: bool
) -> bool:
    left = part.tasks
    offers = _widest if widest_first else _cheapest
    for position in offers(room, part, include, candidates, taken):
        capacity = _capacity(part, taken.free_on(position), position)
        if not capacity:
            continue
        count = min(capacity, left)
        taken.take(position, part, count)
        left -= count
        if not left:
            return True
    return False


def _cheapest(room: Availability, part: Part, include: int, candidates: int, taken: _Taken) -> list[int]:
    able = fitting(room, part, part.unit, candidates)
    # Each of them takes a chunk at least, but for those that this job has taken from already.
    return _named_first(able, include, part.tasks + len(taken.shares))


def _widest(room: Availability, part: Part, include: int, candidates: int, taken: _Taken) -> list[int]:
    fresh = candidates
    offers: list[tuple[bool, int, int]] = []
    for position in taken.shares:
        if (candidates >> position) & 1:
            fresh &= ~(1 << position)
            named = bool((include >> position) & 1)
            offers.append((not named, -_capacity(part, taken.free_on(position), position), position))
    for capacity, mask in capacities(room, part, fresh).items():
        offers += [(False, -capacity, position) for position in bits.all_positions(mask & include)]
        others = bits.first_positions(mask & ~include, -(-part.tasks // capacity))
        offers += [(True, -capacity, position) for position in others]
    return [position for _, _, position in sorted(offers)]


def _capacity(part: Part, free: Vector, position: int) -> int:
    for cores, mask in part.kept:
        if (mask >> position) & 1:
            free = (free[CORES] - cores, *free[1:])
    return times(free, part.unit) if fits(part.unit, free) else 0


def _scattered(room: Availability, need: CompiledRequest, candidates: int) -> Assignment | None:
    """Each chunk on a node of its own; exact."""
    classes = _classes(room, need, candidates)
    demand = [part.tasks for part in need.parts]
    sizes = {kinds: mask.bit_count() for kinds, mask in classes.items()}
    if not _is_met(demand, sizes):
        return None
    found: Assignment = []
    named = need.include.bit_count()
    # Nodes that few kinds could use first: what is left serves the kinds that follow.
    order = sorted(classes, key=lambda kinds: (kinds.bit_count(), bits.lowest(classes[kinds])))
    for index, part in enumerate(need.parts):
        for kinds in order:
            if not (kinds >> index) & 1 or not demand[index]:
                continue
            count = min(demand[index], sizes[kinds], _spare(demand, sizes, index, kinds))
            for position in _named_first(classes[kinds], need.include, count):
                classes[kinds] &= ~(1 << position)
                found.append((position, part.unit, 1))
            demand[index] -= count
            sizes[kinds] -= count
    found.sort()
    if named and sum((need.include >> position) & 1 for position, _, _ in found) < named:
        return None
    return found


def _named_first(mask: int, include: int, count: int) -> list[int]:
    first = bits.first_positions(mask & include, count)
    return first + bits.first_positions(mask & ~include, count - len(first))


def _classes(room: Availability, need: CompiledRequest, candidates: int) -> dict[int, int]:
    """Candidates by the set of kinds (bit i: part i) of which they could hold one chunk."""
    classes = {0: candidates}
    for index, part in enumerate(need.parts):
        able = fitting(room, part, part.unit, candidates & part.allowed)
        split: dict[int, int] = {}
        for kinds, mask in classes.items():
            if inside := mask & able:
                split[kinds | 1 << index] = inside
            if outside := mask & ~able:
                split[kinds] = outside
        classes = split
    classes.pop(0, None)
    return classes


def _is_met(demand: list[int], sizes: dict[int, int]) -> bool:
    """Hall's condition: every set of kinds has at least as many nodes as it asks for."""
    return all(_slack(demand, sizes, chosen) >= 0 for chosen in range(1, 1 << len(demand)))


def _slack(demand: list[int], sizes: dict[int, int], chosen: int) -> int:
    asked = sum(count for index, count in enumerate(demand) if (chosen >> index) & 1)
    return sum(size for kinds, size in sizes.items() if kinds & chosen) - asked


def _spare(demand: list[int], sizes: dict[int, int], index: int, kinds: int) -> int:
    """Greatest number of nodes of a class for one kind that leaves enough for all the others."""
    return min(
        (
            _slack(demand, sizes, chosen)
            for chosen in range(1, 1 << len(demand))
            if not (chosen >> index) & 1 and chosen & kinds
        ),
        default=1 << 30,
    )
