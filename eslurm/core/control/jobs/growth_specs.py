"""The request of a growth: what a running job's further nodes are asked for with, and the growth of an elastic job.

A further node is asked for as the ones before: so many tasks, cores and so much memory on it, in the same partition, by the
same account and QOS, until the job's end. Invariant: an elastic job never asks for more than its range, nor again once its
user has given nodes back.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from eslurm.core.control.job_ids import take_ids
from eslurm.core.model import facts
from eslurm.core.model.job import Attempt, Job, JobSpec
from eslurm.core.model.job_states import AttemptPhase
from eslurm.core.model.messages import Refused
from eslurm.core.model.parts import partition_of
from eslurm.core.model.request import Request
from eslurm.core.model.request_limits import NICE_MAX
from eslurm.core.state.apply_elastic import left_s
from eslurm.core.state.cluster import State


def grown_by_itself(state: State, job: Job) -> list[facts.Fact]:
    """The growth of an elastic job that runs on fewer nodes than it may have; none once its user has given nodes back.

    It comes behind all jobs that wait: the least priority, and what is left by then, one node or more.
    """
    attempt = job.attempt
    if not job.spec.elastic or attempt is None or attempt.phase is not AttemptPhase.RUNNING:
        return []
    if attempt.stop is not None or attempt.suspended_us or attempt.growth is not None:
        return []
    more = attempt.more
    if more is not None and (more.shrunk or more.leaving or more.gone):
        return []
    count = job.spec.components[0].nodes_max - len(attempt.held)
    if count < 1 or job.job_id in state.growing or state.pending_count >= state.config.pending_jobs_max:
        return []
    limit_s = left_s(attempt.until_us, state.now_us)
    spec = growth_spec(job, up_to(job.spec.components[0], attempt, count), limit_s)
    apart = tuple(sorted({span.node for span in attempt.spans}))
    try:
        lease, ids = take_ids(state, 1)
    except Refused:
        return []
    spec = replace(spec, nice=NICE_MAX, priority=None)
    return [*lease, facts.GrowthAsked(job.job_id, attempt.number, ids.start, spec, 0, apart)]


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


def up_to(request: Request, attempt: Attempt, count: int) -> Request:
    """At most so many nodes more of the kind that the attempt has: one task for each, as wide as all of a node's."""
    tasks = max([span.tasks for span in attempt.spans], default=1) or 1
    return replace(
        request,
        tasks=1,
        cpus_per_task=request.cpus_per_task * tasks,
        per_task=tuple([(name, items * tasks) for name, items in request.per_task]),
        nodes_min=1,
        nodes_max=count,
        tasks_per_node=0,
        include=(),
        wide=(),
    )


def growth_spec(job: Job, request: Request, limit_s: int) -> JobSpec:
    """The spec of the record of a growth: its job's, without all that concerns the script."""
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
        elastic=False,
        cells=(),
        span=False,
        retry=None,
        attended=False,
    )
