"""Steps over several parts of a job: one order of ranks, a sibling step for each part, one start and one end."""

from __future__ import annotations

import pytest

from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.control.steps import joint_state, step_parts
from eslurm.core.model.job import Span
from eslurm.core.model.messages import Changed, CreateStep, FinishStep, PartCreated, StepCreated, StepProgram
from eslurm.core.model.protocol import LaunchStep, NodeGroup
from eslurm.core.model.request import Request
from eslurm.core.model.step import StepState
from eslurm.replay.state_check import check
from tests.kits.core import ALICE, World, refused
from tests.kits.parts import parted, place, span, submit

SHARED = (span(0, 2), span(1, 2), span(1, 1, 1), span(2, 3, 1), span(2, 1, 2))
"""Parts 0 and 1 share node 1, parts 1 and 2 share node 2."""


def running(*spans: Span) -> tuple[World, int]:
    world = World(nodes=3)
    job = submit(world, parted(*[Request()] * (spans[-1].component + 1)))
    assert place(world, job, *spans) is not None
    for _ in range(2):
        world.deliver()
    assert world.state_of(job) == "RUNNING"
    return world, job


def program(name: str, tasks: int = 0, nodes: int = 0, cpus: int = 1) -> StepProgram:
    return StepProgram((name,), tasks, nodes, cpus)


def create(
    world: World, job: int, components: tuple[int, ...], *programs: StepProgram, tasks: int = 0
) -> BatchAnswer:
    message = CreateStep(
        *(ALICE, job, tasks, 0, ("app",), b"e", "/tmp", "host:9", b"c"),
        components=components,
        programs=programs,
    )
    return world.send(message)


def test_each_part_gets_a_step_with_its_own_program_and_one_order_of_ranks() -> None:
    world, job = running(*SHARED)
    answer = create(world, job, (0, 1), program("a", 3), program("b", 2))
    parts = (
        PartCreated(0, 0, 0, (("cn0", 2), ("cn1", 1))),
        PartCreated(1, 1, 3, (("cn1", 1), ("cn2", 1))),
    )
    assert answer == StepCreated(job, 1, 0, (*parts[0].layout, *parts[1].layout), parts)
    sends = world.sends()
    first, second = (send.body for send in sends)
    assert isinstance(first, LaunchStep) and isinstance(second, LaunchStep)
    assert [(one.argv, one.step, one.component, one.rank_first) for one in (first, second)] == [
        (("a",), 0, 0, 0),
        (("b",), 1, 1, 3),
    ]
    assert [send.nodes for send in sends] == [(0, 1), (1, 2)]
    assert {(one.tasks_total, one.first, one.whole) for one in (first, second)} == {
        (
            5,
            0,
            (
                NodeGroup(((0, 1),), (2,), 2),
                NodeGroup(((1, 1),), (1,), 1),
                NodeGroup(((1, 2),), (1,), 1, 1),
            ),
        )
    }
    assert second.groups == (NodeGroup(((1, 2),), (1,), 1, 1),)
    assert first.launch is second.launch and first.whole is second.whole, "made once for 128 parts"
    check(world.state)
    assert create(world, job, (0,)) == StepCreated(job, 1, 2, (("cn0", 1), ("cn1", 1)))


def test_a_new_leader_sends_the_same_launches_again() -> None:
    world, job = running(*SHARED)
    create(world, job, (0, 2))
    before = [send.body for send in world.sends()]
    world.restart()
    again = [send.body for send in world.sends() if isinstance(send.body, LaunchStep)]
    assert again == before


def test_one_program_runs_in_all_named_parts_and_in_part_0_unless_others_are_named() -> None:
    world, job = running(*SHARED)
    answer = create(world, job, (0, 1, 2), tasks=1)
    assert isinstance(answer, StepCreated)
    assert [part.layout for part in answer.parts] == [(("cn0", 1),), (("cn1", 1),), (("cn2", 1),)]
    alone = create(world, job, (1,))
    assert isinstance(alone, StepCreated)
    assert (alone.step, alone.layout, alone.parts) == (3, (("cn1", 1), ("cn2", 1)), ())
    assert world.state.steps[job, 3].launch.component == 1 and world.state.steps[job, 3].launch.first == -1


@pytest.mark.parametrize(
    ("components", "programs", "text"),
    [
        ((3,), (), "--het-group: there is no part 3: job 1 has 3 parts (0-2)"),
        ((-1,), (), "there is no part -1"),
        ((1, 0), (), "name each part once, in ascending order"),
        ((1, 1), (), "name each part once"),
        ((), (), "name each part once"),
        ((0, 1), (program("a"),) * 3, "3 programs do not fit 2 parts"),
        (
            (0, 2),
            (program("a"), program("b", 2)),
            "part 2: --ntasks: 2 tasks of 1 cpus are more than 1 nodes of the",
        ),
        ((0, 2), (program("a"), program("b", 0, 2)), "part 2: --nodes: 2 are more than the part's 1 nodes"),
        ((1,), (program("a", 2, 2, 2),), "part 1: --ntasks: 2 tasks of 2 cpus"),
        ((0,), (program("a", 1, 1, 0),), "part 0: --cpus-per-task: 0 is too few"),
        ((0,), (program("a", -1),), "part 0: --ntasks and --nodes must not be negative"),
    ],
)
def test_what_does_not_fit_is_refused_whole_and_names_the_part(
    components: tuple[int, ...], programs: tuple[StepProgram, ...], text: str
) -> None:
    world, job = running(*SHARED)
    assert text in refused(create(world, job, components, *programs))
    assert not world.state.steps


def test_a_job_of_one_part_has_no_other() -> None:
    world = World()
    job = world.submit()
    world.start()
    assert "there is no part 1: job 1 has 1 part (0)" in refused(create(world, job, (0, 1)))


def test_the_id_of_a_part_is_answered_with_the_name_of_the_part() -> None:
    world, job = running(*SHARED)
    text = f"job {job + 1} is part 1 of job {job}: name it --jobid {job}+1"
    assert refused(create(world, job + 1, (0,))) == text


def test_the_parts_of_a_step_count_as_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eslurm.core.control.steps.STEPS_MAX", 4)
    world, job = running(*SHARED)
    create(world, job, (0, 1))
    assert "has started 4 steps" in refused(create(world, job, (0, 1, 2)))
    assert isinstance(create(world, job, (1, 2)), StepCreated)


def test_it_runs_when_all_parts_do_and_fails_with_one_of_them() -> None:
    world, job = running(*SHARED)
    create(world, job, (0, 1))
    first, second = world.sends()
    parts = step_parts(world.state.steps, world.state.steps[job, 1])
    assert [part.step for part in parts] == [0, 1] and joint_state(parts) is StepState.LAUNCHING
    world.done(first)
    assert _joint(world, job) is StepState.LAUNCHING
    world.done(second, "failed")
    assert _joint(world, job) is StepState.FAILED
    assert [part.failed for part in step_parts(world.state.steps, world.state.steps[job, 0])] == [
        (),
        ((1, "why"), (2, "why")),
    ]


def test_its_command_ends_all_parts_at_once() -> None:
    world, job = running(*SHARED)
    create(world, job, (0, 1, 2))
    for send in world.sends():
        world.done(send)
    assert _joint(world, job) is StepState.RUNNING
    assert world.send(FinishStep(ALICE, job, 0, 3)) == Changed(1)
    steps = [world.state.steps[job, number] for number in range(3)]
    assert [(step.state, step.exit_code) for step in steps] == [(StepState.ENDED, 3)] * 3
    assert world.send(FinishStep(ALICE, job, 2, 3)) == Changed(0)
    assert _joint(world, job) is StepState.ENDED


def _joint(world: World, job: int) -> StepState:
    return joint_state(step_parts(world.state.steps, world.state.steps[job, 0]))
