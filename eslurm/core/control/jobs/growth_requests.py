"""The request of a growth: what a running job's further nodes are asked for with.

A further node is asked for as the ones before: so many tasks, cores and so much memory on it, in the same partition, by the
same account and QOS, until the job's end. Invariant: none of the nodes that the attempt has or had may be chosen again.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from eslurm.core.control.job_ids import take_ids
from eslurm.core.control.jobs.admission import check_room, empty_of
from eslurm.core.control.rights import is_operator
from eslurm.core.model import facts
from eslurm.core.model.job import Attempt, Job, JobSpec, Principal
from eslurm.core.model.job_weight import weight
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.model.parts import partition_of
from eslurm.core.model.request import Request
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.placement.feasible import feasible_ever
from eslurm.core.state.apply_elastic import left_s
from eslurm.core.state.cluster import State


def growth_facts(
    state: State, job: Job, attempt: Attempt, by: Principal, count: int, include: Sequence[str], now_us: int
) -> list[facts.Fact]:
    """The facts of a growth by so many nodes, those named among them. Raises `Refused`."""
    _check_kind(job)
    limit_s = left_s(attempt.until_us, now_us)
    request = further(job.spec.components[0], attempt, count, include)
    spec = _spec(job, request, limit_s)
    if not is_operator(state, by):
        check_room(state, spec.user, 1, weight(spec))
    apart = tuple(sorted({span.node for span in attempt.spans}))
    _check_feasible(state, job, request, apart, limit_s)
    lease, ids = take_ids(state, 1)
    asked = facts.GrowthAsked(job.job_id, attempt.number, ids.start, spec, job.priority, apart, by.name)
    return [*lease, asked]


def growth_of(found: Sequence[facts.Fact]) -> int:
    """The id of the growth that these facts ask for."""
    return next(fact.growth_id for fact in found if isinstance(fact, facts.GrowthAsked))


def further(request: Request, attempt: Attempt, count: int, include: Sequence[str] = ()) -> Request:
    """So many nodes more of the kind that the attempt has."""
    tasks = max([span.tasks for span in attempt.spans], default=1) or 1
    return replace(
        request,
        tasks=tasks * count,
        nodes_min=count,
        nodes_max=count,
        tasks_per_node=tasks,
        include=tuple(include),
        wide=(),
    )


def _check_kind(job: Job) -> None:
    """Refuse requests of which a node more is no further part."""
    request, what = job.spec.components[0], f"job {job.job_id}"
    problem = ""
    if request.chunks:
        problem = f"{what} asked for resource sets (--rset): a further node has none of them"
    elif request.place == "pack":
        problem = (
            f"{what} asked for all of its tasks on one node (place=pack): a further node cannot be that one"
        )
    if problem:
        raise Refused(RefusalCode.CONFLICT, f"nodes: {problem}")


def _check_feasible(state: State, job: Job, request: Request, apart: Sequence[int], limit_s: int) -> None:
    exclude = (*request.exclude, *state.node_names(apart))
    partition = partition_of(job.spec, 0)
    view = state.partition_views.get(partition)
    if view is None:
        raise Refused(RefusalCode.CONFLICT, f"nodes: partition {partition} does not exist any more")
    asked = replace(request, exclude=exclude)
    problem = feasible_ever(asked, view, empty_of(state), limit_s * SECOND_US)
    if problem is not None:
        raise Refused(
            RefusalCode.INFEASIBLE,
            f"nodes: job {job.job_id} cannot get {request.nodes_min} more besides those that it has or gave back: "
            f"{problem.reason}",
        )


def _spec(job: Job, request: Request, limit_s: int) -> JobSpec:
    return replace(
        job.spec,
        name=f"grow-{job.job_id}",
        components=(request,),
        parts=(),
        partition=partition_of(job.spec, 0),
        time_limit_s=limit_s,
        begin_us=0,
        start_at_us=0,
        deadline_us=0,
        held=False,
        dependencies=(),
        dependency_any=False,
        array=None,
        arguments=(),
        warn_signal=0,
        warn_before_s=0,
        warn_script="",
        no_kill=False,
        cells=(),
    )
