"""Login hosts: nodes to the cluster's links and calls, and nothing to its jobs."""

from __future__ import annotations

import msgspec
import pytest

from eslurm.core.model.config import ClusterConfig, NodeConfig, Partition
from eslurm.core.model.job import ATTESTED, Principal
from eslurm.core.model.messages import (
    ChangePolicies,
    ConfigLoaded,
    HeartbeatDone,
    HoldJobs,
    JobRef,
    UpdateNodes,
)
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.protocol import Registration, RegistrationReply
from eslurm.core.model.request import Request
from tests.kits.core import ALICE, ROOT, World, problem, refused

LOGIN = 1


def with_login(world: World, *names: str, nodes: tuple[str, ...] = ("cn0",)) -> ConfigLoaded:
    config = msgspec.structs.replace(
        world.state.config,
        nodes=tuple(NodeConfig(name, (4, 1000)) for name in nodes),
        partitions=(Partition("main", nodes, default=True),),
        login_nodes=names,
    )
    return ConfigLoaded(config)


def login_world() -> World:
    """One node, cn0, and one login host, whose number is 1."""
    world = World(nodes=1)
    world.send(with_login(world, "login1"))
    return world


def offer(
    world: World, name: str = "login1", *, login: bool = True, session: str = "s1"
) -> RegistrationReply:
    registration = Registration(
        name, f"uid-{name}", "b1", session, world.state.epoch, "host:2", (0, 0), login=login
    )
    answer = world.report(registration)
    assert isinstance(answer, tuple)
    reply: RegistrationReply = answer[0].registrations[0]
    return reply


def test_it_registers_and_is_missed_as_a_node_is() -> None:
    world = login_world()
    reply = offer(world)
    assert (reply.number, reply.refused, reply.login) == (LOGIN, "", True)
    login = world.state.nodes[LOGIN]
    assert (login.state, login.total, login.endpoint, login.drain) == (NodeState.UP, (0, 0), "host:2", False)
    assert world.register(0).login is False
    world.send(HeartbeatDone(missing=(LOGIN,)))
    assert world.state.nodes[LOGIN].state is NodeState.UNREACHABLE
    world.send(HeartbeatDone(back=(LOGIN,)))
    assert world.state.nodes[LOGIN].state is NodeState.UP


def test_no_job_comes_there_and_it_counts_for_nothing() -> None:
    world = login_world()
    offer(world)
    jobs = [world.submit(request=Request(cpus_per_task=4)) for _ in range(2)]
    assert world.start() == jobs[:1]
    assert LOGIN not in world.state.ledger.topology.positions
    wide = world.try_submit(request=Request(nodes_min=2, nodes_max=2))
    assert "nodes" in refused(wide)
    named = world.try_submit(request=Request(include=("login1",)))
    assert "login1" in refused(named)


@pytest.mark.parametrize(
    ("name", "login", "way_out"),
    [
        ("cn0", True, "start its esnoded without --login, or name it in [login] nodes"),
        ("login1", False, "start its esnoded with --login (one of an older release has to be updated)"),
    ],
)
def test_an_agent_has_to_be_what_the_configuration_says(name: str, login: bool, way_out: str) -> None:
    world = login_world()
    since = len(world.log)
    reply = offer(world, name, login=login, session="s9")
    assert reply.number == -1 and reply.refused.endswith(way_out)
    assert len(world.log) == since


def test_a_node_becomes_one_when_its_jobs_have_ended_and_a_node_again() -> None:
    world = World(nodes=2)
    jobs = [world.submit(request=Request(cpus_per_task=4)) for _ in range(2)]
    world.start()
    assert world.attempt(jobs[1]).first == 1
    refusal = refused(world.send(with_login(world, "cn1")))
    assert refusal.startswith("login.nodes: cn1 is a node that jobs are on: drain it")
    world.send(UpdateNodes(ROOT, ("cn1",), "drain", "becomes a login host"))
    world.end(jobs[1])
    world.send(with_login(world, "cn1"))
    node = world.state.nodes[1]
    assert (node.number, node.total, node.drain, node.reason) == (1, (0, 0), False, "")
    assert offer(world, "cn1", session="s2").login
    third = world.submit(request=Request(cpus_per_task=4))
    assert world.start() == []
    world.send(with_login(world, nodes=("cn0", "cn1")))
    world.register(1, session="s3")
    assert world.start() == [third]


def test_it_outlives_a_restart_and_leaves_with_its_line() -> None:
    world = login_world()
    offer(world)
    world.restart(register=False)
    assert world.state.login == {LOGIN}
    assert world.state.nodes[LOGIN].state is NodeState.UNKNOWN
    assert offer(world, session="s2").refused == ""
    world.send(with_login(world))
    assert world.state.login == frozenset() and LOGIN not in world.state.nodes
    assert "is not in the configuration" in offer(world, session="s3").refused
    world.send(with_login(world, "login1", "login2"))
    assert world.state.login == {2, 3}, "no number is given twice"


def test_it_is_not_drained() -> None:
    world = login_world()
    answer = world.send(UpdateNodes(ROOT, ("login1",), "drain", "tired"))
    assert problem(answer) == "login1 is a login host, where no job runs: to close it, stop its esnoded"
    assert not world.state.nodes[LOGIN].drain


@pytest.mark.parametrize("via", sorted(ATTESTED))
def test_an_operator_is_a_user_there(via: str) -> None:
    world = login_world()
    job = world.submit(held=True)
    root = Principal("root", 0, 0, via=via)
    assert "belongs to alice" in problem(world.hold(job, by=root, release=True))
    assert "is no operator" in refused(world.send(UpdateNodes(root, ("cn0",), "drain", "x")))
    assert "neither an operator" in refused(world.send(ChangePolicies(root, ())))
    alice = msgspec.structs.replace(ALICE, via=via)
    world.send(HoldJobs(alice, (JobRef(job),), True))
    assert world.start() == [job]


def test_a_configuration_of_before_names_none() -> None:
    old = msgspec.msgpack.encode(msgspec.structs.astuple(ClusterConfig("test"))[:-1])
    assert msgspec.msgpack.decode(old, type=ClusterConfig).login_nodes == ()
