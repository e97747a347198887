"""A node that is silent for too long ends by itself only what may be requeued: nothing else starts again after it."""

from __future__ import annotations

import pytest

from eslurm.core.model.messages import HeartbeatDone
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.request import Request
from tests.kits.core import ROOT, World
from tests.kits.gateways import addressed, gateway_world, prepared


def silent(*numbers: int, requeue: bool, nodes: int = 1, first: bool = True) -> World:
    """Job 1 runs on so many nodes, an operator has asked for a requeue (first, or at the end), and these were silent."""
    world = World(nodes=nodes, node_lost_after_s=600.0)
    world.submit(requeue=requeue, request=Request(tasks=nodes, nodes_min=nodes, nodes_max=nodes))
    world.start()
    assert world.state_of(1) == "RUNNING"
    if first:
        world.requeue(1, by=ROOT)
    world.send(HeartbeatDone(missing=numbers))
    world.pass_time(700)
    assert world.state.nodes[numbers[0]].state is NodeState.LOST
    if not first:
        world.requeue(1, by=ROOT)
    return world


@pytest.mark.parametrize(("requeue", "becomes"), [(True, "PENDING"), (False, "NODE_FAIL")])
def test_a_requeue_of_what_may_run_on_is_an_end(requeue: bool, becomes: str) -> None:
    world = silent(0, requeue=requeue)
    assert world.state_of(1) == becomes


@pytest.mark.parametrize("first", [True, False], ids=["asked before", "asked after"])
@pytest.mark.parametrize(("requeue", "becomes"), [(True, "PENDING"), (False, "NODE_FAIL")])
def test_so_it_is_when_another_node_than_the_first_is_silent(
    requeue: bool, becomes: str, first: bool
) -> None:
    world = silent(1, requeue=requeue, nodes=2, first=first)
    world.end(1)
    assert world.state_of(1) == becomes


def test_a_cancel_still_counts() -> None:
    world = silent(1, requeue=False, nodes=2)
    world.cancel(1)
    world.end(1)
    assert world.state_of(1) == "CANCELLED"


def test_a_node_that_is_declared_lost_has_ended_all() -> None:
    world = World(nodes=1)
    world.submit(requeue=False)
    world.start()
    world.requeue(1, by=ROOT)
    world.lose(0)
    assert world.state_of(1) == "PENDING"


@pytest.mark.parametrize("number", [0, 4], ids=["of the script", "of a gateway"])
@pytest.mark.parametrize(("requeue", "becomes"), [(True, "PENDING"), (False, "NODE_FAIL")])
def test_gateways_may_run_on_before_the_script_begins(requeue: bool, becomes: str, number: int) -> None:
    world = gateway_world(node_lost_after_s=600.0)
    job_id = prepared(world, requeue=requeue)
    addressed(world, job_id)
    world.deliver()
    assert number in world.attempt(job_id).held and world.state_of(job_id) == "LAUNCHING"
    world.send(HeartbeatDone(missing=(number,)))
    world.pass_time(700)
    world.deliver()
    assert world.state_of(job_id) == becomes


@pytest.mark.parametrize("requeue", [True, False])
def test_before_any_gateway_begins_nothing_of_the_job_runs_on(requeue: bool) -> None:
    world = World(nodes=2, node_lost_after_s=600.0)
    world.submit(requeue=requeue, request=Request(tasks=2, nodes_min=2, nodes_max=2))
    assert world.plan() == [1]
    number = world.attempt(1).first
    world.send(HeartbeatDone(missing=(number,)))
    world.pass_time(700)
    assert world.state_of(1) == "PENDING"
