"""Placement queries: a job's request under the rules that bind it.

The one place where a job, its compiled request and its rules become a `Quest`, and where a job's present place is checked
against one. Invariant: `allows` gives the answer that the rules would have given to a search for that booking, if pools
had let in no other job.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from eslurm.core.plan.cycle.queue import Pending
from eslurm.core.plan.cycle.reasons import Why, WhyKind
from eslurm.core.plan.placement.compiled_request import CompiledRequest
from eslurm.core.plan.placement.protocols import Assignment, Constraint, shut
from eslurm.core.plan.profile.search import PlacementQuery, narrowed
from eslurm.core.plan.rules.constraints import Rules
from eslurm.core.plan.rules.pools import KeptAmount
from eslurm.core.resources.timeline import INFINITY_US


def query_of(job: Pending, need: CompiledRequest, rules: Rules | None, now_us: int) -> PlacementQuery | Why:
    """The query for the job from `now_us` on; or the reason why its rules never let it run."""
    # Room beside others is looked for as long as it is expected to stay; what must not be overrun lies nearer by as much
    # as it may run longer. Then a stay that keeps out of the one by the estimate keeps out of the other by the limit.
    stay_us, beyond_us = job.stay_us, job.beyond_us
    until_us = job.deadline_us - beyond_us if job.deadline_us else INFINITY_US
    if rules is None:
        if job.reservation:
            return Why(WhyKind.RESERVATION, f"--reservation: {job.reservation} does not exist (any more)")
        return PlacementQuery(need, stay_us, now_us, until_us, beyond_us=beyond_us)
    bound = rules.of(job, need)
    if bound.never:
        return Why(WhyKind.LIMIT, bound.never)
    if bound.within >= 0:
        need = narrowed(need, bound.within)
    return PlacementQuery(
        need,
        stay_us,
        max(now_us, bound.from_us),
        min(until_us, bound.until_us),
        bound.constraints,
        bound.closed,
        partial(rules.recount, job) if bound.constraints else None,
        beyond_us,
    )


def is_open(query: PlacementQuery, at_us: int, chosen: Assignment) -> bool:
    """Check whether a start at that time lies in the query's interval and none of these positions is closed to it."""
    stop_us = min(at_us + query.duration_us, INFINITY_US)
    if at_us < query.from_us or (query.until_us < INFINITY_US and stop_us > query.until_us):
        return False
    allowed = query.need.allowed & ~shut(query.closed, at_us, stop_us)
    return all(allowed >> position & 1 for position, _, _ in chosen)


def allows(
    query: PlacementQuery, at_us: int, chosen: Assignment, *, without: tuple[type[Constraint], ...] = ()
) -> bool:
    """Check whether the rules let a promised start begin then on these positions.

    Free resources of the nodes are not examined. Constraints of the kinds in `without` are left out.
    """
    stop_us = min(at_us + query.duration_us, INFINITY_US)
    return is_open(query, at_us, chosen) and all(
        as_promised(constraint).earliest(query.duration_us, at_us, stop_us) == at_us
        for constraint in _constraints(query, chosen)
        if not isinstance(constraint, without)
    )


def as_promised(constraint: Constraint) -> Constraint:
    """The constraint as it binds a place that the job has already been promised."""
    return constraint.as_promised() if isinstance(constraint, KeptAmount) else constraint


def _constraints(query: PlacementQuery, chosen: Assignment) -> Iterator[Constraint]:
    yield from query.constraints
    if query.recount is not None:
        yield from query.recount(query.need, chosen)
