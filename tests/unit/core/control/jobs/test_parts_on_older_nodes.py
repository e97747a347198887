"""Agents of an earlier release start no job of several parts: such a job is planned and placed on other nodes only."""

from __future__ import annotations

import pytest

from eslurm.core.model.messages import PlanMade
from eslurm.core.model.placement import Placement
from eslurm.core.model.request import Request
from eslurm.core.resources.timeline import INFINITY_US
from tests.kits.asking import HOUR, Site
from tests.kits.core import World
from tests.kits.parts import parted, span, submit

LARGE = Request(cpus_per_task=3)
"""Two of them do not fit one node."""


def older(world: World, *numbers: int) -> None:
    for number in numbers:
        world.register(number, *world.inventory(number), session="older", protocol=0)


def nodes_of(world: World, job_id: int) -> list[int]:
    attempt = world.job(job_id).attempt
    return [] if attempt is None else attempt.nodes


def planned_on(here: Site, job_id: int) -> list[int]:
    return [one.node for booking in here.schedule.bookings[job_id] for one in booking.spans]


@pytest.mark.parametrize("policy", ["easy", "planned"])
def test_only_jobs_of_several_parts_leave_them_out(policy: str) -> None:
    here = Site(World(nodes=4, restarts=False, policy=policy))
    world = here.world
    older(world, 0, 2)
    several = submit(world, parted(LARGE, LARGE, time_limit_s=HOUR))
    here.run()
    plain = world.submit(request=Request(tasks=2, cpus_per_task=4), time_limit_s=HOUR)
    here.run()
    assert nodes_of(world, several) == [1, 3]
    assert nodes_of(world, plain) == [0, 2]


@pytest.mark.parametrize("policy", ["easy", "fcfs", "planned"])
def test_a_job_that_waits_for_them_starts_when_they_are_updated(policy: str) -> None:
    here = Site(World(nodes=2, restarts=False, policy=policy))
    world = here.world
    older(world, 1)
    several = submit(world, parted(LARGE, LARGE, time_limit_s=HOUR))
    here.run()
    assert world.state_of(several) == "PENDING"
    reasons = [one.text for one in here.why(several).reasons]
    assert any(text.startswith("1 node has an older agent") for text in reasons), reasons
    world.register(1, session="new")
    here.run()
    assert nodes_of(world, several) == [0, 1]


def test_a_plan_leaves_a_node_whose_agent_is_replaced_by_an_older_one() -> None:
    here = Site(World(nodes=3, restarts=False, policy="planned"))
    world = here.world
    first = world.submit(request=Request(nodes_min=3, nodes_max=3, exclusive=True), time_limit_s=HOUR)
    here.run()
    several = submit(world, parted(LARGE, LARGE, time_limit_s=HOUR))
    plain = world.submit(request=Request(cpus_per_task=4), time_limit_s=HOUR)
    here.run()
    assert [planned_on(here, job) for job in (several, plain)] == [[0, 1], [2]]
    older(world, 0)
    here.run()
    assert planned_on(here, several) == [1, 2]
    world.end(first)
    here.run()
    assert nodes_of(world, several) == [1, 2] and nodes_of(world, plain) == [0]


def test_a_placement_on_one_of_them_is_dropped() -> None:
    """Its plan began before the node registered with an older agent."""
    world = World(nodes=2)
    job = submit(world, parted(LARGE, LARGE))
    generation = world.state.generation
    older(world, 1)
    placement = Placement(job, (span(0, 3), span(1, 3, 1)), INFINITY_US)
    world.send(PlanMade((placement,), generation))
    assert world.job(job).attempt is None
    one_part = world.submit(request=Request(cpus_per_task=4))
    world.send(PlanMade((Placement(one_part, (span(1, 4),), INFINITY_US),), generation))
    assert world.job(one_part).attempt is not None
