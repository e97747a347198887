"""Devices, licences, features and rules from submission to the end of the job, across restarts."""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.control.effects import job_launch
from eslurm.core.control.planning import plan_slices
from eslurm.core.model.config import NodeConfig, Partition, Resource
from eslurm.core.model.messages import ConfigLoaded, PlanMade, Refused
from eslurm.core.model.request import Chunk, Request
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.cycle.plan import PlanLimits
from tests.kits.core import World

RESOURCES = (Resource("gpu", devices=True), Resource("matlab", wide_total=3))
GPU = 2


def world() -> World:
    nodes = (
        NodeConfig("cn0", (4, 1000, 0), ("ib",)),
        NodeConfig("cn1", (4, 1000, 3), device_type="a100"),
        NodeConfig("cn2", (8, 1000, 2), ("ib",), cores_for_devices=2),
    )
    names = tuple(node.name for node in nodes)
    found = World(0)
    config = replace(
        found.state.config,
        nodes=nodes,
        partitions=(Partition("main", names, default=True),),
        resources=RESOURCES,
    )
    found.send(ConfigLoaded(config))
    for number in range(len(nodes)):
        found.register(number)
    return found


def devices(found: World, job_id: int) -> list[tuple[int, object]]:
    return [(span.node, span.devices) for span in found.attempt(job_id).spans]


def test_jobs_get_the_lowest_free_devices_and_give_them_back() -> None:
    found = world()
    first = found.submit(request=Request(per_node=(("gpu", 2),)))
    second = found.submit(request=Request(per_node=(("gpu", 1),), constraint="gpu:a100"))
    third = found.submit(request=Request(per_node=(("gpu", 1),)))
    found.start()
    # The third node has less of all devices than the second has: it is cheaper, so it comes first.
    assert devices(found, first) == [(2, ((GPU, (0, 1)),))]
    assert devices(found, second) == [(1, ((GPU, (0,)),))]
    assert devices(found, third) == [(1, ((GPU, (1,)),))]
    launch = job_launch(found.state, found.job(third), found.attempt(third))
    assert launch.devices == ((1, "gpu", (1,)),)
    found.end(first)
    fourth = found.submit(request=Request(per_task=(("gpu", 1),)))
    found.start()
    assert devices(found, fourth) == [(2, ((GPU, (0,)),))]
    found.restart()
    fifth = found.submit(request=Request(per_node=(("gpu", 1),)))
    found.start()
    assert devices(found, fifth) == [(2, ((GPU, (1,)),))]


def test_a_whole_node_comes_with_all_its_devices() -> None:
    found = world()
    job = found.submit(request=Request(exclusive=True, constraint="gpu:a100"))
    found.start()
    assert devices(found, job) == [(1, ((GPU, (0, 1, 2)),))]


def test_licences_are_held_while_the_job_is_and_no_longer() -> None:
    found = world()
    first = found.submit(request=Request(wide=(("matlab", 2),)))
    second = found.submit(request=Request(wide=(("matlab", 2),)))
    found.start()
    assert (found.state_of(first), found.state_of(second)) == ("RUNNING", "PENDING")
    assert found.state.ledger.wide_free == (1,)
    assert found.attempt(first).wide == (2,)
    found.restart()
    assert found.state.ledger.wide_free == (1,)
    found.end(first)
    assert found.state.ledger.wide_free == (3,)
    found.start()
    assert found.state_of(second) == "RUNNING"


def test_fewer_licences_than_jobs_hold_are_no_reason_not_to_start_others() -> None:
    found = world()
    first = found.submit(request=Request(wide=(("matlab", 3),)))
    found.start()
    fewer = (RESOURCES[0], Resource("matlab", wide_total=1))
    found.send(ConfigLoaded(replace(found.state.config, resources=fewer)))
    assert found.state.ledger.wide_free == (0,)
    second = found.submit(request=Request(wide=(("matlab", 1),)))
    third = found.submit()
    plan = exhaust(plan_slices(found.state, found.now_us, None, PlanLimits()))
    # Something has changed since: each placement is looked at again.
    found.submit()
    found.send(PlanMade(plan.placements, plan.generation))
    found.restart()
    states = [found.state_of(job) for job in (first, second, third)]
    assert (states[0], states[1], states[2] != "PENDING") == ("RUNNING", "PENDING", True)
    found.end(first)
    assert found.state.ledger.wide_free == (1,)
    assert second in found.plan()


def test_chunks_and_features_choose_nodes() -> None:
    found = world()
    job = found.submit(request=Request(tasks=3, chunks=(Chunk(1, 4), Chunk(2, 2, 0, (("gpu", 1),), "ib"))))
    found.start()
    assert [(span.node, span.amounts, span.tasks) for span in found.attempt(job).spans] == [
        (0, (4, 0, 0), 1),
        (2, (4, 0, 2), 2),
    ]


def test_resources_keep_their_order_while_jobs_hold_nodes() -> None:
    found = world()
    job = found.submit()
    found.start()
    config = found.state.config
    fewer = tuple(NodeConfig(node.name, node.total[:2]) for node in config.nodes)
    answer = found.send(ConfigLoaded(replace(config, nodes=fewer, resources=())))
    assert isinstance(answer, Refused)
    assert "jobs hold nodes while gpu become none" in answer.text
    counted = (Resource("gpu"), RESOURCES[1])
    answer = found.send(ConfigLoaded(replace(config, resources=counted)))
    assert isinstance(answer, Refused)
    assert "resource gpu: jobs hold nodes while devices = false is set" in answer.text
    more = (RESOURCES[0], Resource("disk"), RESOURCES[1])
    wider = tuple(NodeConfig(node.name, (*node.total, 50), node.features) for node in config.nodes)
    found.send(ConfigLoaded(replace(config, nodes=wider, resources=more)))
    assert found.state.ledger.free(0) == (3, 1000, 0, 50)
    found.end(job)
    found.send(ConfigLoaded(replace(config, nodes=fewer, resources=())))
    assert found.state.ledger.free(0) == (4, 1000)
