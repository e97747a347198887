"""Between the cluster's state and the planner: what a cycle looks at, and what its plan becomes.

Plan on a snapshot, apply with a check: a placement planned on an older generation is tried on the
ledger as it is now and silently dropped if it no longer fits (the job is still in the queue).
"""

from __future__ import annotations

from collections.abc import Generator

from eslurm.core import facts
from eslurm.core.cluster import SECOND_US, State, task_slots, waits
from eslurm.core.ids import take_ids
from eslurm.core.job import ranges
from eslurm.core.job.model import Job, JobSpec, Span
from eslurm.core.messages import PlanMade
from eslurm.core.plan.cycle import plan_cycle
from eslurm.core.plan.mapping import Placement, choose, revalidate
from eslurm.core.plan.need import compile_need
from eslurm.core.plan.policy import Plan, PlanLimits
from eslurm.core.plan.promise import Promise, earliest_start
from eslurm.core.plan.snapshot import Snapshot
from eslurm.core.resources.ledger import Overdue


def plan_slices(
    state: State, now_us: int, promises: tuple[Promise, ...], limits: PlanLimits
) -> Generator[None, None, Plan]:
    """One cycle over the state as it is now, to be driven in slices. Clears `plan_wanted`."""
    state.plan_wanted = False
    state.changed.clear()
    snapshot = Snapshot.take(
        state.ledger,
        state.partition_views,
        state.queue,
        generation=state.generation,
        now_us=now_us,
        examined_max=limits.examined_max,
    )
    return plan_cycle(snapshot, policy=state.config.policy, limits=limits, promises=promises)


def on_plan_made(state: State, message: PlanMade, now_us: int) -> list[facts.Fact]:
    """Each placement that still holds becomes an attempt; an array's gives its next task a record."""
    found: list[facts.Fact] = []
    if message.generation < state.configured:
        # Planned on other nodes and partitions: the next cycle is already wanted.
        return found
    scratch = state.ledger.fork() if message.generation != state.generation else None
    taken: dict[int, int] = {}
    new_tasks = 0
    drafts: list[tuple[Job, Placement, int]] = []
    for placement in message.placements:
        job = state.find_job(placement.job_id)
        if job is None or not waits(job) or state.changed.get(job.job_id, 0) > message.generation:
            continue
        group = job.job_id if job.is_array else job.array_job_id
        if not _has_room(state, job, taken.get(group, 0)):
            continue
        if scratch is not None:
            if not revalidate(placement, scratch):
                continue
            for span in placement.spans:
                scratch.hold(span.node, span.amounts, placement.until_us)
        if group:
            taken[group] = taken.get(group, 0) + 1
        drafts.append((job, placement, new_tasks if job.is_array else -1))
        new_tasks += job.is_array
    lease, ids = take_ids(state, new_tasks)
    found += lease
    tasks = {job.job_id: _ready_tasks(job) for job, _, at in drafts if at >= 0}
    for job, placement, at in drafts:
        spans = tuple(Span(span.node, span.amounts, span.tasks) for span in placement.spans)
        if at < 0:
            found.append(facts.JobPlaced(job.job_id, job.attempts + 1, spans, placement.until_us))
            continue
        task = next(tasks[job.job_id])
        found.append(facts.JobPlaced(ids[at], 1, spans, placement.until_us, job.job_id, task))
    return found


def _has_room(state: State, job: Job, taken: int) -> bool:
    """Whether the job's own rules let one more of it start, besides those `taken` from the same plan."""
    if job.is_array:
        return taken < state.startable(job)
    if job.array_job_id and (array := state.find_job(job.array_job_id)) is not None:
        return taken < task_slots(array)
    return True


def _ready_tasks(array: Job) -> Generator[int, None, None]:
    assert array.tasks_left is not None
    ready = array.tasks_left
    if array.tasks_ready is not None:
        ready = ranges.intersection(ready, array.tasks_ready)
    yield from ranges.iterate(ready)


def earliest_start_us(state: State, spec: JobSpec, now_us: int) -> int | None:
    """When such a job could start if nobody else waited; None if not with the nodes in service.

    For questions of people (`--test-only`): it costs one search over the ledger.
    """
    partition = state.partition_views.get(spec.partition)
    if partition is None or not partition.up:
        return None
    need = compile_need(spec.components[0], partition, state.ledger.topology)
    if choose(state.ledger, need) is not None:
        return now_us
    overdue = Overdue(now_us, PlanLimits().overdue_grace_us)
    search = earliest_start(state.ledger, need, 0, spec.time_limit_s * SECOND_US, overdue)
    while True:
        try:
            next(search)
        except StopIteration as finished:
            promise: Promise | None = finished.value
            return promise.start_us if promise is not None else None
