"""Growths that users ask for, checked like submissions.

Invariant: none of the nodes that the attempt has or had may be chosen again.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from eslurm.core.control.job_ids import take_ids
from eslurm.core.control.jobs.admission import check_room, empty_of
from eslurm.core.control.jobs.elastic_kinds import further_problem
from eslurm.core.control.jobs.growth_specs import further, growth_spec
from eslurm.core.control.rights import is_operator
from eslurm.core.model import facts
from eslurm.core.model.job import Attempt, Job, Principal
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
    spec = growth_spec(job, request, limit_s)
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


def _check_kind(job: Job) -> None:
    """Refuse requests of which a node more is no further part."""
    problem = further_problem(job.spec)
    if problem:
        raise Refused(RefusalCode.CONFLICT, f"nodes: job {job.job_id}: {problem}")


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
