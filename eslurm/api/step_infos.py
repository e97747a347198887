"""The answer of a step's creation on the wire, and that of a step whose turn has come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eslurm.core.model.messages import PartCreated, StepCreated
from eslurm.core.model.step import Step
from eslurm.core.state.view import View
from eslurm.v1 import controller_pb2 as pb


def created(view: View, parts: Sequence[Step]) -> StepCreated:
    """The answer of `CreateStep` for a step that does not wait, of one that has waited."""
    made = [
        PartCreated(
            part.launch.component,
            part.step,
            part.launch.rank_first,
            tuple([(view.nodes[node].name, tasks) for node, tasks in part.launch.layout]),
        )
        for part in parts
    ]
    whole = tuple([one for part in made for one in part.layout])
    first = parts[0]
    return StepCreated(first.job_id, first.attempt, first.step, whole, tuple(made) if len(made) > 1 else ())


def step_reply(answer: StepCreated) -> pb.CreateStepReply:
    """The answer on the wire."""
    return pb.CreateStepReply(
        job_id=answer.job_id,
        attempt=answer.attempt,
        step=answer.step,
        layout=step_nodes(answer.layout),
        parts=[
            pb.StepPart(
                component=part.component,
                step=part.step,
                rank_first=part.rank_first,
                layout=step_nodes(part.layout),
            )
            for part in answer.parts
        ],
        waits=answer.waits,
    )


def step_nodes(layout: Iterable[tuple[str, int]]) -> list[pb.StepNode]:
    """Nodes and their tasks on the wire, in the order of ranks."""
    return [pb.StepNode(name=name, tasks=tasks) for name, tasks in layout]
