"""Waiting reasons from the job's own record, and the expected ends of its dependencies.

Invariant: nothing here changes state or schedule.
"""

from __future__ import annotations

from eslurm.core.control.jobs.pack_ends import is_pack
from eslurm.core.explain.why import Holder, Reason, known_us, shortened
from eslurm.core.model import ranges
from eslurm.core.model.job import Dependency, Job
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.wording import counted
from eslurm.core.plan.cycle.reasons import WhyKind
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.resources import bits
from eslurm.core.state.cluster import State, name_key, task_slots
from eslurm.core.state.endings import settled_outcome

HOLDS = {
    "user": "held by its user: esctl release {id} lets it go",
    "account": "held by a coordinator of its account: ask one for esctl release {id}",
    "admin": "held by an administrator: ask one for esctl release {id}",
}


def own_reasons(state: State, schedule: Schedule, job: Job) -> list[Reason]:
    """Reasons that free resources do not remove: holds, times, other jobs, its array's limit."""
    found: list[Reason] = []
    if job.transfer is not None and job.is_away:
        word = "arriving from" if job.home else "being offered to"
        found.append(Reason("transfer", f"it is {word} cell {job.transfer.cell}, which takes a moment"))
    if job.hold:
        text = HOLDS.get(job.hold, "held by the system ({why}): esctl release {id} lets it go")
        found.append(Reason("hold", text.format(id=job.job_id, why=job.reason_text or "launches failed")))
    if job.not_before_us:
        text = "not before its begin time" if job.not_before_us == job.spec.begin_us else _pause_text(job)
        found.append(Reason(WhyKind.BEGIN_TIME.value, text, job.not_before_us))
    found += [_dependency(state, schedule, job, one) for one in job.open]
    return found + _array_reasons(state, job)


def older_agents(state: State, job: Job) -> list[Reason]:
    """Nodes of a job of several parts whose agents cannot start it."""
    if not job.spec.parts:
        return []
    ledger = state.ledger
    names = {part.partition or job.spec.partition for part in job.spec.parts}
    count = 0
    for position in bits.all_positions(ledger.older & ledger.usable):
        partitions = ledger.topology.partitions
        count += any(partitions.get(name, 0) >> position & 1 for name in names)
    if not count:
        return []
    have = "has" if count == 1 else "have"
    text = (
        f"{counted(count, 'node')} {have} an older agent, which cannot start jobs of several parts: update esnoded there; "
        "where that is done, start it again while no job runs there"
    )
    return [Reason("older_agents", text)]


def _pause_text(job: Job) -> str:
    return f"tried again after a pause: {job.exit_text}" if job.exit_text else "not before a delay is over"


def _dependency(state: State, schedule: Schedule, job: Job, one: Dependency) -> Reason:
    kind = WhyKind.DEPENDENCY.value
    if one.kind == "singleton":
        twins = sorted(state.same_name.get(name_key(job.spec), set()) - {job.job_id})
        earlier = [twin for twin in twins if not job.job_id or twin < job.job_id]
        text = f"waits for {counted(len(earlier), 'earlier job')} of the same name (singleton)"
        return Reason(
            kind, text, holders=tuple(shortened([job_holder(state, schedule, twin) for twin in earlier]))
        )
    target = state.find_job(one.job_id)
    if target is None:
        return Reason(kind, f"waits for job {one.job_id} ({one.kind}), which is not known any more")
    until_us = one.due_us or expected_end_of(state, schedule, one)
    record = target
    if is_pack(one, target):
        return _of_pack(state, schedule, job, one, until_us)
    if one.task >= 0:
        record = state.find_task(one.job_id, one.task) or target
        text = f"waits for task {one.job_id}_{one.task} ({one.kind}), which is {record.state.value}"
    else:
        text = f"waits for job {one.job_id} ({one.kind}), which is {target.state.value}"
    if one.due_us:
        text = f"waits until {one.delay_s // 60} min after job {one.job_id} began"
    if target.state is JobState.PENDING and not until_us:
        text += " without a planned start"
    text += _one_is_enough(job)
    return Reason(kind, text, until_us, holders=(job_holder(state, schedule, record.job_id),))


def _one_is_enough(job: Job) -> str:
    return f"; one of {len(job.open)} is enough" if job.spec.dependency_any and len(job.open) > 1 else ""


def _of_pack(state: State, schedule: Schedule, job: Job, one: Dependency, until_us: int) -> Reason:
    """The reason of a job that waits for all of a pack."""
    first = state.get_job(one.job_id)
    assert first.pack is not None
    left = [job_id for job_id in state.packs.get(one.job_id, ()) if not settled_outcome(state.jobs[job_id])]
    have = "has" if len(left) == 1 else "have"
    text = f"waits for pack {one.job_id} ({one.kind}): {len(left)} of its {first.pack.count} jobs {have} not ended"
    if not first.pack.anchor_us and not until_us:
        text += ", and it has no planned start"
    holders = [job_holder(state, schedule, job_id) for job_id in left]
    return Reason(
        WhyKind.DEPENDENCY.value, text + _one_is_enough(job), until_us, holders=tuple(shortened(holders))
    )


def _array_reasons(state: State, job: Job) -> list[Reason]:
    array = job if job.is_array else state.find_job(job.array_job_id) if job.array_job_id else None
    if array is None or array.spec.array is None:
        return []
    if job.is_array and not ranges.count(job.tasks_left or ()):
        have = "has" if array.tasks_running == 1 else "have"
        return [
            Reason(
                "tasks_running", f"all its tasks have begun; {array.tasks_running} of them {have} not ended"
            )
        ]
    limit = array.spec.array.limit
    if not limit or task_slots(array):
        return []
    ends = [
        attempt.until_us
        for task in state.tasks_of.get(array.job_id, ())
        if (attempt := state.jobs[task].attempt) is not None
    ]
    runs = "runs" if array.tasks_running == 1 else "run"
    text = f"{array.tasks_running} of its tasks {runs}, {limit} at a time may (--array ...%{limit})"
    return [Reason("array_limit", text, known_us(min(ends, default=0)))]


def expected_end_of(state: State, schedule: Schedule, one: Dependency) -> int:
    """Expected end of what a dependency waits for; 0: not foreseeable."""
    first = state.find_job(one.job_id)
    if first is None or first.pack is None or not is_pack(one, first) or not first.pack.anchor_us:
        # The bookings of a pack that has not begun are those of its first job.
        return expected_end_us(state, schedule, one.job_id, one.task)
    ends = [expected_end_us(state, schedule, job_id) for job_id in state.packs.get(one.job_id, ())]
    return max(ends) if all(ends) else 0


def expected_end_us(state: State, schedule: Schedule, job_id: int, task: int = -1) -> int:
    """Expected end of a job, or of one task of it, by its plan; 0: not foreseeable."""
    record = state.find_task(job_id, task) if task >= 0 else None
    if record is not None:
        return _task_end_us(schedule, record)
    job = state.find_job(job_id)
    if job is None or job.state in FINAL:
        return 0
    waits = job.state is JobState.PENDING and job.tasks_left != ()
    ends: list[int] = [schedule.planned_end_us(job_id)] if waits else []
    if job.attempt is not None:
        ends.append(schedule.end_us((job_id, job.attempt.number)) or job.attempt.until_us)
    for task_id in state.tasks_of.get(job_id, ()):
        one = state.jobs[task_id]
        if one.state not in FINAL:
            ends.append(_task_end_us(schedule, one))
    # One that cannot be foreseen is enough.
    return known_us(max(ends)) if ends and all(ends) else 0


def _task_end_us(schedule: Schedule, task: Job) -> int:
    if task.attempt is None:
        return known_us(schedule.planned_end_us(task.job_id))
    return known_us(schedule.end_us((task.job_id, task.attempt.number)) or task.attempt.until_us)


def job_holder(state: State, schedule: Schedule, job_id: int) -> Holder:
    """The job as a `Holder`, for which others wait."""
    job = state.find_job(job_id)
    nodes = len(job.attempt.nodes) if job is not None and job.attempt is not None else 0
    return Holder(f"job {job_id}", job_id, nodes, expected_end_us(state, schedule, job_id))
