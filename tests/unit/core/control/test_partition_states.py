"""States that operators give partitions: whether they take jobs, and whether they start them."""

from __future__ import annotations

import pytest

from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model.config import Partition
from eslurm.core.model.messages import Changed, JobRef, Refused, Submitted, UpdateJob, UpdatePartitions
from tests.kits.core import ALICE, ROOT, World, problem
from tests.unit.core.explain.test_alternatives import A100, site


@pytest.fixture
def world() -> World:
    nodes = A100
    return site(partitions=(Partition("main", nodes, default=True), Partition("off", nodes, up=False))).world


def put(world: World, state: str, *names: str) -> BatchAnswer:
    return world.send(UpdatePartitions(ROOT, names or ("main",), state))


@pytest.mark.parametrize(
    ("state", "takes", "starts"),
    [("UP", True, True), ("DOWN", True, False), ("DRAIN", False, True), ("INACTIVE", False, False)],
)
def test_what_a_partition_does(world: World, state: str, takes: bool, starts: bool) -> None:
    waiting = world.submit()
    assert put(world, state) == Changed(int(state != "UP"))
    answer = world.try_submit()
    assert isinstance(answer, Submitted) is takes
    if isinstance(answer, Refused):
        assert f"'main' is {state} and takes no jobs now" in answer.text
    # Of what waits a name may be changed in any state.
    assert world.send(UpdateJob(ALICE, JobRef(waiting), name="x")) == Changed(1)
    assert (waiting in world.plan()) is starts


def test_it_lasts_and_ends(world: World) -> None:
    waiting = world.submit()
    put(world, "INACTIVE")
    world.restart()
    assert waiting not in world.plan()
    assert put(world, "UP") == Changed(1)
    assert put(world, "UP") == Changed(0)
    assert waiting in world.plan()


def test_a_plan_made_before_starts_nothing(world: World) -> None:
    waiting = world.submit()
    plan = world.planned()
    put(world, "DOWN")
    world.batch(plan)
    assert world.state_of(waiting) == "PENDING"


def test_a_partition_that_is_configured_down_can_be_put_up(world: World) -> None:
    assert not world.state.partition_views["off"].up
    assert put(world, "UP", "off") == Changed(1)
    assert world.state.partition_views["off"].up


def test_a_job_is_not_moved_into_a_partition_that_takes_none(world: World) -> None:
    waiting = world.submit()
    put(world, "DRAIN", "off")
    answer = world.send(UpdateJob(ALICE, JobRef(waiting), partition="off"))
    assert "takes no jobs now" in problem(answer)


def test_operators_alone_name_states_and_partitions(world: World) -> None:
    for by, state, why in ((ALICE, "DOWN", "no operator"), (ROOT, "LOST", "is no state: use one of")):
        answer = world.send(UpdatePartitions(by, ("main",), state))
        assert isinstance(answer, Refused)
        assert why in answer.text
    assert "'nosuch' does not exist: there are main, off" in problem(put(world, "DOWN", "nosuch"))
