"""A configuration that is read again while a controller leads: what changes at once, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from eslurm.core.control import config_changes
from eslurm.core.model import facts
from eslurm.core.model.config import ClusterConfig, NodeConfig, Partition, PriorityWeights, Resource, Switch
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import (
    Changed,
    ConfigLoaded,
    HeartbeatDone,
    Reconfigure,
    RefusalCode,
    Refused,
    SubmitJobs,
    UpdateNodes,
    UpdatePartitions,
)
from eslurm.core.model.request import Request
from tests.kits.core import World, refused

ROOT = Principal("root", 0, 0)
WHOLE = Request(cpus_per_task=4)
ONE, OTHER, THIRD = b"1" * 16, b"2" * 16, b"3" * 16


def config_of(world: World, *names: str, cores: int = 4, **changes: Any) -> ClusterConfig:
    """The world's configuration with these nodes, all of them in `main`."""
    nodes = tuple(NodeConfig(name, (cores, 1000)) for name in names)
    partitions = (Partition("main", names, default=True),)
    return replace(world.state.config, nodes=nodes, partitions=partitions, **changes)


def reread(world: World, config: ClusterConfig, digest: bytes = b"", **how: Any) -> Changed:
    answer = world.send(Reconfigure(ROOT, config, digest, **how))
    assert isinstance(answer, Changed), answer
    return answer


def problems(answer: Changed) -> dict[str, str]:
    assert answer.count == 0 and not answer.notes
    assert all(one.code is RefusalCode.CONFLICT for one in answer.problems)
    return {one.what: one.text for one in answer.problems}


def drain(world: World, name: str) -> None:
    world.send(UpdateNodes(ROOT, (name,), "drain", "removed"))


def test_what_is_the_same_is_no_change_and_no_fact() -> None:
    world = World(nodes=2)
    before = len(world.log)
    assert reread(world, world.state.config) == Changed(0)
    assert len(world.log) == before


def test_a_node_comes_is_worked_on_and_survives_a_restart() -> None:
    world = World(nodes=1)
    world.submit(request=WHOLE)
    world.start()
    second = world.submit(request=WHOLE)
    answer = reread(world, config_of(world, "cn0", "cn1"))
    assert answer.notes == ("node cn1: added", "partition main: nodes added: cn1") and answer.count == 2
    world.register(1)
    assert world.start() == [second]
    world.restart()
    assert world.state_of(second) == "RUNNING" and world.state.numbers == {"cn0": 0, "cn1": 1}


def test_a_trial_changes_nothing() -> None:
    world = World(nodes=1)
    before = len(world.log)
    answer = reread(world, config_of(world, "cn0", "cn1"), is_trial=True)
    assert answer.count == 0 and answer.notes[0] == "node cn1: added"
    assert len(world.log) == before and "cn1" not in world.state.numbers


@pytest.mark.parametrize("who", [Principal("ann", 1000, 1000), Principal("op", 7, 7)])
def test_only_administrators_change_it(who: Principal) -> None:
    world = World(nodes=1, operators=(0, 7), administrators=(0,))
    answer = world.send(Reconfigure(who, config_of(world, "cn0", "cn1")))
    assert isinstance(answer, Refused) and answer.code is RefusalCode.DENIED
    assert "is no administrator" in answer.text and "cn1" not in world.state.numbers


def test_a_node_goes_when_it_is_drained_and_empty() -> None:
    world = World(nodes=2)
    world.submit(request=WHOLE)
    job = world.submit(request=WHOLE)
    world.start()
    assert world.attempt(job).first == 1
    drain(world, "cn1")
    found = problems(reread(world, config_of(world, "cn0")))
    assert found == {"node cn1": f"job {job} is on it: drain it, and remove it when they have ended"}
    world.end(job)
    assert reread(world, config_of(world, "cn0")).notes == (
        "node cn1: removed",
        "partition main: nodes removed: cn1",
    )
    assert world.state.numbers == {"cn0": 0} and not world.state.removed
    world.restart()
    assert reread(world, config_of(world, "cn0", "cn1")).count == 2
    assert world.state.numbers == {"cn0": 0, "cn1": 2}, "it is another node of that name"


def test_a_node_that_a_running_job_has_given_back_stays_until_its_end() -> None:
    world = World(nodes=3)
    job = world.submit(request=Request(tasks=12, nodes_min=3, nodes_max=3), requeue=True)
    world.start()
    world.lose(2)
    found = problems(reread(world, config_of(world, "cn0", "cn1")))
    assert found == {"node cn2": f"job {job} is on it: drain it, and remove it when they have ended"}


def test_a_node_that_takes_work_does_not_go() -> None:
    world = World(nodes=3)
    found = problems(reread(world, config_of(world, "cn0")))
    assert set(found) == {"node cn1", "node cn2"}
    assert found["node cn1"] == "takes work: drain it first (esctl drain cn1 reason=removed)"
    assert len(world.state.numbers) == 3
    world.lose(2)
    drain(world, "cn1")
    assert reread(world, config_of(world, "cn0")).count == 2
    assert world.state.numbers == {"cn0": 0}


def test_the_agent_of_a_removed_node_is_not_taken_back() -> None:
    world = World(nodes=2)
    job = world.submit(request=Request(tasks=5, nodes_min=2))
    world.start()
    world.send(ConfigLoaded(config_of(world, "cn0")))
    assert world.state.removed == {1}
    assert not world.register(1, *world.inventory(1)).refused, "its job is there"
    world.end(job)
    assert "cn1 is not in the configuration" in world.register(1, session="later").refused


def test_a_late_heartbeat_of_a_removed_node_is_nothing() -> None:
    world = World(nodes=2)
    drain(world, "cn1")
    reread(world, config_of(world, "cn0"))
    before = len(world.log)
    world.send(HeartbeatDone(back=(1,), missing=(1,), ahead=((1, 5),), in_date=(1,)))
    assert len(world.log) == before


def test_a_node_is_resized_when_it_is_empty() -> None:
    world = World(nodes=2)
    job = world.submit()
    world.start()
    found = problems(reread(world, config_of(world, "cn0", "cn1", cores=2)))
    assert found == {"node cn0": f"job {job} is on it: drain it, and change it when they have ended"}
    world.end(job)
    answer = reread(world, config_of(world, "cn0", "cn1", cores=2))
    assert answer.notes == ("node cn[0-1]: cores 4 -> 2",)
    assert "one task needs" in refused(world.try_submit(request=Request(cpus_per_task=3)))


def test_a_node_that_is_to_be_more_than_its_agent_offered_takes_no_work() -> None:
    world = World(nodes=2, cores=4)
    offered = world.state.nodes[0].offered
    assert reread(world, config_of(world, "cn0", "cn1", cores=offered[0])).count
    assert not world.state.nodes[0].drain
    reread(world, config_of(world, "cn0", "cn1", cores=offered[0] + 1))
    assert world.state.nodes[0].drain
    assert world.state.nodes[0].reason == f"offers {offered}, configured are ({offered[0] + 1}, 1000)"
    assert world.plan() == []


def test_features_weights_and_further_resources_change_under_running_jobs() -> None:
    world = World(nodes=2)
    world.submit()
    world.start()
    config = world.state.config
    first = replace(config.nodes[0], features=("ib",), weight=3, total=(4, 1000, 0))
    nodes = (first, replace(config.nodes[1], total=(4, 1000, 0)))
    answer = reread(world, replace(config, nodes=nodes, resources=(Resource("disk"),)))
    assert answer.notes == ("node cn0: features none -> ib, weight 0 -> 3", "resource disk: added")
    assert world.state.jobs_on[0]


def test_resources_of_held_nodes_do_not_change_their_order() -> None:
    world = World(nodes=1, resources=(Resource("disk"),))
    world.submit()
    world.start()
    config = replace(world.state.config, resources=(Resource("tape"), Resource("disk")))
    answer = world.send(Reconfigure(ROOT, config))
    assert isinstance(answer, Refused) and answer.code is RefusalCode.CONFLICT and "disk" in answer.text


def test_partitions_come_change_and_go() -> None:
    world = World(nodes=2)
    main = world.state.config.partitions[0]
    both = (replace(main, time_limit_max_s=60, up=False), Partition("debug", ("cn1",), priority=3))
    answer = reread(world, replace(world.state.config, partitions=both))
    assert answer.notes == (
        "partition debug: added",
        f"partition {main.name}: up true -> false, time_limit_max_s 0 -> 60",
    )
    job = world.submit()
    assert world.plan() == []
    moved = replace(world.job(job).spec, partition="debug")
    world.cancel(job)
    world.send(SubmitJobs((moved,)))
    found = problems(reread(world, replace(world.state.config, partitions=both[:1])))
    assert found == {
        "partition debug": f"job {job + 1} is in it: set up = false, move or end them, then remove it"
    }
    world.start()
    assert (
        "job" in problems(reread(world, replace(world.state.config, partitions=both[:1])))["partition debug"]
    )
    world.end(job + 1)
    assert reread(world, replace(world.state.config, partitions=both[:1])).notes == (
        "partition debug: removed",
    )
    assert "debug" not in world.state.partitions


def test_a_partition_that_comes_again_is_as_the_file_says() -> None:
    world = World(nodes=2)
    alone = world.state.config
    both = replace(alone, partitions=(*alone.partitions, Partition("debug", ("cn1",))))
    reread(world, both)
    world.send(UpdatePartitions(ROOT, ("debug",), "DRAIN"))
    world.restart()
    assert world.state.partition_states == {"debug": "DRAIN"}
    reread(world, alone)
    reread(world, both)
    assert not world.state.partition_states


def test_either_all_of_it_comes_into_force_or_nothing() -> None:
    world = World(nodes=2)
    world.submit()
    world.start()
    before = world.state.config
    found = problems(reread(world, config_of(world, "cn1", "cn2", requeue_delay_s=9.0)))
    assert set(found) == {"node cn0"} and world.state.config is before


def test_a_host_changes_its_role_in_two_steps() -> None:
    world = World(nodes=2)
    drain(world, "cn1")
    found = problems(reread(world, config_of(world, "cn0", login_nodes=("cn1",))))
    assert found["node cn1"].startswith("becomes a login host")
    reread(world, config_of(world, "cn0"))
    answer = reread(world, config_of(world, "cn0", login_nodes=("cn1",)))
    assert answer.notes == ("login host cn1: added",)
    found = problems(reread(world, config_of(world, "cn0", "cn1", login_nodes=())))
    assert found["node cn1"].startswith("is a login host")


def test_a_resource_that_is_billed_stays_until_a_restart() -> None:
    weights = PriorityWeights(billing=(("cores", 1.0), ("disk", 2.0)))
    world = World(nodes=1, resources=(Resource("disk"),), priority=weights)
    found = problems(reread(world, replace(world.state.config, resources=())))
    assert "priority.billing" in found["resource disk"]


def test_numbers_of_the_policy_change_and_other_keys_do_not() -> None:
    world = World(nodes=1)
    read = replace(world.state.config, requeue_delay_s=7.5, policy="fcfs", heartbeat_s=1.0, private=("jobs",))
    assert reread(world, read).notes == ("policy.requeue_delay_s: 1 -> 7.5",)
    now = world.state.config
    assert (now.policy, now.heartbeat_s, now.private) != ("fcfs", 1.0, ("jobs",))


def test_switches_and_the_order_of_nodes_are_told() -> None:
    world = World(nodes=2)
    config = config_of(world, "cn1", "cn0", switches=(Switch("leaf", ("cn0", "cn1")),))
    assert reread(world, config).notes == (
        "nodes: in another order",
        "partition main: nodes in another order",
        "switch leaf: added",
    )
    assert world.state.numbers == {"cn0": 0, "cn1": 1}


def test_a_takeover_does_not_bring_back_a_file_that_was_replaced() -> None:
    world = World(nodes=1)
    first = world.state.config
    world.send(ConfigLoaded(first, ONE))
    assert world.state.config_digests == (ONE,)
    second = config_of(world, "cn0", "cn1")
    reread(world, second, OTHER)
    world.restart()
    answer = world.send(ConfigLoaded(first, ONE, is_takeover=True))
    assert isinstance(answer, Refused) and "older than the configuration in force" in answer.text
    assert world.state.config == second
    # Of a file that was never in force nothing is known: it is a newer one.
    third = config_of(world, "cn0", "cn1", "cn2")
    assert world.send(ConfigLoaded(third, THIRD, is_takeover=True)) is None
    assert world.state.config_digests == (ONE, OTHER, THIRD)
    # An administrator who starts a controller, or has it read the file, means what the file says.
    assert world.send(ConfigLoaded(second, OTHER)) is None
    assert world.state.config == second and world.state.config_digests == (ONE, THIRD, OTHER)


def test_a_file_of_which_nothing_is_live_is_remembered_all_the_same() -> None:
    world = World(nodes=1)
    world.send(ConfigLoaded(world.state.config, ONE))
    read = replace(world.state.config, heartbeat_s=1.0)
    assert reread(world, read, OTHER) == Changed(0)
    assert world.state.config_digests == (ONE, OTHER) and world.state.config.heartbeat_s != 1.0
    assert isinstance(world.send(ConfigLoaded(world.state.config, ONE, is_takeover=True)), Refused)
    assert world.send(ConfigLoaded(read, OTHER, is_takeover=True)) is None
    assert world.state.config.heartbeat_s == 1.0


def test_the_digests_and_the_problems_are_bounded() -> None:
    world = World(nodes=150)
    for number in range(100):
        reread(world, world.state.config, number.to_bytes(16))
    assert len(world.state.config_digests) == 64
    answer = reread(world, config_of(world, "cn0"))
    assert len(answer.problems) == 101 and answer.problems[-1].text == "and 49 more problems"
    names = tuple(f"{chr(97 + number % 26)}{'x' * number}" for number in range(300))
    lines = config_changes.change_lines(ClusterConfig("c"), replace(ClusterConfig("c"), login_nodes=names))
    assert len(lines) == 1 and len(lines[0]) < 500 and "300 in all" in lines[0]
    many = tuple(Partition(f"p{number}", ()) for number in range(500))
    lines = config_changes.change_lines(ClusterConfig("c"), ClusterConfig("c", partitions=many))
    assert len(lines) == config_changes.LINES_MAX and lines[-1] == "and 301 more changes"


def test_a_log_with_reconfigurations_is_read_again() -> None:
    world = World(nodes=2)
    reread(world, config_of(world, "cn0", "cn1", "cn2"), ONE)
    [accepted] = [one for one in world.log if isinstance(one, facts.ConfigAccepted) and one.digest]
    assert accepted.numbers == (("cn2", 2),) and accepted.digest == ONE
    world.restart()
    assert world.state.config_digests == (ONE,)
