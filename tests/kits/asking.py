"""A world whose plans are kept from cycle to cycle, and that is asked why jobs wait."""

from __future__ import annotations

from eslurm.core.control.planning import plan_slices
from eslurm.core.explain.inquiry import Answer, why_waiting
from eslurm.core.explain.why import Reason
from eslurm.core.model.messages import PlanMade
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.schedule import Schedule
from tests.kits.core import World

HOUR = 3600


class Site:
    """Wraps a world; `world.restarts` is off, since a restart forgets the schedule."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.schedule = Schedule()
        self.last: Plan | None = None

    def run(self) -> None:
        """A cycle; what it placed runs."""
        world = self.world
        self.last = exhaust(plan_slices(world.state, world.now_us, self.schedule, PlanLimits()))
        world.batch(PlanMade(self.last.placements, self.last.generation))
        for _ in range(2):
            world.deliver()
        if self.last.placements:
            self.run()

    def why(self, job_id: int, *, with_alternatives: bool = True) -> Answer:
        """The answer, as the controller gives it."""
        said = self.last.waiting.get(job_id) if self.last is not None else None
        world = self.world
        return exhaust(
            why_waiting(
                world.state,
                self.schedule,
                world.job(job_id),
                world.now_us,
                said=said,
                with_alternatives=with_alternatives,
            )
        )

    def kinds(self, job_id: int) -> list[str]:
        """The kinds of reasons that keep the job waiting, without the filters of nodes."""
        return [one.kind for one in self.why(job_id).reasons if not one.nodes_of]

    def reason(self, job_id: int, kind: str, *, of_nodes: bool = False) -> Reason:
        """The one of this kind."""
        found = [
            one for one in self.why(job_id).reasons if one.kind == kind and bool(one.nodes_of) == of_nodes
        ]
        assert len(found) == 1, self.why(job_id).reasons
        return found[0]
