"""What is looked for on behalf of a waiting job: its request under the rules that bind it.

The one place where a job, its need and its rules become a `Quest`, and where a place that a job has already is held
against one. Invariant: what `allows` says of a booking is what a search for it would have heard from the rules, if pools had
let nobody in.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from eslurm.core.plan.cycle.queue import Pending
from eslurm.core.plan.cycle.reasons import Why, WhyKind
from eslurm.core.plan.placement.compiled_request import Need
from eslurm.core.plan.placement.protocols import Chosen, Constraint, shut
from eslurm.core.plan.profile.search import Quest, narrowed
from eslurm.core.plan.rules.constraints import Rules
from eslurm.core.plan.rules.pools import Kept
from eslurm.core.resources.timeline import INFINITY_US


def quest_of(job: Pending, need: Need, rules: Rules | None, now_us: int) -> Quest | Why:
    """The stay to be found for the job from `now_us` on; or why its rules never let it run."""
    # Room beside others is looked for as long as it is expected to stay; what must not be overrun lies nearer by as much
    # as it may run longer. Then a stay that keeps out of the one by the estimate keeps out of the other by the limit.
    stay_us, beyond_us = job.stay_us, job.beyond_us
    until_us = job.deadline_us - beyond_us if job.deadline_us else INFINITY_US
    if rules is None:
        if job.reservation:
            return Why(WhyKind.RESERVATION, f"--reservation: {job.reservation} does not exist (any more)")
        return Quest(need, stay_us, now_us, until_us, beyond_us=beyond_us)
    bound = rules.of(job, need)
    if bound.never:
        return Why(WhyKind.LIMIT, bound.never)
    if bound.within >= 0:
        need = narrowed(need, bound.within)
    return Quest(
        need,
        stay_us,
        max(now_us, bound.from_us),
        min(until_us, bound.until_us),
        bound.constraints,
        bound.closed,
        partial(rules.recount, job) if bound.constraints else None,
        beyond_us,
    )


def is_open(quest: Quest, at_us: int, chosen: Chosen) -> bool:
    """Check whether the stay may begin then as far as its interval goes, and none of these positions is closed to it."""
    stop_us = min(at_us + quest.duration_us, INFINITY_US)
    if at_us < quest.from_us or (quest.until_us < INFINITY_US and stop_us > quest.until_us):
        return False
    allowed = quest.need.allowed & ~shut(quest.closed, at_us, stop_us)
    return all(allowed >> position & 1 for position, _, _ in chosen)


def allows(quest: Quest, at_us: int, chosen: Chosen, *, without: tuple[type[Constraint], ...] = ()) -> bool:
    """Check whether the rules let a stay that was promised begin then on these positions.

    What its nodes have free is not looked at. Constraints of the kinds in `without` are not asked.
    """
    stop_us = min(at_us + quest.duration_us, INFINITY_US)
    return is_open(quest, at_us, chosen) and all(
        as_promised(constraint).earliest(quest.duration_us, at_us, stop_us) == at_us
        for constraint in _constraints(quest, chosen)
        if not isinstance(constraint, without)
    )


def as_promised(constraint: Constraint) -> Constraint:
    """What the constraint says of a place that the job has been promised already."""
    return constraint.as_promised() if isinstance(constraint, Kept) else constraint


def _constraints(quest: Quest, chosen: Chosen) -> Iterator[Constraint]:
    yield from quest.constraints
    if quest.recount is not None:
        yield from quest.recount(quest.need, chosen)
