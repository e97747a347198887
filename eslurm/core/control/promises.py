"""Promises in the log: when they are written, and their use by the planner of a new leader (ADR 17).

Invariant: promises never contradict running jobs. Where every job has a planned start, changed promises are committed
together with the placements of the same cycle; without a placement they may wait. Where few are made, a promise that got
later or was given up is written in the same cycle, others may wait.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from msgspec.structs import replace

from eslurm.core.model import facts
from eslurm.core.model.job_states import JobState
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.promise import Promise
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.plan import BrokenPromise, Plan
from eslurm.core.plan.cycle.reasons import Why, WhyKind
from eslurm.core.plan.cycle.restored_bookings import PROMISES_PER_SLICE, kept_of
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.state.cluster import State

EVERY_US: Final = 2_000_000
"""Least interval of writes where every job has a promise and nothing starts."""
RENEWED_EVERY_US: Final = 10_000_000
"""Least interval where few promises are made, and those anew in each cycle."""
REGISTERING: Final = Why(
    WhyKind.NODES_UNAVAILABLE,
    "nodes that are promised to jobs still have to register with the new controller",
)


def awaits_nodes(state: State, schedule: Schedule, now_us: int) -> Generator[None, None, int]:
    """Time until which a new leader's planner waits for promised nodes; 0: it need not.

    Without the wait, jobs promised a part of the nodes would get other places, and unpromised jobs would take theirs.
    """
    awaited = schedule.awaited
    if awaited is None:
        unknown = {number for number, node in state.nodes.items() if node.state is NodeState.UNKNOWN}
        unknown -= state.removed
        awaited = set()
        for number, promise in enumerate(list(state.promises.values()) if unknown else (), 1):
            awaited.update(unknown.intersection(promise.nodes()))
            if number % PROMISES_PER_SLICE == 0:
                yield
    known = (state.nodes.get(number) for number in awaited)
    left = [node for node in known if node is not None and node.state is NodeState.UNKNOWN]
    schedule.awaited = {node.number for node in left}
    heartbeats = state.config.heartbeats_missed_max + 1
    until_us = max([node.since_us for node in left], default=0) + int(
        heartbeats * state.config.heartbeat_s * SECOND_US
    )
    return until_us if left and until_us > now_us else 0


def waiting_plan(state: State, now_us: int, until_us: int) -> Plan:
    """The plan of a planner that waits."""
    return Plan(state.generation, now_us, (), {}, {}, REGISTERING, 0, {}, next_us=until_us)


def with_changes(state: State, schedule: Schedule, plan: Plan) -> Generator[None, None, Plan]:
    """The plan with the promises to write now: the changed ones, and the new ones by their starts."""
    starts = {one.job_id for one in plan.placements}
    due_us = _due_us(schedule)
    may_wait = not _is_overstated(state, schedule) if schedule.renews else not starts
    may_wait &= not plan.granted
    if not schedule.moved or (due_us > plan.made_us and may_wait):
        return replace(plan, next_us=min(plan.next_us, due_us))
    schedule.told_us = plan.made_us
    moved: list[Promise] = []
    new: list[Promise] = []
    for number, job_id in enumerate(sorted(schedule.moved), 1):
        # Resources that preemption will release are no promise: they depend on other jobs' ends.
        bookings = schedule.bookings.get(job_id, ()) if job_id not in schedule.preemptors else ()
        now, before = kept_of(job_id, bookings), state.promises.get(job_id)
        if not _waits(state, job_id) or now == (before or Promise(job_id)):
            # Only what is written already is forgotten: a message may come to nothing.
            schedule.moved.discard(job_id)
        elif before is None:
            new.append(now)
        elif bookings or job_id not in starts or state.get_job(job_id).is_array:
            # A job loses its promise by starting, and keeps it if that fails; an array keeps it when a task starts.
            moved.append(now)
        if number % PROMISES_PER_SLICE == 0:
            yield
    new.sort(key=lambda one: (one.start_us, one.job_id))
    return replace(plan, moved=tuple(moved), promised=tuple(new))


def broken(state: State, schedule: Schedule, plan: Plan) -> tuple[BrokenPromise, ...]:
    """The initial promises of a new schedule that its first plan does not keep, the first start first."""
    placed = {one.job_id for one in plan.placements}
    found: list[BrokenPromise] = []
    for job_id, promise in state.promises.items():
        start_us = plan.start_us(job_id)
        if job_id in placed or not (job_id in state.queue or job_id in state.later):
            continue
        if start_us is None or start_us > promise.start_us:
            why = schedule.unkept.get(job_id, "it gave way to others that had lost their places")
            found.append(BrokenPromise(job_id, promise.start_us, start_us or 0, why))
    schedule.unkept.clear()
    return tuple(sorted(found, key=lambda one: (one.promised_us, one.job_id)))


def on_promises(state: State, promises: tuple[Promise, ...]) -> list[facts.Fact]:
    """The promises that are still true of the jobs."""
    found = [
        one
        for one in promises
        if _waits(state, one.job_id) and not (one.starts and _is_carried(state, one.job_id))
    ]
    return [facts.JobsPromised(tuple(found))] if found else []


def _is_overstated(state: State, schedule: Schedule) -> bool:
    """Check whether the log promises a waiting job an earlier start than its present one."""
    for job_id in schedule.moved:
        told = state.promises.get(job_id)
        bookings = schedule.bookings.get(job_id, ())
        if told is not None and min([one.start_us for one in bookings], default=INFINITY_US) > told.start_us:
            return True
    return False


def _due_us(schedule: Schedule) -> int:
    """Time of the next write of changes; `INFINITY_US` when there are none."""
    every_us = RENEWED_EVERY_US if schedule.renews else EVERY_US
    return schedule.told_us + every_us if schedule.moved else INFINITY_US


def _waits(state: State, job_id: int) -> bool:
    job = state.find_job(job_id)
    return job is not None and job.state is JobState.PENDING


def _is_carried(state: State, job_id: int) -> bool:
    """Check whether a pack's first member waits for this one too: the start of neither is the pack's anchor yet."""
    place = state.get_job(job_id).pack
    return place is not None and place.index > 0 and not place.anchor_us
