"""Sessions of one node: a late word of an older one is not believed, and none is locked out for good."""

from __future__ import annotations

import msgspec

from eslurm.core.control.nodes import SUPERSEDED
from eslurm.core.model.messages import EpochStarted
from eslurm.core.model.node import Node
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.protocol import HeldAttempt, Registration
from tests.kits.core import World


def node(world: World) -> Node:
    return world.state.nodes[0]


def test_a_late_copy_of_an_older_registration_is_not_believed() -> None:
    """Its inventory is from before the job came: believing it would run the job twice."""
    world = World(nodes=1)
    world.register(0, session="s2")
    job = world.submit()
    world.start()
    since = len(world.log)
    assert "later registration" in world.register(0, session="s1").refused
    assert len(world.log) == since
    assert world.state_of(job) == "RUNNING"


def test_an_older_session_is_not_believed_in_a_later_epoch_either() -> None:
    """It may have offered itself under that epoch before its successor did, and be late."""
    world = World(nodes=1)
    for number in range(20):
        world.register(0, session=f"again{number}")
    assert len(node(world).sessions_past) == 8
    world.send(EpochStarted(2))
    assert "later registration" in world.register(0, session="again18").refused
    assert world.register(0, session="again19").refused == ""
    assert "later registration" in world.register(0, session="again18").refused


def counted(starts: int, epoch: int = 1, uid: str = "uid-cn0", *held: HeldAttempt) -> Registration:
    return Registration("cn0", uid, "b1", f"counted{starts}", epoch, "host:1", (64, 64_000), held, starts)


def offer(world: World, registration: Registration) -> str:
    """Why it was refused, or nothing."""
    acks = world.report(registration)
    assert isinstance(acks, tuple)
    return acks[0].registrations[0].refused


def test_a_late_registration_of_a_dead_session_that_was_never_accepted_is_refused() -> None:
    """Its inventory is from before the job came: believing it would run the job twice."""
    world = World(nodes=1, register=False)
    assert offer(world, counted(5)) == ""
    world.delivery.on_registered(0, world.now_us)
    job = world.submit()
    assert world.start() == [job]
    since = len(world.log)
    assert offer(world, counted(4)) == SUPERSEDED
    assert len(world.log) == since and node(world).incarnation == 1
    assert world.state_of(job) == "RUNNING"
    world.send(EpochStarted(2))
    assert offer(world, counted(4, 2)) == SUPERSEDED, "a new epoch makes it no younger"
    assert node(world).state is NodeState.UNKNOWN and world.state_of(job) == "RUNNING"
    assert offer(world, counted(5, 2, "uid-cn0", HeldAttempt(job, 1, "running"))) == ""
    assert world.state_of(job) == "RUNNING"


def test_the_highest_count_of_sessions_stays_whoever_else_offers_the_node() -> None:
    world = World(nodes=1, register=False)
    for registration in (counted(5), counted(0), counted(6)):
        assert offer(world, registration) == "", "an agent that does not count is served like any other"
    assert node(world).starts == 6
    assert offer(world, counted(0)) == SUPERSEDED, "its session is known to be over"
    assert offer(world, counted(5)) == SUPERSEDED


def test_another_individual_counts_its_own_sessions() -> None:
    world = World(nodes=1, register=False)
    assert offer(world, counted(9)) == ""
    world.lose(0)
    fresh = msgspec.structs.replace(counted(1), node_uid="other")
    assert offer(world, fresh) == ""
    assert node(world).starts == 1


def test_an_older_spool_is_let_in_once_its_node_was_declared_lost() -> None:
    """A host that was restored from a copy, its spool too, has forgotten how often it was started."""
    world = World(nodes=1, register=False)
    assert offer(world, counted(9)) == ""
    world.delivery.on_registered(0, world.now_us)
    job = world.submit()
    assert world.start() == [job]
    assert offer(world, counted(4)) == SUPERSEDED and world.state_of(job) == "RUNNING"
    world.lose(0)
    assert offer(world, counted(5)) == ""
    assert node(world).state is NodeState.UP and node(world).incarnation == 2


def test_what_was_let_in_stays_under_the_next_controller_and_at_its_next_start() -> None:
    world = World(nodes=1, register=False)
    assert offer(world, counted(9)) == ""
    world.lose(0)
    assert offer(world, counted(5)) == "" and node(world).starts == 5
    world.send(EpochStarted(2))
    assert offer(world, counted(5, 2)) == ""
    assert offer(world, counted(6, 2)) == ""
    assert offer(world, counted(5, 2)) == SUPERSEDED
