"""Clusters whose leaders die while many jobs wait: the next one's first plan keeps what was promised.

`PlanChecks` looks at each first plan; here is enough for it to look at.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim import controller
from eslurm.lab.sim.fault_schedule import FaultPlan
from eslurm.lab.sim.network import CALM
from eslurm.lab.sim.world import START_US, World
from tests.support.seeds import Seeds

HOUR_US = 3_600 * SECOND_US
FAILED = (45, 49, 57)
"""Seeds of these worlds that failed once."""


@pytest.mark.parametrize("policy", ["conservative", "planned"])
def test_promises_outlive_the_leader_that_made_them(
    policy: str, seeds: Seeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A plan of a state that changed meanwhile is not judged.
    monkeypatch.setattr(controller, "INTERRUPTED_SHARE", 0.0)
    looked = 0
    for seed in (*seeds(6), *FAILED):
        world = World(seed, 6, plan=FaultPlan(CALM, (), 0.0, HOUR_US, controllers=2))
        world.config = replace(world.config, policy=policy)
        world.actions = 0
        world.start()
        world.scheduler.run(START_US + 10 * SECOND_US)
        for _ in range(15):
            world.client._submit()
        for _ in range(4):
            world.scheduler.run(world.scheduler.at_us + 7 * SECOND_US)
            if world.controller is not None:
                world.controller.seat.end()
        looked += world.checks.plans.seen.get("kept", 0)
    assert looked >= 3
