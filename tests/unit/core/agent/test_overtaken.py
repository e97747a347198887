"""A registration of a dead agent that arrives after its successor's, in a whole simulated cluster."""

from __future__ import annotations

import pytest

from eslurm.core.model.node import Node
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.protocol import Registration, Report
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State
from eslurm.lab.sim import wire
from eslurm.lab.sim.fault_schedule import FaultPlan
from eslurm.lab.sim.host import Host
from eslurm.lab.sim.network import CALM
from eslurm.lab.sim.recovery import GATEWAYS_MAX_US
from eslurm.lab.sim.run import Scenario, make_world
from eslurm.lab.sim.world import START_US, World

QUIET = FaultPlan(CALM, (), 0.0, 60 * SECOND_US)


def playing(seed: int) -> World:
    """A cluster without faults in the middle of its work, each of its agents restarted once."""
    world = make_world(Scenario(seed, 6, QUIET, 30))
    world.start()
    world.scheduler.run(START_US + 3 * SECOND_US)
    for host in world.hosts:
        host.crash_agent()
        host.start_agent()
    world.scheduler.run(START_US + 6 * SECOND_US)
    return world


def state_of(world: World) -> State:
    assert world.controller is not None
    return world.controller.state


def some_node(world: World, *, busy: bool) -> Node:
    """A node that is up, with or without a job."""
    for _ in range(600):
        state = state_of(world)
        for node in state.nodes.values():
            if node.state is NodeState.UP and bool(state.jobs_on.get(node.number)) is busy:
                return node
        world.scheduler.run(world.scheduler.at_us + SECOND_US // 20)
    raise AssertionError("no such node turned up")


def host_of(world: World, number: int) -> Host:
    (host,) = (host for host in world.hosts if number in host.numbers)
    return host


def tell_late(world: World, node: Node, starts: int) -> None:
    """Deliver the registration of a dead process of the node, which held nothing, only now."""
    body = Registration(
        node.name,
        node.node_uid,
        node.boot_id,
        "dead",
        state_of(world).epoch,
        node.endpoint,
        node.total,
        (),
        starts,
    )
    assert world.controller is not None
    world.controller.on_message("satellite9#1", wire.Reports((Report("dead", 1, body),)))


def settle(world: World) -> None:
    deadline_us = world.scheduler.at_us + 200 * SECOND_US + (GATEWAYS_MAX_US if world.config.modules else 0)
    while not world.is_settled():
        assert world.scheduler.at_us < deadline_us, world.why_unsettled()
        world.scheduler.run(world.scheduler.at_us + SECOND_US)
    world.final_check()


@pytest.mark.parametrize("seed", range(1, 9))
def test_it_is_refused_and_the_jobs_of_the_node_run_on(seed: int) -> None:
    world = playing(seed)
    node = some_node(world, busy=True)
    assert node.starts == 2
    tell_late(world, node, starts=1)
    settle(world)
    assert state_of(world).nodes[node.number].incarnation == node.incarnation


@pytest.mark.parametrize("seed", range(1, 9))
def test_when_it_is_believed_the_living_agent_claims_its_node_again(seed: int) -> None:
    """An agent that does not count its sessions cannot be found out: its successor is not locked out for ever."""
    world = playing(seed)
    node = some_node(world, busy=False)
    tell_late(world, node, starts=0)
    world.scheduler.run(world.scheduler.at_us + 1)
    settle(world)
    world.scheduler.run(world.scheduler.at_us + 20 * SECOND_US)
    after = state_of(world).nodes[node.number]
    agent = host_of(world, node.number).agent
    assert agent is not None
    served = agent.agent.registry.by_number[node.number]
    assert served.registered and served.incarnation == after.incarnation >= node.incarnation + 2
    assert after.session == served.session and after.starts == served.starts == 3
