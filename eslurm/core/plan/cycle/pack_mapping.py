"""Members of a pack that run at the same time, mapped together as the parts of one job are (D-04).

The mapping is the one by which a pack is accepted (`feasible_parts`), so that a pack is not accepted for places that its
bookings one after another never find. Invariant: what is returned is free for all of these members beside each other; the
rules on amounts are not examined.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from eslurm.core.plan.placement.compiled_request import joined
from eslurm.core.plan.placement.mapping import choose
from eslurm.core.plan.placement.protocols import Assignment, JointAssignment, shut
from eslurm.core.plan.profile.profile import ResourceProfile
from eslurm.core.plan.profile.search import PlacementQuery, Start, narrowed
from eslurm.core.resources.timeline import INFINITY_US

PARTS_MAX: Final = 64
"""Parts mapped together: they are mapped in one go, between two slices of the planner."""
GROUPS_MAX: Final = 8
"""Groups of members that are mapped, one after another."""


def starts_together(
    book: ResourceProfile, queries: Sequence[PlacementQuery], starts_us: Sequence[int]
) -> Generator[dict[int, Start]]:
    """Starts of members that run at the same time, each at its own, group by group, the largest first.

    The other members take what is left. At last all members are mapped as if they ran at the same time.
    """
    stops_us = [
        min(start_us + query.duration_us, INFINITY_US)
        for start_us, query in zip(starts_us, queries, strict=True)
    ]
    groups = [*_groups(starts_us, stops_us)[: GROUPS_MAX - 1], tuple(range(len(queries)))]
    for group in dict.fromkeys(groups):
        found = _mapped(book, queries, group, starts_us, stops_us)
        if found:
            yield found


def _mapped(
    book: ResourceProfile,
    queries: Sequence[PlacementQuery],
    group: Sequence[int],
    starts_us: Sequence[int],
    stops_us: Sequence[int],
) -> dict[int, Start]:
    """Starts of these members beside each other; empty: none are found."""
    needs = []
    for member in group:
        query = queries[member]
        closed = shut(query.closed, starts_us[member], stops_us[member])
        needs.append(narrowed(query.need, ~closed) if closed else query.need)
    parts = [part for need in needs for part in need.members or (need,)]
    if len(parts) > PARTS_MAX:
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


def _groups(starts_us: Sequence[int], stops_us: Sequence[int]) -> list[tuple[int, ...]]:
    """The members that run at the instants at which one begins; without those that run alone."""
    groups = (
        tuple([member for member, start_us in enumerate(starts_us) if start_us <= at_us < stops_us[member]])
        for at_us in sorted(set(starts_us))
    )
    return sorted(dict.fromkeys(one for one in groups if len(one) > 1), key=len, reverse=True)
