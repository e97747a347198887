"""Parts of one job that need one node each, put together by search.

Such parts are chunks that must not be split, so the search for chunks decides (`packing`): exact within its bound, with a
proof when nothing fits. Invariant: a part that asks for a whole node shares it with no other part.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from eslurm.core.plan.placement.compiled_request import CompiledRequest, Part
from eslurm.core.plan.placement.packing import fill
from eslurm.core.plan.placement.protocols import Assignment, Availability
from eslurm.core.resources.vector import Vector, add, padded, scale


class Together(msgspec.Struct, frozen=True):
    """An assignment for each part; without `chosen`, `is_proved` means that there is none."""

    chosen: list[Assignment] | None
    is_proved: bool = False


class _Kind(msgspec.Struct, frozen=True):
    """Equal parts: the amounts of one, the positions that it may use, and the cores kept there for others (C-44)."""

    amounts: Vector
    allowed: int
    kept: tuple[tuple[int, int], ...]
    exclusive: bool


def is_single(need: CompiledRequest) -> bool:
    """Check whether each placement of the part is all its tasks on one node."""
    if need.include.bit_count() > 1:
        return False
    if need.pack:
        return True
    part = need.parts[0]
    is_one = part.nodes_max == 1 or (part.nodes_min == 0 and part.tasks == 1)
    return len(need.parts) == 1 and is_one and part.most >= part.tasks


def search(room: Availability, needs: Sequence[CompiledRequest]) -> Together:
    """Nodes for all these parts, each of which `is_single`."""
    by_kind: dict[_Kind, list[int]] = {}
    for index, need in enumerate(needs):
        by_kind.setdefault(_kind(room, need), []).append(index)
    kinds = dict(sorted(by_kind.items(), key=lambda entry: not entry[0].exclusive))
    alone = frozenset([number for number, kind in enumerate(kinds) if kind.exclusive])
    fillings = fill(room, _as_chunks(kinds), room.usable, alone)
    if fillings.found is None:
        return Together(None, fillings.is_proved)
    left = {number: iter(indices) for number, indices in enumerate(kinds.values())}
    chosen: list[Assignment] = [[]] * len(needs)
    order = list(kinds)
    for position, filling in fillings.found:
        for number, count in enumerate(filling):
            kind = order[number]
            amounts = room.topology.totals[position] if kind.exclusive else kind.amounts
            for _ in range(count):
                index = next(left[number])
                chosen[index] = [(position, amounts, needs[index].tasks)]
    return Together(chosen)


def _kind(room: Availability, need: CompiledRequest) -> _Kind:
    part = need.parts[0]
    allowed = part.allowed & (need.include or -1)
    if need.exclusive:
        allowed &= room.idle
    amounts = need.packed if need.pack else part.amounts(part.tasks)
    # A packed part with a device may use cores that are kept for such jobs.
    has_device = any(amounts[index] for index in room.topology.devices)
    kept = () if has_device else tuple((cores, mask & allowed) for cores, mask in part.kept)
    return _Kind(amounts, allowed, kept, need.exclusive)


def _as_chunks(kinds: dict[_Kind, list[int]]) -> CompiledRequest:
    parts: list[Part] = []
    allowed = 0
    floor: Vector = ()
    for kind, indices in kinds.items():
        allowed |= kind.allowed
        floor = add(floor, scale(kind.amounts, len(indices)))
        parts.append(
            Part(
                unit=kind.amounts,
                per_node=padded((), len(kind.amounts)),
                tasks=len(indices),
                nodes_min=0,
                nodes_max=0,
                tasks_cap=1 if kind.exclusive else 0,
                most=1 if kind.exclusive else len(indices),
                allowed=kind.allowed,
                kept=kind.kept,
            )
        )
    return CompiledRequest(
        parts=tuple(parts),
        exclusive=False,
        allowed=allowed,
        include=0,
        pack=False,
        scatter=False,
        wide=(),
        packed=(),
        floor=floor,
        expected=floor,
        filters=(),
    )
