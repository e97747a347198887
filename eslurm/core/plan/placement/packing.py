"""Several kinds of chunks on shared nodes, by search: beyond first-fit, and with a proof when nothing fits.

Node after node is filled, and only the remaining demands of all fillings so far are kept, without those that exceed
another in every kind. The work is bounded; a search that exhausts it has proved nothing. Invariant: a result holds every
chunk whole, and a proof has examined every node that could hold a chunk. Kinds may want a node for themselves (`alone`):
parts of one job that ask for whole nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from eslurm.core.plan.placement.capacity import capacities, fitting
from eslurm.core.plan.placement.compiled_request import CompiledRequest
from eslurm.core.plan.placement.protocols import Assignment, Availability
from eslurm.core.resources import bits
from eslurm.core.resources.vector import CORES, Vector, add, fits, scale, subtract, times

STEPS_MAX: Final = 4_000
"""Of some microseconds each: a count tried for one kind on one node, or a few demands compared."""
NODES_MAX: Final = 128
COMPARED_PER_STEP: Final = 8

_Demand: TypeAlias = tuple[int, ...]
"""Chunks still to be placed, by kind."""


class Packing(msgspec.Struct, frozen=True):
    """The result of a search; without `chosen`, `is_proved` means that there is no packing."""

    chosen: Assignment | None
    is_proved: bool = False


class Fillings(msgspec.Struct, frozen=True):
    """The chunks of each kind on each used position; without `found`, `is_proved` means that there are none."""

    found: tuple[tuple[int, tuple[int, ...]], ...] | None
    is_proved: bool = False


class _Node(msgspec.Struct, frozen=True):
    """`plain_cores`: cores for kinds without a device together; `kinds` may run there at all."""

    position: int
    free: Vector
    plain_cores: int
    kinds: tuple[int, ...]
    is_named: bool


class _Link(msgspec.Struct, frozen=True):
    """The predecessor of a demand: the node filled last, its filling, and the demand before."""

    before: _Link | None
    position: int
    filling: _Demand


class _SpentError(Exception):
    """The work bound is exhausted."""


def search(room: Availability, need: CompiledRequest, candidates: int, steps_max: int = STEPS_MAX) -> Packing:
    """Nodes for all chunks within `candidates`, each named node with a chunk at least; or that there are none.

    Not for packed jobs.
    """
    fillings = fill(room, need, candidates, steps_max=steps_max)
    if fillings.found is None:
        return Packing(None, fillings.is_proved)
    units = [part.unit for part in need.parts]
    return Packing(
        sorted([(position, _sum(units, filling), sum(filling)) for position, filling in fillings.found])
    )


def fill(
    room: Availability,
    need: CompiledRequest,
    candidates: int,
    alone: frozenset[int] = frozenset(),
    steps_max: int = STEPS_MAX,
) -> Fillings:
    """The same with the kinds on each node; a chunk of a kind in `alone` shares its node with no other chunk."""
    positions, is_whole = _worth_looking_at(room, need, candidates)
    if not positions and is_whole:
        return Fillings(None, is_proved=True)
    searching = _Search(room, need, positions, alone, steps_max)
    try:
        found = searching.run()
    except _SpentError:
        return Fillings(None)
    return Fillings(found, is_proved=is_whole and found is None)


def _sum(units: list[Vector], filling: _Demand) -> Vector:
    amounts: Vector = ()
    for unit, count in zip(units, filling, strict=True):
        if count:
            taken = scale(unit, count)
            amounts = add(amounts, taken) if amounts else taken
    return amounts


def _worth_looking_at(room: Availability, need: CompiledRequest, candidates: int) -> tuple[int, bool]:
    """The nodes to examine, and whether these are all that could hold a chunk; none where a bound is broken."""
    able, chosen = 0, need.include
    for part in need.parts:
        by_capacity = capacities(room, part, candidates & part.allowed)
        places = sum(
            (1 if need.scatter else capacity) * mask.bit_count() for capacity, mask in by_capacity.items()
        )
        if places < part.tasks:
            return 0, True
        left = part.tasks
        for capacity in sorted(by_capacity, reverse=True):
            able |= by_capacity[capacity]
            taken = bits.lowest_part(by_capacity[capacity], min(left, by_capacity[capacity].bit_count()))
            chosen |= taken
            left -= taken.bit_count()
    if need.include & ~able or need.include.bit_count() > need.tasks:
        return 0, True
    if able.bit_count() <= NODES_MAX:
        chosen = able
    # Any number of kinds take each a part of the nodes for themselves: too many are left alone.
    chosen = need.include | bits.lowest_part(chosen & ~need.include, NODES_MAX)
    return chosen, chosen == able


class _Search:
    """One search over these nodes, the named ones first and then the largest."""

    def __init__(
        self,
        room: Availability,
        need: CompiledRequest,
        positions: int,
        alone: frozenset[int],
        steps_max: int,
    ) -> None:
        self._need = need
        self._alone = alone
        self._units = [part.unit for part in need.parts]
        devices = room.topology.devices
        self._plain = [not any(unit[index] for index in devices) for unit in self._units]
        self._left = steps_max
        self._nodes = sorted(self._read(room, positions), key=_named_and_large_first)

    def run(self) -> tuple[tuple[int, _Demand], ...] | None:
        """The first found filling of all chunks; None when there is none."""
        reached: dict[_Demand, _Link | None] = {tuple([part.tasks for part in self._need.parts]): None}
        if not self._is_enough():
            return None
        before: _Node | None = None
        is_settled = False
        named_left = self._need.include.bit_count()
        for node in self._nodes:
            named_left -= node.is_named
            is_alike = before is not None and _alike(node, before)
            before = node
            # One more of the same as the one before changes as little as that one did.
            if is_alike and is_settled:
                continue
            # A named node takes a chunk at least, and leaves enough to the other named ones.
            found: dict[_Demand, _Link | None] = {} if node.is_named else dict(reached)
            for demand, link in reached.items():
                for filling in self._fillings(node, demand):
                    rest = tuple([a - b for a, b in zip(demand, filling, strict=True)])
                    if rest not in found:
                        found[rest] = _Link(link, node.position, filling)
            if not node.is_named:
                found = self._least(found)
            is_settled = found.keys() == reached.keys()
            reached = found
            nothing_left = (0,) * len(self._units)
            if nothing_left in reached and not named_left:
                return _links(reached[nothing_left])
        return None

    def _read(self, room: Availability, positions: int) -> Iterator[_Node]:
        able = [fitting(room, part, part.unit, positions & part.allowed) for part in self._need.parts]
        for position in bits.all_positions(positions):
            kinds = tuple([kind for kind, mask in enumerate(able) if mask >> position & 1])
            kept = max(
                [cores for part in self._need.parts for cores, mask in part.kept if mask >> position & 1],
                default=0,
            )
            free = room.free_on(position)
            is_named = bool(self._need.include >> position & 1)
            yield _Node(position, free, free[CORES] - kept, kinds, is_named)

    def _is_enough(self) -> bool:
        """Check whether the nodes' sum covers the chunks' sum."""
        together = self._nodes[0].free if self._nodes else ()
        for node in self._nodes[1:]:
            together = add(together, node.free)
        return bool(together) and fits(self._need.floor, together)

    def _fillings(self, node: _Node, demand: _Demand) -> Iterator[_Demand]:
        """Fillings of the node with at least one chunk of a demand; fewer than the most only where that has an advantage."""
        alone = node.kinds if self._need.scatter else [kind for kind in node.kinds if kind in self._alone]
        for kind in alone:
            if demand[kind]:
                self._spend()
                yield tuple([int(index == kind) for index in range(len(demand))])
        if len(alone) == len(node.kinds):
            return
        counts = [0] * len(demand)
        yield from self._filled(node, demand, counts, 0, node.free, node.plain_cores)

    def _filled(
        self, node: _Node, demand: _Demand, counts: list[int], at: int, free: Vector, plain_cores: int
    ) -> Iterator[_Demand]:
        self._spend()
        if at == len(node.kinds):
            if any(counts):
                yield tuple(counts)
            return
        kind = node.kinds[at]
        if kind in self._alone:
            yield from self._filled(node, demand, counts, at + 1, free, plain_cores)
            return
        unit, is_plain = self._units[kind], self._plain[kind]
        most = min(demand[kind], times(free, unit))
        if is_plain:
            # Those without a device leave the cores that are kept for the others (C-44).
            most = max(0, min(most, plain_cores // unit[CORES]))
        # What the last kind does not take would be left over.
        least = most if at == len(node.kinds) - 1 and not node.is_named else 0
        for count in range(most, least - 1, -1):
            counts[kind] = count
            rest = subtract(free, scale(unit, count)) if count else free
            yield from self._filled(
                node, demand, counts, at + 1, rest, plain_cores - (unit[CORES] * count if is_plain else 0)
            )
        counts[kind] = 0

    def _least(self, found: dict[_Demand, _Link | None]) -> dict[_Demand, _Link | None]:
        """The demands without those that exceed another in every kind."""
        kept: dict[_Demand, _Link | None] = {}
        for demand in sorted(found, key=sum):
            self._spend(1 + len(kept) // COMPARED_PER_STEP)
            if not any(fits(other, demand) for other in kept):
                kept[demand] = found[demand]
        return kept

    def _spend(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise _SpentError


def _links(link: _Link | None) -> tuple[tuple[int, _Demand], ...]:
    found: list[tuple[int, _Demand]] = []
    while link is not None:
        found.append((link.position, link.filling))
        link = link.before
    return tuple(found)


def _alike(one: _Node, other: _Node) -> bool:
    return (one.free, one.plain_cores, one.kinds, one.is_named) == (
        other.free,
        other.plain_cores,
        other.kinds,
        other.is_named,
    )


def _named_and_large_first(node: _Node) -> tuple[object, ...]:
    return (
        not node.is_named,
        -len(node.kinds),
        tuple([-amount for amount in node.free]),
        -node.plain_cores,
        node.kinds,
        node.position,
    )
