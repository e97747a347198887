"""A node's death is noticed within two heartbeat periods, whenever it dies, its broadcasts' own time included.

The whole simulated cluster runs: satellites, relays, their time-outs and second looks. Nothing else goes wrong.
"""

from __future__ import annotations

import pytest

from eslurm.core.model import facts
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State
from eslurm.lab.sim.fault_schedule import FaultPlan
from eslurm.lab.sim.network import CALM
from eslurm.lab.sim.world import START_US, World

PERIOD_US = 5 * SECOND_US
SEED = 4


def calm_world(seed: int, nodes: int) -> World:
    world = World(seed, nodes, plan=FaultPlan(CALM, (), 0.0, 3600 * SECOND_US))
    world.actions = 0
    world.start()
    world.scheduler.run(START_US + SECOND_US)
    return world


def unreachable_at(world: World, monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """The time at which each node was first called unreachable; filled as the world runs."""
    found: dict[int, int] = {}
    observe = world.checks.on_fact

    def on_fact(state: State, fact: facts.Fact) -> None:
        observe(state, fact)
        if isinstance(fact, facts.NodeStateChanged) and fact.state is NodeState.UNREACHABLE:
            found.setdefault(fact.number, world.scheduler.at_us)

    assert world.controller is not None
    monkeypatch.setattr(world.controller._reactor, "_observe", on_fact)
    return found


@pytest.mark.parametrize("silently", [True, False], ids=["silent", "refused"])
@pytest.mark.parametrize("tenths", range(0, 50, 7))
def test_a_death_is_noticed_within_two_periods(
    silently: bool, tenths: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = calm_world(SEED, 12)
    noticed = unreachable_at(world, monkeypatch)
    world.scheduler.run(START_US + 20 * SECOND_US + tenths * SECOND_US // 10)
    assert world.controller is not None
    assert {node.state for node in world.controller.state.nodes.values()} == {NodeState.UP} and not noticed
    victim = world.hosts[len(world.hosts) // 2]
    died_us = world.scheduler.at_us
    victim.crash_agent(silently=silently)
    world.scheduler.run(died_us + 3 * PERIOD_US)
    assert noticed.keys() == set(victim.numbers), "the dead, and nobody else"
    assert max(noticed.values()) - died_us <= 2 * PERIOD_US
