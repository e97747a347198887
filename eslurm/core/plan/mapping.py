"""From a need to nodes: which, how many tasks on each, and the amounts they take.

Only here is decided what fits (C-27 mapping); "now", "at that later instant" and "ever" are the
same function asked of different ledgers. It is monotone: what fits still fits when more is
free. Spans come in the cluster's node order, and the same input gives the same nodes.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeAlias

import msgspec

from eslurm.core.plan.need import Need
from eslurm.core.resources import bits
from eslurm.core.resources.ledger import NODES_PER_SLICE, Ledger
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import Vector

UNBOUNDED: Final = 1 << 30

Shares: TypeAlias = list[tuple[int, int]]
"""(position, tasks) in ascending order of position."""


class Span(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a job gets on one node. Fields are only ever appended."""

    node: int
    amounts: Vector
    tasks: int


class Placement(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A decision to start a job now, on these nodes. Fields are only ever appended."""

    job_id: int
    spans: tuple[Span, ...]
    until_us: int


def end_of(start_us: int, time_limit_us: int) -> int:
    """When a job that starts then ends at the latest; no limit means never."""
    return start_us + time_limit_us if time_limit_us > 0 else INFINITY_US


def revalidate(placement: Placement, ledger: Ledger) -> bool:
    """Whether a placement planned on an older generation can still be carried out."""
    return all(ledger.fits_on(span.node, span.amounts) for span in placement.spans)


def place(ledger: Ledger, need: Need) -> tuple[Span, ...] | None:
    """Spans for the whole job on what is free in `ledger`, or None when it does not fit."""
    shares = choose(ledger, need)
    return _spans(ledger.topology, need, shares) if shares is not None else None


def choose(ledger: Ledger, need: Need) -> Shares | None:
    """Nodes and tasks for the whole job on what is free in `ledger`, or None when it does not fit."""
    candidates = need.allowed & ledger.open
    if need.exclusive:
        candidates &= ledger.idle
    if need.include & ~candidates or not candidates:
        return None
    if need.nodes_min == 0:
        return _on_few_nodes(ledger, need, candidates)
    return _on_many_nodes(ledger, need, candidates)


def spans_in_slices(
    topology: Topology, need: Need, shares: Shares
) -> Generator[None, None, tuple[Span, ...]]:
    """The spans of chosen shares; yields between slices of a large job."""
    if len(shares) <= NODES_PER_SLICE:
        return _spans(topology, need, shares)
    spans: list[Span] = []
    for start in range(0, len(shares), NODES_PER_SLICE):
        spans += _spans(topology, need, shares[start : start + NODES_PER_SLICE])
        yield
    return tuple(spans)


def capacities(ledger: Ledger, need: Need, candidates: int) -> dict[int, int]:
    """Sets of candidate positions by how many tasks they can take; those that take none are left out."""
    found: dict[int, int] = {}
    for free, inside in ledger.groups(need.unit[0], candidates):
        capacity = need.capacity(free)
        if capacity:
            found[capacity] = found.get(capacity, 0) | inside
    return found


def _on_few_nodes(ledger: Ledger, need: Need, candidates: int) -> Shares | None:
    one_node = not need.include and not (need.tasks_cap and need.tasks > need.tasks_cap)
    if one_node:
        whole = ledger.fitting(need.amounts(need.tasks)) & candidates
        if whole:
            return [(bits.lowest(whole), need.tasks)]
    by_capacity = capacities(ledger, need, candidates)
    bound = need.nodes_max or UNBOUNDED
    chosen = _widest(by_capacity, need.include, need.tasks, 0, bound)
    return _filled(chosen, need.tasks) if chosen is not None else None


def _on_many_nodes(ledger: Ledger, need: Need, candidates: int) -> Shares | None:
    by_capacity = capacities(ledger, need, candidates)
    eligible = _at_least(by_capacity, 1)
    # One task with several nodes means that tasks were not counted: the width alone was asked for.
    widest = need.nodes_max if need.tasks == 1 else min(need.nodes_max, max(need.nodes_min, need.tasks))
    count = min(widest, eligible.bit_count())
    if count < need.nodes_min or need.include & ~eligible or need.include.bit_count() > count:
        return None
    even = _evenly(by_capacity, need, count)
    if even is not None:
        return even
    chosen = _widest(by_capacity, need.include, need.tasks, count, count)
    return _levelled(chosen, need.tasks) if chosen is not None else None


def _evenly(by_capacity: dict[int, int], need: Need, count: int) -> Shares | None:
    """Block distribution: equal shares, the first `tasks % count` nodes take one more."""
    share, more = divmod(need.tasks, count)
    enough = _at_least(by_capacity, max(share, 1))
    if need.include:
        roomy = _at_least(by_capacity, share + 1) if more else enough
        if need.include & ~roomy:
            return None
        others = bits.lowest_part(roomy & ~need.include, count - need.include.bit_count())
        chosen = bits.first_positions(need.include | others, count)
        if len(chosen) < count:
            return None
    elif more:
        chosen = bits.first_positions(_at_least(by_capacity, share + 1), more)
        if len(chosen) < more:
            return None
        behind = enough >> (chosen[-1] + 1) << (chosen[-1] + 1)
        chosen += bits.first_positions(behind, count - more)
        if len(chosen) < count:
            return None
    else:
        chosen = bits.first_positions(enough, count)
        if len(chosen) < count:
            return None
    return [(position, share + 1 if index < more else share) for index, position in enumerate(chosen)]


def _widest(
    by_capacity: dict[int, int], include: int, tasks: int, nodes_min: int, nodes_max: int
) -> Shares | None:
    """The nodes with the most room until `tasks` fit and `nodes_min` is reached: (position, capacity).

    Equal ones come in node order. None when `nodes_max` nodes are not enough.
    """
    chosen: Shares = []
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


def _filled(chosen: Shares, tasks: int) -> Shares:
    """Fills node after node, leaving one task for each node that follows while there are enough."""
    shares: Shares = []
    left = tasks
    for index, (position, capacity) in enumerate(chosen):
        behind = len(chosen) - index - 1
        share = min(capacity, max(left - behind, min(left, 1)))
        shares.append((position, share))
        left -= share
    return shares


def _levelled(chosen: Shares, tasks: int) -> Shares:
    """As even as the nodes' room allows: a level that every node reaches or is full below."""
    level, left, open_nodes = 0, tasks, len(chosen)
    for capacity in sorted(capacity for _, capacity in chosen):
        rise = (capacity - level) * open_nodes
        if rise > left:
            break
        level, left, open_nodes = capacity, left - rise, open_nodes - 1
    if open_nodes:
        level, left = level + left // open_nodes, left % open_nodes
    shares: Shares = []
    for position, capacity in chosen:
        share = min(capacity, level)
        if left and capacity > level:
            share, left = share + 1, left - 1
        shares.append((position, share))
    return shares


def _at_least(by_capacity: dict[int, int], tasks: int) -> int:
    found = 0
    for capacity, mask in by_capacity.items():
        if capacity >= tasks:
            found |= mask
    return found


def _spans(topology: Topology, need: Need, shares: Shares) -> tuple[Span, ...]:
    numbers, totals = topology.numbers, topology.totals
    if need.exclusive:
        return tuple(Span(numbers[position], totals[position], tasks) for position, tasks in shares)
    # Few different shares, many nodes: the amounts of equal shares are one object.
    amounts = {tasks: need.amounts(tasks) for _, tasks in shares}
    return tuple(Span(numbers[position], amounts[tasks], tasks) for position, tasks in shares)
