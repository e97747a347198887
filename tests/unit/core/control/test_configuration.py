"""A new configuration while jobs run: nodes and partitions that come, go and change."""

from __future__ import annotations

import msgspec

from eslurm.core.model.config import ClusterConfig, NodeConfig, Partition
from eslurm.core.model.messages import ConfigLoaded, HeartbeatDone, RefusalCode, Refused, SubmitJobs
from eslurm.core.model.node import Node
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.queue import Pending
from tests.kits.core import World, refused

WIDE = Request(tasks=12, nodes_min=3, nodes_max=3)


def wide_running(world: World, *, requeue: bool = True) -> int:
    job = world.submit(request=WIDE, requeue=requeue)
    world.start()
    assert world.state_of(job) == "RUNNING"
    return job


def node(world: World) -> Node:
    return world.state.nodes[0]


def queued(world: World, job: int) -> Pending:
    found = world.state.queue.find(job)
    assert found is not None
    return found


def with_nodes(world: World, *names: str, cores: int = 4) -> ConfigLoaded:
    config = msgspec.structs.replace(
        world.state.config,
        nodes=tuple(NodeConfig(name, (cores, 1000)) for name in names),
        partitions=(Partition("main", names, default=True),),
    )
    return ConfigLoaded(config)


def test_the_same_configuration_again_is_no_fact() -> None:
    world = World(nodes=2)
    since = len(world.log)
    world.send(ConfigLoaded(world.state.config))
    assert len(world.log) == since


def test_a_node_is_added_while_jobs_run() -> None:
    world = World(nodes=1)
    job = world.submit(request=Request(cpus_per_task=4))
    world.start()
    second = world.submit(request=Request(cpus_per_task=4))
    world.send(with_nodes(world, "cn0", "cn1"))
    world.register(1)
    assert world.start() == [second]
    assert [world.state_of(number) for number in (job, second)] == ["RUNNING", "RUNNING"]


def test_a_busy_node_that_is_removed_keeps_its_job_until_it_ends() -> None:
    """Also across a restart: the ledger must still know what is held there."""
    world = World(nodes=2)
    world.submit(request=Request(cpus_per_task=4))
    job = world.submit(request=Request(cpus_per_task=4))
    world.start()
    assert world.attempt(job).first == 1
    world.send(with_nodes(world, "cn0"))
    world.restart()
    assert world.state_of(job) == "RUNNING"
    third = world.submit()
    assert world.plan() == []
    world.end(job)
    assert world.plan() == [], "its node is free, but no longer configured"
    world.pass_time(11)
    assert world.state.numbers == {"cn0": 0} and not world.state.removed, "nothing is left of it"
    world.end(1)
    assert world.start() == [third]


def test_a_node_that_is_removed_early_is_still_named_by_its_job() -> None:
    world = World()
    job = wide_running(world)
    world.lose(2)
    world.send(with_nodes(world, "cn0", "cn1", "cn3"))
    assert world.state.node_names([2]) == ["cn2"]
    world.end(job)
    assert world.state_of(job) == "PENDING"
    world.send(with_nodes(world, "cn0", "cn3"))
    assert world.state.node_names([0, 2]) == ["cn0", "#2"]
    assert sorted(world.state.numbers) == ["cn0", "cn3"]


def test_numbers_of_removed_nodes_are_not_given_again() -> None:
    """A late message of the old node must not be taken for one of the new."""
    world = World(nodes=2)
    world.send(with_nodes(world, "cn0"))
    world.restart()
    world.send(with_nodes(world, "cn0", "cn7"))
    assert world.state.numbers == {"cn0": 0, "cn7": 2}


def test_a_node_cannot_shrink_below_what_its_jobs_hold() -> None:
    world = World(nodes=1, cores=4)
    world.submit(request=Request(cpus_per_task=3))
    world.start()
    answer = world.send(with_nodes(world, "cn0", cores=2))
    assert isinstance(answer, Refused) and answer.code is RefusalCode.CONFLICT
    assert "cn0" in answer.text and "(3, 0)" in answer.text
    world.send(with_nodes(world, "cn0", cores=3))
    world.end(1)
    world.send(with_nodes(world, "cn0", cores=2))
    assert "one task needs" in refused(world.try_submit(request=Request(cpus_per_task=3)))


def test_jobs_of_a_partition_that_is_gone_wait_and_disturb_nobody() -> None:
    both = (Partition("main", ("cn0",), default=True), Partition("old", ("cn0",)))
    world = World(nodes=1, partitions=both)
    moved = msgspec.structs.replace(world.job(world.submit()).spec, partition="old")
    world.cancel(1)
    world.send(SubmitJobs((moved,)))
    world.send(ConfigLoaded(msgspec.structs.replace(world.state.config, partitions=both[:1])))
    ours = world.submit()
    assert world.start() == [ours]
    world.restart()
    assert world.plan() == []
    assert world.state_of(2) == "PENDING"


def test_a_configuration_may_change_when_nodes_are_given_up() -> None:
    """Longer, and the node is not lost too soon nor kept for ever; shorter, and it is lost in time."""
    for before, after in ((600.0, 900.0), (900.0, 600.0)):
        world = World(nodes=1, node_lost_after_s=before)
        world.submit()
        world.start()
        world.send(HeartbeatDone(missing=(0,)))
        world.send(ConfigLoaded(msgspec.structs.replace(world.state.config, node_lost_after_s=after)))
        world.pass_time(after - 1)
        assert node(world).state is NodeState.UNREACHABLE
        world.pass_time(1)
        assert node(world).state is NodeState.LOST


def test_shorter_times_do_not_give_a_node_up_before_what_was_launched_there_is_dead() -> None:
    world = World(nodes=2, node_lost_after_s=600.0, orphan_timeout_s=300.0, kill_grace_s=30.0)
    world.submit(requeue=True)
    world.start()
    shorter = msgspec.structs.replace(
        world.state.config, node_lost_after_s=20.0, orphan_timeout_s=10.0, kill_grace_s=1.0
    )
    world.send(ConfigLoaded(shorter))
    world.restart()
    for number in (0, 1):
        world.register(number)
    world.send(HeartbeatDone(missing=(0, 1)))
    world.pass_time(21)
    assert world.state.nodes[1].state is NodeState.LOST, "nothing is there"
    # Its clock may run a tenth too fast.
    world.pass_time(330 * 1.1 - 21)
    assert node(world).state is NodeState.UNREACHABLE
    world.pass_time(330 * 0.1)
    assert node(world).state is NodeState.LOST


def test_the_first_configuration_already_says_when_nodes_are_given_up() -> None:
    world = World(nodes=1, register=False, node_lost_after_s=5.0)
    assert isinstance(world.state.config, ClusterConfig)
    assert world.state.timers[0][0] == world.now_us + 5_000_000


def test_with_fewer_nodes_a_failed_one_may_have_to_be_good_enough() -> None:
    world = World(nodes=4)
    job = world.submit()
    world.plan()
    (send,) = world.sends()
    world.done(send, "failed")
    world.pass_time(2)
    assert queued(world, job).avoid == {0}
    world.send(with_nodes(world, "cn0"))
    assert world.plan() == [job]
