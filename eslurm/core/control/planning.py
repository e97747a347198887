"""Between the cluster's state and the planner: the input of a cycle, and the facts from its plan.

Plan on a snapshot, apply with a check: a placement planned on an older generation is tried on the present ledger and
silently dropped if it no longer fits (the job is still in the queue).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from functools import partial
from typing import Final

from msgspec.structs import replace

from eslurm.core.control import lending, promises
from eslurm.core.control.fair_share import OthersUsage, rank
from eslurm.core.control.job_ids import take_task_ids
from eslurm.core.control.jobs import growing
from eslurm.core.control.jobs import pack_starts as starts
from eslurm.core.control.jobs.moves import on_answers, wishes_of
from eslurm.core.control.jobs.preemption import is_possible, on_preemptions, running_work
from eslurm.core.model import facts, ranges
from eslurm.core.model.job import Job, Span
from eslurm.core.model.job_states import AttemptPhase
from eslurm.core.model.messages import PlanMade, Preemption
from eslurm.core.model.placement import Placement
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.cycle import plan_cycle
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.preemption import Work
from eslurm.core.plan.cycle.priority import Ranking, weighs
from eslurm.core.plan.cycle.queue import PendingQueue, QueueEntry
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import Running, Snapshot, changes_since
from eslurm.core.plan.placement.mapping import revalidate
from eslurm.core.resources.devices import Picker
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.shares import by_node
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.state.allocation_amounts import own_spans
from eslurm.core.state.cluster import State, task_slots, waits
from eslurm.core.state.core_reports import ReportKey
from eslurm.core.state.job_indexes import fills

LIMITS: Final = PlanLimits(placements_max=256, examined_max=2_000, improved_max=500)
"""Bounds of one cycle of a controller."""
REPLAN_US: Final = 30 * SECOND_US
"""Time after which a queue that nothing else moves is planned again: promises grow old."""
DUE_MIN_US: Final = 50_000
"""A planned start that could not begin is tried again after so long."""
PROMISES_MAX: Final = 500
"""New promises in one message: some milliseconds."""


def next_cycle_in_us(plan: Plan | None, now_us: int) -> int:
    """Microseconds without events until the next cycle: the next planned start, or `REPLAN_US`."""
    if plan is None or plan.next_us == INFINITY_US:
        return REPLAN_US
    return min(max(plan.next_us - now_us, DUE_MIN_US), REPLAN_US)


def plan_slices(
    state: State,
    now_us: int,
    schedule: Schedule | None,
    limits: PlanLimits,
    *,
    ranking: Ranking | None = None,
    policy: str = "",
    keeps_promises: bool = False,
    others_usage: OthersUsage | None = None,
) -> Generator[None, None, Plan]:
    """One cycle, to be driven in slices. Clears `plan_wanted` when it takes its snapshot of the state.

    `schedule` is the last cycle's (None: none), `ranking` the planner's priorities (None: the queue's own order), `policy`
    another one than the configured. With `keeps_promises` the plan lists the promises for the log. `others_usage` is that of
    other clusters, for fair share.
    """
    schedule = schedule if schedule is not None else Schedule()
    takes_over = schedule.is_new and bool(state.promises)
    if takes_over:
        until_us = yield from promises.awaits_nodes(state, schedule, now_us)
        if until_us:
            state.plan_wanted = False
            return promises.waiting_plan(state, now_us, until_us)
    if ranking is not None:
        yield from rank(state, ranking, now_us, (state.queue, state.later), others_usage)
    state.plan_wanted = False
    state.changed.clear()
    snapshot = take_snapshot(state, max(now_us, state.now_us), schedule, ranking)
    work = _work(state, schedule, ranking)
    plan = yield from plan_cycle(
        snapshot, policy=policy or state.config.policy, limits=limits, schedule=schedule, work=work
    )
    if takes_over:
        plan = replace(plan, broken=promises.broken(state, schedule, plan))
    if keeps_promises:
        plan = yield from promises.with_changes(state, schedule, plan)
    return plan


def _work(state: State, schedule: Schedule | None, ranking: Ranking | None) -> Work | None:
    """The preemptable work; None when no job can preempt."""
    if not is_possible(state):
        return None
    if schedule is None or not schedule.preemptors:
        return partial(running_work, state, ranking)
    # Victims of a waiting preemptor must be leaving in the snapshot, too: those gone since are still needed.
    seen = running_work(state, ranking)
    return lambda: seen


def message_of(plan: Plan) -> PlanMade | None:
    """The plan as a message to the core; None when it is empty."""
    answers = plan.granted or plan.extended
    if not plan.placements and not plan.victims and not plan.moved and not answers:
        return None
    preemptions = tuple(
        [Preemption(one.work.job_id, one.work.attempt, one.mode, plan.preemptor) for one in plan.victims]
    )
    return PlanMade(plan.placements, plan.generation, preemptions, plan.moved, plan.granted, plan.extended)


def messages_of(plan: Plan) -> list[PlanMade]:
    """The same, followed in parts by the promises that the log does not have."""
    first = message_of(plan)
    parts = range(0, len(plan.promised), PROMISES_MAX)
    rest = [PlanMade((), plan.generation, (), plan.promised[at : at + PROMISES_MAX]) for at in parts]
    return [first, *rest] if first is not None else rest


def take_snapshot(
    state: State, now_us: int, schedule: Schedule | None, ranking: Ranking | None = None
) -> Snapshot:
    """The state in the form for a planning cycle."""
    since = schedule.mark if schedule is not None else None
    changes = changes_since(since, state.queue, state.later)
    known = schedule.known_jobs(changes) if schedule is not None else []
    kept = dict(state.promises) if schedule is not None and schedule.is_new else {}
    snapshot = Snapshot.take(
        state.ledger,
        state.partition_views,
        state.queue,
        generation=state.generation,
        now_us=now_us,
        running=state.live,
        later=state.later,
        known=[*known, *kept],
        policies=state.frozen_policies(),
        policies_changed=state.policies_changed,
        calendar=state.calendar,
        since=since,
        lenders=_lenders(state),
        promises=kept,
        wishes=wishes_of(state, now_us),
    )
    if state.growing:
        snapshot = replace(snapshot, fillers=growing.fillers(state, now_us))
    if state.loans or state.excluding:
        snapshot = replace(snapshot, lendable=lending.lendable(state), lent=lending.lent(state))
    if ranking is None or not weighs(state.config.priority):
        return snapshot
    ordered = ranking.ordered()
    return replace(snapshot, pending=_still_in(state.queue, ordered), later=_still_in(state.later, ordered))


def _lenders(state: State) -> list[Running]:
    found: list[Running] = []
    for job_id in sorted(state.lending):
        attempt = state.get_job(job_id).attempt
        # An attempt that is ending needs nothing back.
        if attempt is not None and attempt.stop is None and attempt.phase is AttemptPhase.RUNNING:
            found.append(state.live[job_id, attempt.number])
    return [one for one in found if one.lent]


def _still_in(queue: PendingQueue, ordered: Iterable[QueueEntry]) -> list[QueueEntry]:
    """The ranked entries of jobs that still wait as they are ranked; the next cycle ranks the changed ones."""
    return [
        entry
        for entry in ordered
        if (there := queue.entry(entry.job_id)) is not None and there.job is entry.job
    ]


def on_plan_made(state: State, message: PlanMade, now_us: int) -> list[facts.Fact]:
    """Turn each placement that still holds into an attempt; an array's gives its next task a record."""
    found: list[facts.Fact] = []
    if message.generation < max(state.configured, state.policies_changed):
        # Planned on other nodes and partitions, or under other rules: the next cycle is already wanted.
        return found
    scratch = state.ledger.fork() if message.generation != state.generation else None
    taken: dict[int, int] = {}
    lent: dict[ReportKey, int] = {}
    planned: set[int] = set()
    new_tasks = 0
    drafts: list[tuple[Job, Placement, int]] = []
    packed: dict[int, list[Placement]] = {}
    for placement in message.placements if _counts_all(state, message.generation) else ():
        job = state.find_job(placement.job_id)
        if job is None or state.changed.get(job.job_id, 0) > message.generation:
            continue
        if placement.job_id in planned and not job.is_array:
            continue
        planned.add(placement.job_id)
        if job.pack is not None:
            packed.setdefault(job.pack.pack_id, []).append(placement)
            continue
        # A controller that stood still: what held for the whole planned stay says nothing of the time after it.
        if not (waits(job) or fills(job)) or placement.until_us <= now_us:
            continue
        group = job.job_id if job.is_array else job.array_job_id
        if not _has_room(state, job, taken.get(group, 0)):
            continue
        if placement.loans and not lending.can_lend(state, placement.loans, lent):
            continue
        if scratch is not None and not _take(scratch, placement):
            continue
        for loan in placement.loans:
            key = loan.owner, loan.attempt, loan.node
            lent[key] = lent.get(key, 0) + loan.cores
        if group:
            taken[group] = taken.get(group, 0) + 1
        drafts.append((job, placement, new_tasks if job.is_array else -1))
        new_tasks += job.is_array
    for pack_id, placements in packed.items():
        together = starts.together(state, pack_id, placements, now_us)
        if scratch is not None and together:
            trial = scratch.fork()
            if not all(_take(trial, placement) for _, placement in together):
                continue
            scratch = trial
        drafts += [(job, placement, -1) for job, placement in together]
    lease, ids = take_task_ids(state, new_tasks)
    found += lease
    if len(ids) < new_tasks:
        drafts = [draft for draft in drafts if draft[2] < len(ids)]
    tasks = {job.job_id: _ready_tasks(job) for job, _, at in drafts if at >= 0}
    picker = Picker(state.devices, state.ledger.topology)
    for job, placement, at in drafts:
        spans = tuple(
            Span(
                span.node,
                span.amounts,
                span.tasks,
                span.component,
                devices=picker.take(span.node, span.amounts),
            )
            for span in placement.spans
        )
        until_us, wide = placement.until_us, placement.wide
        if job.grows is not None:
            found += growing.placed(state, job, spans, until_us)
            continue
        if at < 0:
            found.append(
                facts.JobPlaced(
                    job.job_id,
                    job.attempts + 1,
                    spans,
                    until_us,
                    wide=wide,
                    late_us=placement.late_us,
                    anchor_us=placement.anchor_us if job.pack is not None else 0,
                    loans=placement.loans,
                )
            )
            continue
        task = next(tasks[job.job_id])
        found.append(facts.JobPlaced(ids[at], 1, spans, until_us, job.job_id, task, wide, placement.late_us))
    found += on_preemptions(state, message.preemptions, now_us)
    answers, dropped = on_answers(state, message, now_us)
    kept = (
        tuple([one for one in message.promises if one.job_id not in dropped]) if dropped else message.promises
    )
    return found + answers + promises.on_promises(state, kept)


def _counts_all(state: State, generation: int) -> bool:
    """Check whether the rules have counted all that runs now: no attempt that they bind has taken lent cores back since."""
    return generation >= state.cores_returned or not (state.policies["limit"] or state.policies["pool"])


def _take(scratch: Ledger, placement: Placement) -> bool:
    """Hold a placement on this ledger, if it fits there."""
    if placement.loans:
        placement = replace(placement, spans=own_spans(placement.spans, placement.loans))
    if not revalidate(placement, scratch):
        return False
    scratch.hold_wide(placement.wide)
    for node, amounts in by_node(placement.spans):
        scratch.hold(node, amounts, placement.until_us)
    return True


def _has_room(state: State, job: Job, taken: int) -> bool:
    """Check whether the job's own rules let one more of it start, besides those `taken` from the same plan."""
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
