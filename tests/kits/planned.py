"""A planner in front of a test's world: what it decides happens, and the nodes do what they are told."""

from __future__ import annotations

from eslurm.core.control.planning import message_of, plan_slices
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.priority import Ranking
from eslurm.core.plan.cycle.schedule import Schedule
from tests.kits.core import World


def plan_all(world: World, schedule: Schedule, ranking: Ranking | None = None) -> Plan:
    """Cycles as long as they change anything; after each one the book is as it should be. Returns the last plan."""
    while True:
        slices = plan_slices(world.state, world.now_us, schedule, PlanLimits(), ranking=ranking)
        plan = exhaust(slices)
        message = message_of(plan)
        schedule.book.check()
        if message is not None:
            world.send(message)
        elif not world.state.plan_wanted:
            return plan
        for _ in range(2):
            world.deliver()
