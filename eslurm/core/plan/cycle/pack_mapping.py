"""All members of a pack mapped in one search, each at its own time (D-04).

The search is the one by which a pack is accepted (`feasible_parts`), so that a pack is not accepted for places that its
bookings one after another never find. Invariant: what is returned is free for all members beside each other; the rules on
amounts are not examined.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from eslurm.core.plan.placement import beside
from eslurm.core.plan.placement.protocols import Availability, shut
from eslurm.core.plan.profile.profile import ResourceProfile
from eslurm.core.plan.profile.search import PlacementQuery, Start, narrowed
from eslurm.core.resources.timeline import INFINITY_US

BUSY_STEPS_MAX: Final = 200
"""Steps of a search on nodes of which some are not idle: a pack that finds no place there is looked at in each cycle."""


def starts_together(
    book: ResourceProfile, queries: Sequence[PlacementQuery], starts_us: Sequence[int]
) -> Generator[None, None, dict[int, Start]]:
    """Starts of all members, each at its own time; empty: none are found.

    On idle nodes the search is as long as at the submission, so that it finds what was found there.
    """
    stays: list[beside.Stay] = []
    for query, start_us in zip(queries, starts_us, strict=True):
        stop_us = min(start_us + query.duration_us, INFINITY_US)
        closed = shut(query.closed, start_us, stop_us)
        need = narrowed(query.need, ~closed) if closed else query.need
        stays += [beside.Stay(part, start_us, stop_us) for part in beside.parts_of(need)]

    def room_of(start_us: int, stop_us: int) -> Availability:
        return book.room(start_us, stop_us)

    whole = book.room(min(starts_us), max([stay.stop_us for stay in stays]))
    is_idle = not any(stay.need.allowed & ~whole.idle for stay in stays)
    steps_max = beside.STEPS_MAX if is_idle else BUSY_STEPS_MAX
    found = yield from beside.search(room_of, stays, steps_max, beside.FIRST_MAX)
    if found.chosen is None:
        return {}
    parts = iter(found.chosen)
    return {
        member: Start(start_us, beside.of_job(query.need, parts))
        for member, (query, start_us) in enumerate(zip(queries, starts_us, strict=True))
    }
