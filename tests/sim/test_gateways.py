"""Simulated gateways: every stage of their start is reached and disturbed; without faults each death of a daemon is told."""

from __future__ import annotations

import pytest

from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.coverage import merged
from eslurm.lab.sim.fault_schedule import FaultPlan
from eslurm.lab.sim.gateway_checks import DAEMONS, ROUTES, RUN
from eslurm.lab.sim.gateway_draws import gateways_of
from eslurm.lab.sim.network import CALM
from eslurm.lab.sim.run import Scenario, make_world, run_scenario
from eslurm.lab.sim.world import START_US, World

NODES = 8
SEEDS = tuple(seed for seed in range(1, 121) if World(seed, NODES).config.modules)
PROMPT_US = 5 * SECOND_US


def test_some_clusters_have_gateways_between_two_modules() -> None:
    assert 6 <= len(SEEDS) <= 24
    for seed in SEEDS:
        config = World(seed, NODES).config
        hidden = gateways_of(config)
        others = [partition for partition in config.partitions if not partition.role]
        assert hidden and all(set(hidden).isdisjoint(partition.nodes) for partition in others)
        assert {node.module for node in config.nodes} == {"one", "other", "gw"}


@pytest.mark.slow
def test_without_faults_each_death_of_a_daemon_is_a_signal() -> None:
    told = 0
    for seed in SEEDS:
        plan = FaultPlan(CALM, (), 0.0, 60 * SECOND_US)
        world = make_world(Scenario(seed, NODES, plan))
        world.start()
        world.scheduler.run(START_US + 59 * SECOND_US)
        for death in world.checks.gateways.deaths(world.scheduler.at_us):
            if death.ran_on_us > PROMPT_US:
                told += 1
                assert death.downs
                assert bool(death.signals) == bool(world.config.gateway_signal), (seed, death)
                assert death.signals == death.delivered, (seed, death)
    assert told >= 3


@pytest.mark.slow
def test_each_stage_fails_and_is_struck() -> None:
    plan = FaultPlan(CALM, (), 0.0, 60 * SECOND_US, controllers=2, gateway_faults=0.7)
    paths = merged(run_scenario(Scenario(seed, NODES, plan, actions=0)).paths for seed in SEEDS[:6])
    for stage in (DAEMONS, ROUTES, RUN):
        for what in ("takeover", "agent restarted", "job stopped"):
            assert paths[f"{what} while {stage}"], (stage, what, paths)
    assert paths[f"failure while {DAEMONS}"] and paths[f"failure while {ROUTES}"], paths
    assert paths["gateway daemon died while its job ran"], paths
