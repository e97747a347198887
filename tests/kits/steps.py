"""Steps with claims in a `World`: created, told of, and looked at."""

from __future__ import annotations

from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model.job import Principal, StepEnd
from eslurm.core.model.messages import CreateStep, StepCreated
from eslurm.core.model.protocol import TasksOver
from eslurm.core.model.step_claim import ClaimWish
from tests.kits.core import ALICE, World

WHOLE = ClaimWish(whole=True)
SIZE = ClaimWish()


def create(
    world: World,
    job: int,
    tasks: int = 0,
    nodes: int = 0,
    cpus: int = 1,
    *,
    claim: ClaimWish | None = SIZE,
    by: Principal = ALICE,
    **others: object,
) -> BatchAnswer:
    message = CreateStep(
        *(by, job, tasks, nodes, ("app",), b"e", "/tmp", "host:9", b"c", cpus),
        claim=claim,
        **others,  # type: ignore[arg-type]
    )
    return world.send(message)


def number(answer: BatchAnswer) -> int:
    """The number of a step that was created, and does not wait."""
    assert isinstance(answer, StepCreated) and not answer.waits, answer
    return answer.step


def waiting(answer: BatchAnswer) -> int:
    """The number of a step that was created, and waits."""
    assert isinstance(answer, StepCreated) and answer.waits and not answer.layout, answer
    return answer.step


def over(world: World, job: int, step: int, *nodes: int, end: StepEnd | None = None) -> None:
    """These nodes, by default all that hold it, say that none of its tasks is left."""
    record = world.state.steps[job, step]
    for node in nodes or tuple(sorted(record.holding)):
        incarnation = world.state.nodes[node].incarnation
        world.report(TasksOver(node, incarnation, job, record.attempt, step, end or StepEnd(0)))


def state_of(world: World, job: int, step: int) -> str:
    return world.state.steps[job, step].state.value
