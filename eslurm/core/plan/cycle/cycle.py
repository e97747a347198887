"""One planning cycle: a snapshot and the schedule of the last cycle in, a plan out, in slices the caller paces.

The caller drives the generator and measures the time; no step between two yields takes more
than a few milliseconds. The caller applies the plan: when the generation has moved on,
each placement is re-validated first (`mapping.revalidate`).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from msgspec.structs import replace

from eslurm.core.plan.cycle import borrowing, filling, moves, resuming
from eslurm.core.plan.cycle.forward import ForwardPlanner
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.policies import get_policy
from eslurm.core.plan.cycle.policies.fcfs import Fcfs
from eslurm.core.plan.cycle.policy import Cycle
from eslurm.core.plan.cycle.preemption import PreemptionPlanner, Work
from eslurm.core.plan.cycle.reconcile import reconcile
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import Snapshot
from eslurm.core.plan.slices import exhaust

__all__ = ["exhaust", "plan_at_once", "plan_cycle"]

DEFAULT_LIMITS: Final = PlanLimits()
STRICT: Final = Fcfs.name


def plan_cycle(
    snapshot: Snapshot,
    *,
    policy: str = "easy",
    limits: PlanLimits = DEFAULT_LIMITS,
    schedule: Schedule | None = None,
    work: Work | None = None,
) -> Generator[None, None, Plan]:
    """Plan on `schedule`, which then holds the new plan; None: on an empty one. `work` are the preemptable attempts.

    Every placement of the plan must have become a running attempt, or have been given up, by the next snapshot. Raises
    `ValueError` for an unknown policy.
    """
    chosen = get_policy(policy)
    if policy == STRICT:
        snapshot = replace(snapshot, is_strict=True)
    schedule = schedule if schedule is not None else Schedule()
    yield from resuming.forget(schedule)
    yield from reconcile(schedule, snapshot, limits.overdue_grace_us)
    schedule.is_new = schedule.renews = False
    if schedule.granted:
        moves.settle(schedule, snapshot)
    cycle = Cycle(snapshot, schedule, limits)
    if snapshot.has_packs:
        yield from cycle.queries.keep_firm()
    ahead = ForwardPlanner(cycle)
    yield from ahead.start_due(fixed_only=True)
    yield from ahead.plan_fixed()
    if work is None:
        for job_id in list(schedule.preemptors):
            schedule.give_up_room(job_id)
        schedule.pushes.clear()
        yield from resuming.foresee(cycle)
        yield from borrowing.foresee(cycle)
        yield from chosen.plan(cycle)
        yield from borrowing.start_on_lent(cycle)
        yield from filling.fill(cycle)
        return (yield from moves.answered(cycle, cycle.finish()))
    making = PreemptionPlanner(cycle, work)
    yield from making.keep()
    yield from resuming.foresee(cycle)
    yield from borrowing.foresee(cycle)
    yield from chosen.plan(cycle)
    preemptor, victims = yield from making.make()
    yield from borrowing.start_on_lent(cycle)
    if not preemptor:
        yield from filling.fill(cycle)
    return (yield from moves.answered(cycle, cycle.finish(preemptor, victims)))


def plan_at_once(
    snapshot: Snapshot,
    *,
    policy: str = "easy",
    limits: PlanLimits = DEFAULT_LIMITS,
    schedule: Schedule | None = None,
) -> Plan:
    """The same without pauses: for simulation, what-if questions and tests."""
    return exhaust(plan_cycle(snapshot, policy=policy, limits=limits, schedule=schedule))
