"""Two parts of one job on one node: one launch, one hold with the sum of both, one release."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.control.effects import job_launch
from eslurm.core.model.accounts import Qos
from eslurm.core.model.config import NodeConfig, Resource
from eslurm.core.model.job import Attempt, Span
from eslurm.core.model.job_states import AttemptPhase
from eslurm.core.model.messages import ChangePolicies, CreateStep, PlanMade, PolicyChange, Preemption
from eslurm.core.model.protocol import End, Prepare, Start
from eslurm.core.model.request import Request
from eslurm.core.resources.shares import by_node, fits_together
from eslurm.core.state import invariants
from eslurm.core.state.queue_entries import running_of
from tests.kits.core import ALICE, ROOT, World, refused
from tests.kits.parts import parted, place, span, submit

ONE = Request()
TWO_PARTS = (span(0, 2), span(0, 1, 1))
SHARED = (span(0, 2), span(1, 2), span(1, 1, 1), span(2, 3, 1))
"""Node 1 has both parts."""


def started(*spans: Span, nodes: int = 3) -> tuple[World, int]:
    world = World(nodes=nodes)
    parts = spans[-1].component + 1
    job_id = submit(world, parted(*[ONE] * parts))
    assert place(world, job_id, *spans) is not None
    for _ in range(2):
        world.deliver()
    assert world.state_of(job_id) == "RUNNING"
    return world, job_id


@pytest.mark.parametrize(
    ("spans", "has_parts", "is_on_one_node", "nodes"),
    [
        ((span(3, 1),), False, True, [3]),
        ((span(3, 1), span(1, 1)), False, False, [3, 1]),
        ((span(3, 1), span(3, 1, 1)), True, True, [3]),
        ((span(3, 1), span(1, 1, 1)), True, False, [3, 1]),
        ((span(3, 1), span(1, 1), span(3, 1, 1), span(0, 1, 2)), True, False, [3, 1, 0]),
    ],
)
def test_an_attempt_counts_nodes_not_spans(
    spans: tuple[Span, ...], has_parts: bool, is_on_one_node: bool, nodes: list[int]
) -> None:
    attempt = Attempt(1, AttemptPhase.RUNNING, spans, 0, 0, 0, frozenset())
    assert (attempt.has_parts, attempt.is_on_one_node, attempt.nodes) == (has_parts, is_on_one_node, nodes)


def test_amounts_of_one_node_are_added_up() -> None:
    assert by_node(SHARED) == [(0, (2, 0)), (1, (3, 0)), (2, (3, 0))]
    assert by_node([span(4, 1, 0, 7), span(4, 2, 1)]) == [(4, (3, 0, 7))]
    assert by_node(()) == []


def test_what_fits_singly_does_not_fit_together() -> None:
    ledger = World(nodes=2).state.ledger
    assert fits_together(ledger, [span(0, 3), span(0, 1, 1)])
    assert fits_together(ledger, [span(0, 3), span(1, 3, 1)])
    assert not fits_together(ledger, [span(0, 3), span(0, 2, 1)])
    assert not fits_together(ledger, [span(0, 3), span(9, 1, 1)])


def test_a_job_on_one_node_starts_with_one_command() -> None:
    """Goal: two parts on one node are a job of one node: prepared and started at once, released by its end."""
    world = World(nodes=2)
    job_id = submit(world, parted(ONE, Request(cpus_per_task=3)))
    assert place(world, job_id, *TWO_PARTS) is not None
    (send,) = world.deliver()
    assert isinstance(send.body, Prepare) and send.body.start and send.nodes == (0,)
    assert [(group.runs, group.component) for group in send.body.launch.groups] == [
        (((0, 1),), 0),
        (((0, 1),), 1),
    ]
    assert send.body.launch.node_names == "cn0"
    assert send.body.launch.spec.components == (Request(), Request(cpus_per_task=3))
    assert world.state_of(job_id) == "RUNNING" and world.state.ledger.free(0) == (1, 1000)
    world.end(job_id)
    assert world.state_of(job_id) == "COMPLETED" and world.state.ledger.free(0) == (4, 1000)


def test_each_node_gets_one_command_for_all_its_parts() -> None:
    world = World(nodes=3)
    job_id = submit(world, parted(ONE, ONE))
    place(world, job_id, *SHARED)
    (prepare,) = world.deliver()
    assert isinstance(prepare.body, Prepare) and not prepare.body.start and prepare.nodes == (0, 1, 2)
    (start,) = world.deliver()
    assert isinstance(start.body, Start) and start.nodes == (0,)
    launch = start.body.launch
    assert launch is not None and launch.node_names == "cn[0-2]"
    assert [(group.runs, group.amounts, group.component) for group in launch.groups] == [
        (((0, 2),), (2, 0), 0),
        (((1, 1),), (1, 0), 1),
        (((2, 1),), (3, 0), 1),
    ]
    assert [world.state.ledger.free(node)[0] for node in range(3)] == [2, 1, 1]
    world.end(job_id)
    assert world.state_of(job_id) == "COMPLETED"
    assert all(world.state.ledger.free(node)[0] == 4 for node in range(3))


def test_alike_groups_of_two_parts_stay_apart() -> None:
    world, job_id = started(span(0, 2), span(1, 2, 1))
    launch = job_launch(world.state, world.job(job_id), world.attempt(job_id))
    assert [(group.runs, group.component) for group in launch.groups] == [(((0, 1),), 0), (((1, 1),), 1)]


def test_other_nodes_are_ended_once() -> None:
    world, job_id = started(*SHARED)
    world.cancel(job_id)
    (send,) = world.deliver()
    assert isinstance(send.body, End) and send.nodes == (0, 1, 2)


def test_an_older_plan_is_tried_with_sums() -> None:
    """Goal: a plan of an older generation places nothing whose parts fit a node only one by one."""
    world = World(nodes=2)
    job_id = submit(world, parted(ONE, ONE))
    generation = world.state.generation
    other = world.submit(request=Request(cpus_per_task=2))
    assert place(world, other, span(0, 2)) is not None
    assert place(world, job_id, *TWO_PARTS, generation=generation) is None
    assert place(world, job_id, span(1, 2), span(1, 1, 1), generation=generation) is not None


def test_two_placements_of_an_older_plan_count_each_other() -> None:
    world = World(nodes=1)
    first, second = (submit(world, parted(ONE, ONE)) for _ in range(2))
    generation = world.state.generation
    world.submit()
    assert place(world, first, span(0, 1), span(0, 2, 1), generation=generation) is not None
    assert place(world, second, span(0, 1), span(0, 1, 1), generation=generation) is None


def test_parts_get_different_devices() -> None:
    """Goal: devices of a node are given to one part each, and the launch says which part has them."""
    gpus = (NodeConfig("cn0", (4, 1000, 3)), NodeConfig("cn1", (4, 1000)))
    world = World(nodes=2, nodes_with=gpus, resources=(Resource("gpu", devices=True),))
    job_id = submit(world, parted(ONE, ONE))
    attempt = place(world, job_id, span(0, 1, 0, 1), span(1, 1), span(0, 1, 1, 2))
    assert attempt is not None
    assert [one.devices for one in attempt.spans] == [((2, (0,)),), (), ((2, (1, 2)),)]
    launch = job_launch(world.state, world.job(job_id), attempt)
    assert launch.devices == ((0, "gpu", (0,)), (0, "gpu", (1, 2))) and launch.device_parts == (0, 1)
    world.deliver()
    world.deliver()
    world.end(job_id)
    assert world.state.devices.used(0, 2) == 0
    plain = world.submit(request=Request(per_node=(("gpu", 1),)))
    attempt = place(world, plain, span(0, 1, 0, 1))
    assert attempt is not None
    assert job_launch(world.state, world.job(plain), attempt).device_parts == ()


def test_the_planner_sees_one_share_for_each_node() -> None:
    world, job_id = started(*SHARED)
    running = running_of(world.job(job_id), world.attempt(job_id))
    assert running.spans == ((0, (2, 0)), (1, (3, 0)), (2, (3, 0)))


def test_a_node_that_vanishes_while_preparing_takes_both_parts_along() -> None:
    world = World(nodes=3)
    job_id = submit(world, parted(ONE, ONE))
    place(world, job_id, *SHARED)
    world.lose(1)
    assert world.state.ledger.free(1)[0] == 4 and job_id not in world.state.jobs_on.get(1, ())
    assert world.job(job_id).avoid == {1}


def test_a_rebooted_node_may_have_run_both_parts() -> None:
    """Goal: a launch on one node that was never confirmed counts as run after a reboot, with two parts as with one."""
    world = World(nodes=2)
    job_id = submit(world, parted(ONE, ONE))
    place(world, job_id, *TWO_PARTS)
    world.register(0, boot="b2", session="s2")
    assert world.job(job_id).attempt is None and world.state.ledger.free(0)[0] == 4


def test_no_step_starts_while_nodes_are_prepared() -> None:
    world = World(nodes=3)
    job_id = submit(world, parted(ONE, ONE))
    place(world, job_id, *SHARED)
    answer = world.send(CreateStep(ALICE, job_id, 1, 1, ("x",), b"", "/", "h:1", b""))
    assert "still being prepared" in refused(answer)


def test_cores_of_all_parts_are_lent_and_come_back() -> None:
    """Goal: a suspended job lends the cores of both parts, and resumes when the sum is free on each node."""
    world = World(nodes=3)
    low, high = Qos("low", preempt_mode="suspend"), Qos("high", preempts=("low",))
    world.send(ChangePolicies(ROOT, tuple(PolicyChange("add", "qos", one.name, one) for one in (low, high))))
    job_id = submit(world, parted(ONE, ONE, qos="low"))
    place(world, job_id, *SHARED)
    world.deliver()
    world.deliver()
    preemptor = world.submit(qos="high", time_limit_s=100)
    world.send(PlanMade((), world.state.generation, (Preemption(job_id, 1, "suspend", preemptor),)))
    world.deliver()
    assert [world.state.ledger.free(node)[0] for node in range(3)] == [4, 4, 4]
    assert world.state.live[job_id, 1].lent == ((0, (2,)), (1, (3,)), (2, (3,)))
    # Each part alone fits beside this one on node 1, both do not.
    place(world, preemptor, span(1, 2))
    world.deliver()
    world.pass_time(1)
    assert world.state_of(job_id) == "SUSPENDED"
    world.end(preemptor)
    world.pass_time(1)
    assert world.state_of(job_id) == "RUNNING" and world.state.ledger.free(1)[0] == 1


def test_failed_parts_are_named() -> None:
    """Goal: invariants find places in the wrong order, parts without a place, and a node twice in one part."""
    world, job_id = started(*SHARED)
    job, attempt = world.job(job_id), world.attempt(job_id)
    for spans, text in (
        (SHARED[::-1], "parts in the order"),
        (tuple(replace(one, component=0) for one in (SHARED[0], *SHARED[2:])), "places for the parts"),
        ((*SHARED[:2], SHARED[2], SHARED[2], SHARED[3]), "a node twice in one part"),
    ):
        broken = replace(job, attempt=replace(attempt, spans=spans))
        with pytest.raises(invariants.InvariantViolation, match=text):
            invariants.check_job(world.state, broken)
    plain, other = started(span(0, 1), span(1, 1))
    job, attempt = plain.job(other), plain.attempt(other)
    twice = replace(job, attempt=replace(attempt, spans=(span(0, 1), span(1, 1), span(1, 1))))
    with pytest.raises(invariants.InvariantViolation, match="a node twice"):
        invariants.check_job(plain.state, twice)
