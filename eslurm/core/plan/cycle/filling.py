"""Growths of elastic jobs: the last step of a cycle gives them what is free now and nothing else wants.

They have no place in the future, so no later job finds one taken. Invariant: no planned start gets later, and on
nodes that a waiting job without a planned start could use nothing is taken.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from msgspec.structs import replace

from eslurm.core.plan.cycle.policy import Cycle
from eslurm.core.plan.cycle.reasons import Why, WhyKind
from eslurm.core.plan.placement.mapping import spans_of
from eslurm.core.plan.profile.search import NoStart, narrowed, start_exactly

LOOKS_PER_SLICE: Final = 256
_WAITS_FOR_NO_NODE: Final = frozenset({WhyKind.LIMIT, WhyKind.PARTITION_DOWN, WhyKind.START_MISSED})


def fill(cycle: Cycle) -> Generator[None, None, None]:
    """Start growths on free nodes, in their order."""
    fillers = cycle.snapshot.fillers
    if not fillers or cycle.is_saturated:
        return
    claimed = yield from _claimed(cycle)
    for entry in fillers:
        if cycle.is_full or cycle.is_saturated:
            return
        query = cycle.queries.refused(entry.job) or cycle.queries.careful(entry)
        if isinstance(query, Why) or not query.need.allowed & ~claimed:
            continue
        if claimed & query.need.allowed:
            query = replace(query, need=narrowed(query.need, ~claimed))
        yield from cycle.schedule.book.preparing(query.need)
        found = start_exactly(cycle.schedule.book, query, cycle.now_us)
        if isinstance(found, NoStart):
            continue
        spans = spans_of(cycle.ledger.topology, query.need, found.chosen)
        booking = cycle.booking(entry.job, query.need, cycle.now_us, spans)
        cycle.schedule.start(entry.job, booking)
        yield from cycle.place(booking)


def _claimed(cycle: Cycle) -> Generator[None, None, int]:
    """The positions that waiting jobs without a planned start could use."""
    found = 0
    for number, entry in enumerate(cycle.snapshot.pending):
        why = cycle.waiting.get(entry.job_id) or cycle.schedule.whys.get(entry.job_id)
        waits = why is None or why.kind not in _WAITS_FOR_NO_NODE
        if waits and entry.job_id not in cycle.schedule.bookings and not cycle.placed.get(entry.job_id):
            found |= cycle.members(entry.job)
        if not cycle.reach & ~found:
            break
        if number % LOOKS_PER_SLICE == LOOKS_PER_SLICE - 1:
            yield
    return found
