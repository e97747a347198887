"""Joint mapping of the parts of one job: all of them, or none (D-02).

Parts that have no node in common are mapped one by one, exactly. Parts that share nodes are mapped one after another, the
most demanding first, each on what the earlier ones have left; where that fails, the part that failed goes first, then parts
with a range of nodes take the fewest, then parts leave a node to the others, and at last parts on one node each are put
together by a bounded search. A part that asks for whole nodes shares them with no other part. Invariant: the parts together
never take more than is free; a miss only delays a job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from eslurm.core.plan.placement import single_nodes
from eslurm.core.plan.placement.compiled_request import CompiledRequest
from eslurm.core.plan.placement.protocols import Assignment, Availability, JointAssignment
from eslurm.core.plan.placement.remaining import Remaining
from eslurm.core.resources import bits
from eslurm.core.resources.vector import Vector, add, fits

ORDERS_MAX: Final = 8
"""Orders in which parts that share nodes are tried."""
PARTS_MAPPED_MAX: Final = 256
"""Parts mapped in all those orders: a job of very many parts is tried in fewer orders."""
SPARED_MAX: Final = 64
"""Nodes that are left to the other parts, one after another, where too little was left for a part."""

Choose: TypeAlias = Callable[[Availability, CompiledRequest], Assignment | None]
"""The mapping of one part, `mapping.choose`."""


_Found: TypeAlias = dict[int, Assignment]
"""Assignments by the number of the part."""


def choose(
    room: Availability, need: CompiledRequest, choose_one: Choose, *, is_brief: bool = False
) -> JointAssignment | None:
    """Nodes for all parts on the free amounts of `room`, or None when they were not found; `is_brief`: in one order."""
    if need.wide and not fits(need.wide, room.wide_free):
        return None
    found: _Found = {}
    for group in groups(need.members):
        needs = {index: need.members[index] for index in group}
        chosen = _Mapping(room, choose_one).of(needs, is_brief=is_brief)
        if chosen is None:
            return None
        found |= chosen
    return JointAssignment([found[index] for index in range(len(need.members))])


def groups(members: Sequence[CompiledRequest]) -> list[list[int]]:
    """The parts by number, those together that may meet on a node; groups of fewer nodes come first."""
    found: list[tuple[int, list[int]]] = []
    for index, one in enumerate(members):
        allowed, together, others = one.allowed, [index], []
        for mask, group in found:
            if mask & allowed:
                allowed |= mask
                together += group
            else:
                others.append((mask, group))
        found = [*others, (allowed, together)]
    return [sorted(group) for _, group in sorted(found, key=lambda entry: entry[0].bit_count())]


def nodes_floor(members: Sequence[CompiledRequest]) -> int:
    """Lower bound of the nodes of all parts together: parts may share nodes, but whole nodes are shared with no part."""
    nodes = 0
    for group in groups(members):
        needs = [members[index] for index in group]
        nodes += sum(one.nodes_floor for one in needs if one.exclusive)
        nodes += max([one.nodes_floor for one in needs if not one.exclusive], default=0)
    return nodes


class _Mapping:
    """One mapping of parts that may meet on a node."""

    def __init__(self, room: Availability, choose_one: Choose) -> None:
        self._room = room
        self._choose_one = choose_one
        self._is_hopeless = False
        self._mapped = 0
        # What was tried in vain: (needs, order, the parts that were mapped).
        self._failed: list[tuple[dict[int, CompiledRequest], list[int], _Found]] = []

    def of(self, needs: dict[int, CompiledRequest], *, is_brief: bool) -> _Found | None:
        order = sorted(needs, key=lambda index: most_demanding_first(needs[index], index))
        if is_brief:
            placed, failed = self._in_order(needs, order)
            return placed if failed < 0 else None
        found = self._in_some_order(needs, order)
        if found is not None or self._is_hopeless:
            return found
        thrifty = {index: _on_fewest_nodes(need) for index, need in needs.items()}
        if any(thrifty[index] is not needs[index] for index in needs):
            found = self._in_some_order(thrifty, order)
        return found or self._sparing() or self._searched(thrifty, order)

    def _in_some_order(self, needs: dict[int, CompiledRequest], order: list[int]) -> _Found | None:
        tried: set[tuple[int, ...]] = set()
        for _ in range(ORDERS_MAX):
            if self._mapped >= PARTS_MAPPED_MAX:
                break
            # Equal parts share one compiled request: to swap them changes nothing.
            signature = tuple([id(needs[index]) for index in order])
            if signature in tried:
                break
            tried.add(signature)
            found, failed = self._in_order(needs, order)
            if failed < 0:
                return found
            if failed == order[0] or not (self._failed or self._is_enough(needs)):
                # It does not even fit alone, or no order can do.
                self._is_hopeless = True
                break
            self._failed.append((needs, order, found))
            order = [failed, *[index for index in order if index != failed]]
        return None

    def _in_order(self, needs: dict[int, CompiledRequest], order: Sequence[int]) -> tuple[_Found, int]:
        """Each part on what the earlier ones left, and the part for which too little was left (-1: none)."""
        found: _Found = {}
        left = Remaining(self._room)
        for index in order:
            self._mapped += 1
            need = needs[index]
            chosen = self._choose_one(left if found else self._room, need)
            if chosen is None:
                return found, index
            if need.exclusive:
                totals = self._room.topology.totals
                chosen = [(position, totals[position], tasks) for position, _, tasks in chosen]
            found[index] = chosen
            left.take(chosen)
        return found, -1

    def _is_enough(self, needs: dict[int, CompiledRequest]) -> bool:
        """Check whether the nodes' sum covers the parts' sum."""
        within = 0
        asked: Vector = ()
        for one in needs.values():
            within |= one.allowed
            asked = add(asked, one.floor)
        free: Vector = ()
        for position in bits.all_positions(within & self._room.usable):
            free = add(free, self._room.free_on(position))
        return fits(asked, free)

    def _sparing(self) -> _Found | None:
        """The orders that came farthest, with one node left out for one part: it may serve the others better."""
        self._failed.sort(key=lambda entry: -len(entry[2]))
        spared = [
            (needs, order, index, position)
            for needs, order, found in self._failed
            for index in reversed(found)
            for position, _, _ in found[index]
        ]
        for needs, order, index, position in spared[:SPARED_MAX]:
            if self._mapped >= PARTS_MAPPED_MAX:
                break
            one = needs[index]
            elsewhere = msgspec.structs.replace(one, allowed=one.allowed & ~(1 << position))
            found, failed = self._in_order({**needs, index: elsewhere}, order)
            if failed < 0:
                return found
        return None

    def _searched(self, needs: dict[int, CompiledRequest], order: Sequence[int]) -> _Found | None:
        """The parts of several nodes in order, the parts of one node by search in what is left."""
        single = [index for index in order if single_nodes.is_single(needs[index])]
        if len(single) < 2:
            return None
        found, failed = self._in_order(needs, [index for index in order if index not in single])
        if failed >= 0:
            return None
        left = Remaining(self._room)
        for chosen in found.values():
            left.take(chosen)
        together = single_nodes.search(left, [needs[index] for index in single]).chosen
        return None if together is None else found | dict(zip(single, together, strict=True))


def _on_fewest_nodes(need: CompiledRequest) -> CompiledRequest:
    """A part that asks for a range of nodes, with the fewest of them."""
    if len(need.parts) > 1:
        return need
    part = need.parts[0]
    fewest = max(part.nodes_floor, need.include.bit_count())
    if not part.nodes_min or fewest >= part.nodes_max:
        return need
    return msgspec.structs.replace(need, parts=(msgspec.structs.replace(part, nodes_max=fewest),))


def most_demanding_first(need: CompiledRequest, index: int) -> tuple[object, ...]:
    """Parts that name nodes, that want whole nodes, that may use few nodes, that need much on one node."""
    most = need.packed if need.pack else max([part.amounts(1) for part in need.parts])
    return (
        not need.include,
        not need.exclusive,
        need.allowed.bit_count(),
        tuple([-amount for amount in most]),
        index,
    )
