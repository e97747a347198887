"""A run of a federation from start to verdict."""

from __future__ import annotations

from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.federation.world import MEETING_WITHIN_US, FederatedWorld
from eslurm.lab.sim.recovery import Patience
from eslurm.lab.sim.world import START_US

LOOK_EVERY_US = SECOND_US
CALM_US = 40 * SECOND_US
"""It goes on so long when all is well: sound cells go on seeing each other."""


def play(world: FederatedWorld, until_us: int | None) -> None:
    """Play it. Raises what is violated."""
    scheduler = world.scheduler
    world.start()
    if until_us is not None:
        scheduler.run(START_US + until_us)
        return
    scheduler.run(START_US + world.plan.calm_us)
    _settle(world)
    if world.plan.meets:
        world.meet()
        scheduler.run(scheduler.at_us + 2 * MEETING_WITHIN_US)
        _settle(world)
    scheduler.run(scheduler.at_us + CALM_US)
    world.final_check()


def _settle(world: FederatedWorld) -> None:
    """Run until all is quiet."""
    scheduler = world.scheduler
    has_gateways = any(cell.world.config.modules for cell in world.cells)
    patience = Patience(scheduler.at_us, has_gateways=has_gateways)
    while why := world.why_unsettled():
        patience.check(scheduler.at_us, sum(cell.world.jobs_left for cell in world.cells), why)
        for cell in world.cells:
            cell.world.set_clocks_right()
        scheduler.run(scheduler.at_us + LOOK_EVERY_US)
