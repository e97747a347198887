"""Steps that a command may attach to: those that run, of the caller's own jobs.

Invariant: the answer, made of a step's cookie, is for the job's own user alone; operators get none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from eslurm.core.control.jobs.access import Jobs, get_seen
from eslurm.core.control.steps import joint_state, step_parts
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.model.node import Node
from eslurm.core.model.step import Step, StepState


class Cluster(Jobs, Protocol):
    """Jobs, their steps and the nodes: the committed view."""

    @property
    def steps(self) -> Mapping[tuple[int, int], Step]: ...

    @property
    def nodes(self) -> Mapping[int, Node]: ...


class Attachable(NamedTuple):
    """The place where the command of a step listens, its cookie, and (node, tasks) in the order of ranks."""

    endpoint: str
    cookie: bytes
    layout: tuple[tuple[str, int], ...]


def find_attachable(cluster: Cluster, by: Principal, job_id: int, number: int) -> Attachable:
    """The running step that its own user wants to attach to; in all its parts. Raises `Refused`."""
    job = get_seen(cluster, by, job_id)
    if by.uid != job.spec.user.uid:
        text = f"job {job_id} belongs to {job.spec.user.name}: only its user attaches to its steps"
        raise Refused(RefusalCode.DENIED, text)
    step = cluster.steps.get((job.job_id, number))
    if step is None or not step.launch.cookie:
        text = f"step {job_id}.{number} does not exist (any more)"
        raise Refused(RefusalCode.NOT_FOUND, text)
    parts = step_parts(cluster.steps, step)
    state = joint_state(parts)
    if state not in (StepState.LAUNCHING, StepState.RUNNING):
        raise Refused(RefusalCode.CONFLICT, f"step {job_id}.{number} is {state.value}: nothing of it runs")
    layout = [(cluster.nodes[node].name, tasks) for part in parts for node, tasks in part.launch.layout]
    return Attachable(step.launch.endpoint, step.launch.cookie, tuple(layout))
