"""Jobs with gateways as other jobs are: several parts, arrays, changes, restarts of the configuration."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.model.config import Partition
from eslurm.core.model.gateways import GatewayRequest
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import ConfigLoaded, CreateStep, JobRef, UpdateJob
from eslurm.core.model.parts import part_ids, user_parts
from eslurm.core.model.request import Request
from tests.kits.core import ALICE, SECOND, problem, refused
from tests.kits.gateways import MODULES, config, gateway_world, prepared, started, submit
from tests.kits.parts import parted
from tests.kits.parts import submit as submit_parts

BOTH = (Request(constraint="cluster"), Request(constraint="booster"))


def test_a_job_of_two_parts_has_its_gateways_behind_them() -> None:
    world = gateway_world()
    job_id = submit_parts(world, parted(*BOTH, gateway=GatewayRequest(1)))
    job = world.job(job_id)
    assert (user_parts(job.spec), list(part_ids(job))) == (2, [job_id + 1])
    assert world.submit() == job_id + 2
    assert job_id in world.plan()
    world.deliver()
    started(world, job_id)
    assert [span.component for span in world.attempt(job_id).spans] == [0, 1, 2]
    update = UpdateJob(ALICE, JobRef(job_id, part=2), nodes_min=2)
    assert "there is no part 2, name one from 0 to 1" in problem(world.send(update))


@pytest.mark.parametrize("component", [1, 2])
def test_no_step_of_the_user_runs_on_gateways(component: int) -> None:
    world = gateway_world()
    job_id = prepared(world)
    started(world, job_id)
    step = CreateStep(ALICE, job_id, 0, 0, ("x",), b"", "/", "h:1", b"", components=(component,))
    assert "has 1 part (0)" in refused(world.send(step))
    answer = world.send(replace(step, components=(0,)))
    assert [name for name, _ in answer.layout] == ["cn0", "cn1", "cn2"]  # type: ignore[union-attr]


def test_no_step_starts_before_the_gateways_do() -> None:
    world = gateway_world()
    job_id = prepared(world)
    step = CreateStep(ALICE, job_id, 0, 0, ("x",), b"", "/", "h:1", b"")
    assert "is still being prepared" in refused(world.send(step))


def test_tasks_of_an_array_have_gateways_each() -> None:
    world = gateway_world()
    array = submit(world, 1, tasks=((0, 1),), request=Request(tasks=1))
    placed = world.plan()
    assert len(placed) == 2 and array not in placed
    gateways = {world.attempt(job_id).nodes[-1] for job_id in placed}
    assert gateways == {3, 4}


def test_a_waiting_job_keeps_its_gateways_when_it_changes() -> None:
    world = gateway_world()
    job_id = submit(world)
    world.send(UpdateJob(ALICE, JobRef(job_id), nodes_min=2, nodes_max=2, time_limit_s=60, partition="main"))
    spec = world.job(job_id).spec
    assert (len(spec.components), spec.components[0].nodes_max, spec.time_limit_s) == (2, 2, 60)
    assert [(part.partition, part.role) for part in spec.parts] == [("main", ""), ("gateways", "gateway")]
    update = UpdateJob(ALICE, JobRef(job_id), constraint="booster", nodes_min=1, nodes_max=1)
    assert "--gateways: all nodes of the job are in the module booster" in problem(world.send(update))
    assert world.plan() == [job_id]


def test_gateways_that_leave_the_configuration_keep_the_job_waiting() -> None:
    world = gateway_world()
    waits = submit(world)
    without = replace(
        world.state.config,
        modules=MODULES[:2],
        nodes=tuple(replace(node, module="") for node in world.state.config.nodes),
        partitions=(Partition("main", ("cn0", "cn1", "cn2", "cn3", "cn4"), default=True),),
    )
    world.send(ConfigLoaded(without))
    assert world.plan() == []
    back = config()
    world.send(
        ConfigLoaded(
            replace(without, nodes=back["nodes_with"], partitions=back["partitions"], modules=MODULES)
        )
    )
    assert world.plan() == [waits]


def test_a_running_job_outlives_the_end_of_its_gateways_module() -> None:
    world = gateway_world()
    job_id = prepared(world)
    without = replace(world.state.config, modules=MODULES[:2], partitions=world.state.config.partitions[:1])
    world.send(ConfigLoaded(without))
    started(world, job_id)
    world.end(job_id)
    assert world.job(job_id).state is JobState.COMPLETED


def test_a_new_leader_hears_of_a_job_whose_gateways_start() -> None:
    """A node that says it holds nothing of the attempt has no daemon either: the job starts anew."""
    world = gateway_world()
    job_id = prepared(world)
    world.deliver()
    world.restart()
    attempt = world.job(job_id).attempt
    assert attempt is None or attempt.gateway is None
    for _ in range(3):
        world.deliver()
        world.pass_time(60)
    assert world.plan() == [job_id]
    world.deliver()
    started(world, job_id)
    world.end(job_id)
    assert world.job(job_id).state is JobState.COMPLETED


def test_the_time_limit_counts_from_the_start_of_the_script() -> None:
    world = gateway_world()
    job_id = prepared(world, time_limit_s=100)
    world.pass_time(50)
    started(world, job_id)
    attempt = world.attempt(job_id)
    assert attempt.until_us == attempt.started_us + 100 * SECOND
    assert attempt.started_us == attempt.placed_us + 50 * SECOND
