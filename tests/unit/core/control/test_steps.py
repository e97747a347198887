"""Steps inside a running job: where their tasks go, how they start and end, and that they end with the attempt."""

from __future__ import annotations

import pytest

from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import Changed, CreateStep, FinishStep, StepCreated
from eslurm.core.model.protocol import LaunchStep, NodeGroup, Start
from eslurm.core.model.request import Request
from eslurm.core.model.step import StepState
from eslurm.core.relay.results import FAILED, USER_REFUSED
from tests.kits.core import ALICE, BOB, World, refused

WIDE = Request(tasks=12, nodes_min=3, nodes_max=3)


def create(
    world: World, job: int, tasks: int = 0, nodes: int = 0, cpus: int = 1, by: Principal = ALICE
) -> BatchAnswer:
    message = CreateStep(by, job, tasks, nodes, ("app",), b"e", "/tmp", "host:9", b"c", cpus)
    return world.send(message)


def running(world: World, request: Request = WIDE) -> int:
    job = world.submit(request=request)
    world.start()
    return job


def layout(answer: BatchAnswer) -> tuple[tuple[str, int], ...]:
    assert isinstance(answer, StepCreated), answer
    return answer.layout


@pytest.mark.parametrize(
    ("tasks", "nodes", "cpus", "expected"),
    [
        (0, 0, 1, (1, 1, 1)),
        (2, 0, 1, (1, 1)),
        (7, 0, 1, (3, 2, 2)),
        (12, 3, 1, (4, 4, 4)),
        (4, 1, 1, (4,)),
        (6, 3, 2, (2, 2, 2)),
    ],
)
def test_tasks_are_laid_out_in_blocks(tasks: int, nodes: int, cpus: int, expected: tuple[int, ...]) -> None:
    world = World()
    answer = create(world, running(world), tasks, nodes, cpus)
    assert layout(answer) == tuple((f"cn{at}", count) for at, count in enumerate(expected))


def test_uneven_nodes_are_filled_as_far_as_they_go() -> None:
    world = World(nodes=2)
    world.submit(request=Request(cpus_per_task=2))
    job = world.submit(request=Request(tasks=6, nodes_min=2, nodes_max=2))
    world.start()
    shares = [span.amounts[0] for span in world.attempt(job).spans]
    assert sorted(shares) == [2, 4]
    assert [count for _, count in layout(create(world, job, 6, 2))] == shares


@pytest.mark.parametrize(
    ("tasks", "nodes", "cpus", "text"),
    [
        (0, 4, 1, "--nodes: 4 are more than the job's 3 nodes"),
        (2, 3, 1, "--ntasks: 2 tasks cannot be spread over 3 nodes"),
        (13, 3, 1, "--ntasks: 13 tasks of 1 cpus are more than 3 nodes of the job hold (12)"),
        (1, 1, 5, "--ntasks: 1 tasks of 5 cpus are more"),
        (1, 1, 0, "--cpus-per-task: 0 is too few"),
        (-1, 0, 1, "must not be negative"),
    ],
)
def test_what_does_not_fit_the_job_is_refused(tasks: int, nodes: int, cpus: int, text: str) -> None:
    world = World()
    assert text in refused(create(world, running(world), tasks, nodes, cpus))


def test_steps_are_the_owners_and_need_a_running_job() -> None:
    world = World()
    job = world.submit(request=WIDE)
    assert "is PENDING: steps start inside a running job" in refused(create(world, job))
    world.start()
    assert "belongs to alice" in refused(create(world, job, by=BOB))
    assert "job 77 does not exist" in refused(create(world, 77))
    world.cancel(job)
    assert "is being ended" in refused(create(world, job))


def test_a_step_runs_when_every_node_has_started_it() -> None:
    world = World()
    job = running(world)
    create(world, job, 6)
    (send,) = world.sends()
    assert isinstance(send.body, LaunchStep)
    assert send.body.groups == (NodeGroup(((0, 3),), (2,), 2),)
    world.done(send, nodes=(0, 1))
    assert world.state.steps[job, 0].state is StepState.LAUNCHING
    world.pass_time(1)
    (again,) = world.sends()
    assert again.nodes == (2,)
    world.done(again)
    assert world.state.steps[job, 0].state is StepState.RUNNING
    assert world.send(FinishStep(ALICE, job, 0, 3, 0)) == Changed(1)
    step = world.state.steps[job, 0]
    assert (step.state, step.exit_code, step.ended_us) == (StepState.ENDED, 3, world.now_us)
    assert world.send(FinishStep(ALICE, job, 0, 3, 0)) == Changed(0)


@pytest.mark.parametrize(
    ("names", "tasks", "nodes", "expected"),
    [
        (("cn2", "cn1"), 0, 0, (("cn1", 1), ("cn2", 1))),
        (("cn2",), 3, 0, (("cn2", 3),)),
        (("cn0", "cn2"), 5, 2, (("cn0", 3), ("cn2", 2))),
        (("cn1", "cn2"), 1, 0, (("cn1", 1),)),
    ],
)
def test_tasks_go_to_the_named_nodes_of_the_job(
    names: tuple[str, ...], tasks: int, nodes: int, expected: tuple[tuple[str, int], ...]
) -> None:
    world = World()
    step = ("app",), b"e", "/tmp", "host:9", b"c"
    answer = world.send(CreateStep(ALICE, running(world), tasks, nodes, *step, node_names=names))
    assert layout(answer) == expected


def test_nodes_that_the_job_has_not_are_refused_by_name() -> None:
    world = World(nodes=4)
    job = running(world)
    step = ("app",), b"e", "/tmp", "host:9", b"c"
    message = CreateStep(ALICE, job, 0, 0, *step, node_names=("cn1", "cn3", "cn9"))
    assert f"--nodelist: cn3 is none of the nodes of job {job}" in refused(world.send(message))


def test_nodes_are_told_of_the_interface_to_mpi() -> None:
    world = World()
    message = CreateStep(ALICE, running(world), 2, 0, ("app",), b"e", "/tmp", "host:9", b"c", mpi="pmi")
    world.send(message)
    (send,) = world.sends()
    assert isinstance(send.body, LaunchStep) and send.body.mpi == "pmi"


def test_a_step_that_a_node_cannot_start_has_failed_and_says_where() -> None:
    world = World()
    job = running(world)
    create(world, job)
    (send,) = world.sends()
    world.done(send, "failed", nodes=(1,))
    world.pass_time(1)
    (again,) = world.sends()
    world.done(again)
    step = world.state.steps[job, 0]
    assert (step.state, step.failed) == (StepState.FAILED, ((1, "why"),))
    assert world.send(FinishStep(ALICE, job, 0, 1)) == Changed(0)


def test_a_step_may_be_finished_before_its_nodes_answered() -> None:
    world = World()
    job = running(world)
    create(world, job)
    (send,) = world.sends()
    world.send(FinishStep(ALICE, job, 0, 1))
    since = len(world.log)
    world.done(send)
    assert len(world.log) == since
    assert not world.state.step_owed and not len(world.delivery)


def test_only_the_owner_finishes_a_step() -> None:
    world = World()
    job = running(world)
    create(world, job)
    assert "belongs to alice" in refused(world.send(FinishStep(BOB, job, 0, 0)))
    assert world.send(FinishStep(ALICE, job, 9, 0)) == Changed(0)


def test_steps_end_with_their_attempt() -> None:
    world = World()
    job = running(world)
    create(world, job)
    create(world, job)
    world.end(job, cause="lost")
    assert not world.state.steps and not world.state.step_owed and not world.state.steps_of
    world.pass_time(2)
    world.start()
    assert layout(create(world, job))
    assert list(world.state.steps) == [(job, 0)]


def test_steps_of_an_earlier_attempt_do_not_come_back_with_a_restart() -> None:
    """The store keeps them for accounting; they must not be owed again under the new attempt."""
    world = World()
    job = running(world)
    create(world, job)
    world.end(job, cause="lost")
    world.pass_time(2)
    world.start()
    assert world.attempt(job).number == 2
    world.restart()
    assert not world.state.steps and not world.state.step_owed
    create(world, job)
    world.restart()
    assert world.state.steps[job, 0].attempt == 2


def test_a_step_launch_is_sent_when_its_node_registers_again() -> None:
    world = World()
    job = running(world)
    create(world, job)
    world.restart(register=False)
    assert world.sends() == []
    for number in (0, 1, 2):
        world.register(number, *world.inventory(number), session="s2")
    (send,) = world.sends()
    assert isinstance(send.body, LaunchStep) and send.nodes == (0, 1, 2)
    world.done(send)
    assert world.state.steps[job, 0].state is StepState.RUNNING


def test_a_node_that_is_gone_takes_no_more_steps() -> None:
    world = World()
    job = running(world)
    world.gone(2, job, 1)
    assert [name for name, _ in layout(create(world, job))] == ["cn0", "cn1"]


@pytest.mark.parametrize("code", [FAILED, USER_REFUSED])
@pytest.mark.parametrize("has_step", [False, True])
def test_a_job_whose_script_cannot_start_waits_for_the_steps_that_did(code: int, has_step: bool) -> None:
    """Its nodes are prepared, so a step may run there by now: no other attempt begins before each of them has said no."""
    world = World(nodes=6)
    job = world.submit(request=WIDE)
    world.plan()
    world.deliver()
    if has_step:
        layout(create(world, job))
    start = next(send for send in world.sends() if isinstance(send.body, Start))
    world.done(start, "failed", code=code)
    assert world.state_of(job) == ("COMPLETING" if has_step else "PENDING")
    for _ in range(2):
        for send in world.sends():
            world.done(send, payload=world.answer_of(send))
    assert world.state_of(job) == "PENDING" and not world.job(job).residues
    assert world.job(job).hold == ("system" if code == USER_REFUSED else "")
