"""Members of a pack that run at the same time, mapped together as the parts of one job are (D-04).

The mapping is the one by which a pack is accepted (`feasible_parts`), so that a pack is not accepted for places that its
bookings one after another never find. Invariant: what is returned is free for all of these members beside each other; the
rules on amounts are not examined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eslurm.core.plan.placement.compiled_request import joined
from eslurm.core.plan.placement.mapping import choose
from eslurm.core.plan.placement.protocols import Assignment, JointAssignment, shut
from eslurm.core.plan.profile.profile import ResourceProfile
from eslurm.core.plan.profile.search import PlacementQuery, Start, narrowed
from eslurm.core.resources.timeline import INFINITY_US

PARTS_MAX: Final = 64
"""Parts mapped together: they are mapped in one go, between two slices of the planner."""


def starts_together(
    book: ResourceProfile, queries: Sequence[PlacementQuery], starts_us: Sequence[int]
) -> dict[int, Start]:
    """Starts of the largest group of members that run at the same time, each at its own; empty: none are found."""
    stops_us = [
        min(start_us + query.duration_us, INFINITY_US)
        for start_us, query in zip(starts_us, queries, strict=True)
    ]
    group = _largest(starts_us, stops_us)
    needs = []
    for member in group:
        query, stay = queries[member], (starts_us[member], stops_us[member])
        closed = shut(query.closed, *stay)
        needs.append(narrowed(query.need, ~closed) if closed else query.need)
    parts = [part for need in needs for part in need.members or (need,)]
    if len(group) < 2 or len(parts) > PARTS_MAX:
        return {}
    from_us, until_us = min(starts_us[member] for member in group), max(stops_us[member] for member in group)
    chosen = choose(book.room(from_us, until_us), joined(parts))
    if chosen is None:
        return {}
    assert isinstance(chosen, JointAssignment)
    found: dict[int, Start] = {}
    left = iter(chosen.members)
    for member, need in zip(group, needs, strict=True):
        own: Assignment = JointAssignment([next(left) for _ in need.members]) if need.members else next(left)
        found[member] = Start(starts_us[member], own)
    return found


def _largest(starts_us: Sequence[int], stops_us: Sequence[int]) -> list[int]:
    """The first largest group of members that all run at one instant."""
    groups = (
        [member for member, start_us in enumerate(starts_us) if start_us <= at_us < stops_us[member]]
        for at_us in sorted(set(starts_us))
    )
    return max(groups, key=len)
