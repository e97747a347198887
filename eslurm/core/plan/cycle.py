"""One planning cycle: a snapshot in, a plan out, in slices the caller paces.

The caller drives the generator and measures the time; no step between two yields takes more
than a few milliseconds. Applying the plan is the caller's: when the generation has moved on,
each placement is re-validated first (`mapping.revalidate`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final

from eslurm.core.plan.policies import get_policy
from eslurm.core.plan.policy import Cycle, Plan, PlanLimits
from eslurm.core.plan.promise import Promise
from eslurm.core.plan.snapshot import Snapshot

DEFAULT_LIMITS: Final = PlanLimits()


def plan_cycle(
    snapshot: Snapshot,
    *,
    policy: str = "easy",
    limits: PlanLimits = DEFAULT_LIMITS,
    promises: Iterable[Promise] = (),
) -> Generator[None, None, Plan]:
    """Plans; `promises` are those of the last plan. Raises `ValueError` for an unknown policy."""
    cycle = Cycle(snapshot, limits, promises)
    yield from get_policy(policy).plan(cycle)
    return cycle.finish()


def plan_at_once(
    snapshot: Snapshot,
    *,
    policy: str = "easy",
    limits: PlanLimits = DEFAULT_LIMITS,
    promises: Iterable[Promise] = (),
) -> Plan:
    """The same without pauses: for simulation, what-if questions and tests."""
    slices = plan_cycle(snapshot, policy=policy, limits=limits, promises=promises)
    while True:
        try:
            next(slices)
        except StopIteration as finished:
            plan: Plan = finished.value
            return plan
