"""Expected starts of the first waiting jobs under policy `easy` while no core is free.

EASY promises a start to the first blocked job, so that backfill cannot delay it. With no core free there is no backfill,
so it examines no job and promises nothing. This module computes for users what it would promise. Invariants: nothing here
changes state or schedule; jobs with a planned start are answered with that one, not here.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from eslurm.core.control.planning import take_snapshot
from eslurm.core.explain.whatif import WhatIf
from eslurm.core.plan.cycle.priority import Ranking
from eslurm.core.plan.cycle.reasons import Why
from eslurm.core.plan.cycle.schedule import Booking, Schedule
from eslurm.core.plan.placement.mapping import spans_of
from eslurm.core.plan.profile.search import RESOURCES
from eslurm.core.state.cluster import State

POLICY: Final = "easy"
LOOKED_AT_MAX: Final = 1_000
"""Waiting jobs among which the first of each set of nodes are looked for."""


def head_starts(
    state: State, schedule: Schedule, now_us: int, ranking: Ranking | None = None
) -> Generator[None, None, list[Booking]]:
    """Starts of the first jobs of partitions that share no node. It copies its input before it returns; then in slices."""
    reach = _reach(state)
    if state.config.policy != POLICY or state.ledger.open & reach:
        return _nobody()
    whatif = WhatIf(take_snapshot(state, now_us, None, ranking), schedule)
    return _found(whatif, reach, frozenset(schedule.preemptors))


def _reach(state: State) -> int:
    """The nodes of the partitions that start jobs."""
    partitions = state.ledger.topology.partitions
    reach = 0
    for partition in state.partition_views.values():
        if partition.up:
            reach |= partitions.get(partition.name, 0)
    return reach


def _nobody() -> Generator[None, None, list[Booking]]:
    yield from ()
    return []


def _found(whatif: WhatIf, reach: int, preemptors: frozenset[int]) -> Generator[None, None, list[Booking]]:
    found: list[Booking] = []
    claimed = 0
    schedule = whatif.schedule
    for entry in whatif.snapshot.pending[:LOOKED_AT_MAX]:
        job = entry.job
        members = whatif.cycle.members(job)
        # There is none behind the first that could use these nodes; fixed starts and preempting jobs are handled elsewhere.
        if claimed & members or job.start_at_us or job.job_id in preemptors:
            continue
        if job.job_id in schedule.bookings:
            claimed |= members
            continue
        query = whatif.query(job)
        if isinstance(query, Why):
            continue
        yield from whatif.preparing(query)
        start = whatif.find(query, job, whatif.now_us)
        yield
        # Whom a limit keeps waiting, not others, is passed over.
        if start is None or (start.moves and start.moves[-1].kind != RESOURCES):
            continue
        claimed |= members
        spans = spans_of(schedule.book.topology, query.need, start.chosen)
        found.append(whatif.cycle.booking(job, query.need, start.at_us, spans))
        if not reach & ~claimed:
            break
    return found
