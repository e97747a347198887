"""Mapping from a compiled request to nodes, tasks and amounts on each.

This module alone decides what fits (C-33, C-34); "now", "at that later instant" and "ever" are the same function over
different availabilities: `choose(room, need)`. For jobs of one part, packed and scattered ones it is exact and monotone:
what fits still fits when more is free. Several kinds of chunks that may share nodes are mapped greedily, the expensive
ones first onto the cheapest nodes, and by a bounded search where that fails; no chunk is ever split. Nodes are taken in
the topology's order, and a job that fits under one switch stays under one (`switches`). Spans come in that order, and the
same input gives the same nodes. The parts of a job of several parts are mapped by `joint`; its spans come in the order of
the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eslurm.core.model.job import Span
from eslurm.core.model.placement import Placement
from eslurm.core.plan.placement import chunks, joint, switches
from eslurm.core.plan.placement.capacity import capacities, fitting
from eslurm.core.plan.placement.compiled_request import CompiledRequest, Part
from eslurm.core.plan.placement.protocols import Assignment, Availability, JointAssignment
from eslurm.core.resources import bits
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.shares import fits_together
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import Vector, add, aligned, fits, padded, scale

UNBOUNDED: Final = 1 << 30


def end_of(start_us: int, time_limit_us: int) -> int:
    """Latest end of a job that starts then; no limit means never."""
    return start_us + time_limit_us if time_limit_us > 0 else INFINITY_US


def revalidate(placement: Placement, ledger: Ledger) -> bool:
    """Check whether a placement planned on an older generation can still be carried out."""
    if placement.wide and not fits(placement.wide, ledger.wide_free):
        return False
    if placement.spans[-1].component and ledger.older and _has_older(placement, ledger):
        return False
    return fits_together(ledger, placement.spans)


def _has_older(placement: Placement, ledger: Ledger) -> bool:
    """Check whether an agent of an earlier release serves one of the nodes."""
    return bool(ledger.older & ledger.topology.mask_of_numbers(span.node for span in placement.spans))


def place(room: Availability, need: CompiledRequest) -> tuple[Span, ...] | None:
    """Spans for the whole job on the free amounts of `room`, or None when it does not fit."""
    chosen = choose(room, need)
    return spans_of(room.topology, need, chosen) if chosen is not None else None


def choose(room: Availability, need: CompiledRequest, *, is_brief: bool = False) -> Assignment | None:
    """Nodes, amounts and tasks for the whole job on the free amounts of `room`, or None when it does not fit.

    `is_brief`: parts that share nodes are tried in one order only.
    """
    if need.members:
        return joint.choose(room, need, choose, is_brief=is_brief)
    candidates = need.allowed & room.usable
    if need.exclusive:
        candidates &= room.idle
    if need.include & ~candidates or not candidates:
        return None
    if need.wide and not fits(need.wide, room.wide_free):
        return None
    chosen = _choose_within(room, need, candidates)
    if chosen is None or len(chosen) < 2 or need.include or not room.topology.switches:
        return chosen
    if len(need.parts) == 1:
        # Nodes that take no task say nothing about how much room there is under a switch.
        candidates = fitting(room, need.parts[0], need.parts[0].amounts(1), candidates)
    return switches.gathered(
        room.topology,
        candidates,
        chosen,
        _keeps_width(need),
        lambda within: _choose_within(room, need, within),
    )


def spans_of(topology: Topology, need: CompiledRequest, chosen: Assignment) -> tuple[Span, ...]:
    """The assignment by node numbers; an exclusive job gets all amounts of its nodes."""
    if need.members:
        assert isinstance(chosen, JointAssignment)
        return tuple(
            [
                span
                for component, (one, own) in enumerate(zip(need.members, chosen.members, strict=True))
                for span in _spans(topology, one, own, component)
            ]
        )
    return tuple(_spans(topology, need, chosen, 0))


def _spans(topology: Topology, need: CompiledRequest, chosen: Assignment, component: int) -> list[Span]:
    numbers = topology.numbers
    if need.exclusive:
        totals = topology.totals
        return [Span(numbers[position], totals[position], tasks, component) for position, _, tasks in chosen]
    return [Span(numbers[position], amounts, tasks, component) for position, amounts, tasks in chosen]


def satisfies(
    topology: Topology, need: CompiledRequest, spans: Sequence[Span], wide: Vector, times: int = 1
) -> bool:
    """Check whether an assignment of another configuration, for `times` tasks of the job, still meets its request."""
    asked = scale(need.wide, times)
    if aligned(wide, len(asked)) != asked:
        return False
    if need.members:
        return times == 1 and _members_satisfied(topology, need.members, spans)
    return _is_satisfied(topology, need, spans, times)


def _members_satisfied(topology: Topology, members: Sequence[CompiledRequest], spans: Sequence[Span]) -> bool:
    """Check each part against its own spans, and that a part with whole nodes has them alone."""
    by_part: list[list[Span]] = [[] for _ in members]
    parts_on: dict[int, int] = {}
    for span in spans:
        if span.component >= len(members):
            return False
        by_part[span.component].append(span)
        parts_on[span.node] = parts_on.get(span.node, 0) + 1
    return all(
        own
        and _is_satisfied(topology, one, own, 1)
        and not (one.exclusive and any(parts_on[span.node] > 1 for span in own))
        for one, own in zip(members, by_part, strict=True)
    )


def _is_satisfied(topology: Topology, need: CompiledRequest, spans: Sequence[Span], times: int) -> bool:
    width = len(topology.totals[0]) if topology.totals else 0
    taken = 0
    total: Vector = (0,) * width
    part = need.parts[0]
    for span in spans:
        position = topology.positions.get(span.node)
        amounts = padded(span.amounts, width)
        if position is None:
            return False
        if need.exclusive:
            expected = topology.totals[position]
        elif len(need.parts) > 1:
            expected = amounts
        elif times > 1:
            expected = scale(part.amounts(1), span.tasks)
        else:
            expected = part.amounts(span.tasks)
        if amounts != expected:
            return False
        taken |= 1 << position
        total = add(total, amounts)
    if len(need.parts) > 1 and not need.exclusive and total != need.floor:
        return False
    return not taken & ~need.allowed and not need.include & ~taken


def _keeps_width(need: CompiledRequest) -> bool:
    """Check whether one switch must not cost the job nodes: it asked for as many as possible."""
    part = need.parts[0]
    return part.nodes_max > part.nodes_min > 0


def _choose_within(room: Availability, need: CompiledRequest, candidates: int) -> Assignment | None:
    if len(need.parts) > 1:
        return chunks.choose(room, need, candidates)
    part = need.parts[0]
    if part.nodes_min == 0:
        return _on_few_nodes(room, part, need.include, candidates)
    return _on_many_nodes(room, part, need.include, candidates)


def _on_few_nodes(room: Availability, part: Part, include: int, candidates: int) -> Assignment | None:
    tasks, bound, count = part.tasks, part.nodes_max or UNBOUNDED, part.nodes_floor
    if not part.most or count > bound:
        return None
    if not include:
        # All nodes as full as a node can be is the fewest there can be: one look when that many are free.
        full = fitting(room, part, part.amounts(part.most), candidates)
        if count == 1:
            if full:
                return [(bits.lowest(full), part.amounts(tasks), tasks)]
        elif full.bit_count() >= count:
            chosen = bits.first_positions(full, count)
            return _with_amounts(part, _filled([(position, part.most) for position in chosen], tasks))
    found = _widest(capacities(room, part, candidates), include, tasks, 0, bound)
    return _with_amounts(part, _filled(found, tasks)) if found is not None else None


def _on_many_nodes(room: Availability, part: Part, include: int, candidates: int) -> Assignment | None:
    tasks = part.tasks
    # One task with several nodes means that tasks were not counted: the width alone was asked for.
    widest = part.nodes_max if tasks == 1 else min(part.nodes_max, max(part.nodes_min, tasks))
    count = widest
    if widest > part.nodes_min:
        count = min(widest, fitting(room, part, part.amounts(1), candidates).bit_count())
    if count < part.nodes_min or include.bit_count() > count:
        return None
    even = _evenly(room, part, include, candidates, count)
    if even is not None:
        return even
    found = _widest(capacities(room, part, candidates), include, tasks, count, count)
    return _with_amounts(part, _levelled(found, tasks)) if found is not None else None


def _with_amounts(part: Part, shares: list[tuple[int, int]]) -> Assignment:
    # Few different shares, many nodes: the amounts of equal shares are one object.
    amounts = {tasks: part.amounts(tasks) for tasks in {tasks for _, tasks in shares}}
    return [(position, amounts[tasks], tasks) for position, tasks in shares]


def _evenly(room: Availability, part: Part, include: int, candidates: int, count: int) -> Assignment | None:
    """Block distribution: equal shares, the first `tasks % count` nodes take one more."""
    share, more = divmod(part.tasks, count)
    if share + (more > 0) > max(part.most, 1):
        return None
    amounts = part.amounts(share)
    enough = fitting(room, part, amounts, candidates)
    roomy = enough
    if more and share:
        roomy = fitting(room, part, part.amounts(share + 1), enough)
    if include:
        if include & ~roomy:
            return None
        others = bits.lowest_part(roomy & ~include, count - include.bit_count())
        chosen = bits.first_positions(include | others, count)
    elif roomy is not enough:
        chosen = bits.first_positions(roomy, more)
        if len(chosen) < more:
            return None
        behind = enough >> (chosen[-1] + 1) << (chosen[-1] + 1)
        chosen += bits.first_positions(behind, count - more)
    else:
        chosen = bits.first_positions(enough, count)
    if len(chosen) < count:
        return None
    if not more:
        return [(position, amounts, share) for position in chosen]
    above = part.amounts(share + 1)
    return [
        (position, above, share + 1) if index < more else (position, amounts, share)
        for index, position in enumerate(chosen)
    ]


def _widest(
    by_capacity: dict[int, int], include: int, tasks: int, nodes_min: int, nodes_max: int
) -> list[tuple[int, int]] | None:
    """The nodes with the most room until `tasks` fit and `nodes_min` is reached: (position, capacity).

    Equal ones come in node order. None when `nodes_max` nodes are not enough.
    """
    chosen: list[tuple[int, int]] = []
    room = 0
    if include:
        for capacity, mask in by_capacity.items():
            chosen += [(position, capacity) for position in bits.all_positions(mask & include)]
        if len(chosen) != include.bit_count() or len(chosen) > nodes_max:
            return None
        room = sum(capacity for _, capacity in chosen)
    for capacity in sorted(by_capacity, reverse=True):
        missing = max(nodes_min - len(chosen), -((room - tasks) // capacity))
        if missing <= 0:
            break
        wanted = min(missing, nodes_max - len(chosen))
        taken = bits.first_positions(by_capacity[capacity] & ~include, wanted)
        chosen += [(position, capacity) for position in taken]
        room += capacity * len(taken)
    if room < tasks or len(chosen) < nodes_min:
        return None
    chosen.sort()
    return chosen


def _filled(chosen: list[tuple[int, int]], tasks: int) -> list[tuple[int, int]]:
    """Fill node after node, leaving one task for each following node while there are enough."""
    shares: list[tuple[int, int]] = []
    left = tasks
    for index, (position, capacity) in enumerate(chosen):
        behind = len(chosen) - index - 1
        share = min(capacity, max(left - behind, min(left, 1)))
        shares.append((position, share))
        left -= share
    return shares


def _levelled(chosen: list[tuple[int, int]], tasks: int) -> list[tuple[int, int]]:
    """The most even distribution: a level that every node reaches, or is full below."""
    level, left, open_nodes = 0, tasks, len(chosen)
    for capacity in sorted(capacity for _, capacity in chosen):
        rise = (capacity - level) * open_nodes
        if rise > left:
            break
        level, left, open_nodes = capacity, left - rise, open_nodes - 1
    if open_nodes:
        level, left = level + left // open_nodes, left % open_nodes
    shares: list[tuple[int, int]] = []
    for position, capacity in chosen:
        share = min(capacity, level)
        if left and capacity > level:
            share, left = share + 1, left - 1
        shares.append((position, share))
    return shares
