"""Users' requests about existing jobs, turned into facts or refused with a reason and the way out.

Each of them names jobs, or a selection. Invariant: each problem is reported for its own job, and the others go through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from eslurm.core.control.jobs import pack_requests
from eslurm.core.control.jobs.access import check_managed, get_seen, name_of, part_of
from eslurm.core.control.jobs.crontabs import check_not_line, disabled, is_line
from eslurm.core.control.jobs.movable import check_alone, check_here
from eslurm.core.control.jobs.running import suspend
from eslurm.core.control.jobs.stopping import stop
from eslurm.core.control.jobs.transfers import cancelled, given_up
from eslurm.core.control.jobs.users import check_user
from eslurm.core.control.rights import coordinates, is_operator, may_manage
from eslurm.core.model import facts, ranges
from eslurm.core.model.hostlist import fold
from eslurm.core.model.job import Job, Principal
from eslurm.core.model.job_states import ACTIVE, FINAL, HOLDS, STARTED, JobState, StopCause
from eslurm.core.model.messages import (
    CancelJobs,
    Changed,
    HoldJobs,
    JobProblem,
    JobRef,
    RefusalCode,
    Refused,
    RequeueJobs,
    SuspendJobs,
)
from eslurm.core.model.parts import partitions_of, user_parts
from eslurm.core.model.step import StepState
from eslurm.core.state.allocation_amounts import lends
from eslurm.core.state.cluster import State

PROBLEMS_MAX = 1_000
"""Individually reported problems of one call: answers are stored."""
NOTES_MAX = 10
"""Remarks on named parts."""
Decision = tuple[list[facts.Fact], Changed]
HELD = {
    "account": "held by a coordinator of its account: ask one to release it",
    "admin": "held by an administrator: ask one to release it",
}
Change = Callable[[Job, int], list[facts.Fact]]


def for_each(
    state: State, by: Principal, refs: Iterable[JobRef], change: Change, *, by_part: bool = False
) -> tuple[list[facts.Fact], Changed]:
    """Apply `change(job, task)` to each named job; the first problems are reported one by one, the others go through.

    A part names its whole job, and a job of a pack that has not begun the pack's first one, with a note; unless the change
    is one `by_part`.
    """
    found: list[facts.Fact] = []
    problems: list[JobProblem] = []
    notes: list[str] = []
    parted: set[tuple[int, int]] = set()
    packed: set[int] = set()
    count = failed = 0
    for ref in dict.fromkeys(refs):
        what = name_of(ref)
        try:
            job, task, part = _resolve(state, by, ref)
            check_managed(state, by, job, what)
            if user_parts(job.spec) > 1 and not by_part:
                if part >= 0 and len(notes) < NOTES_MAX:
                    notes.append(
                        f"{what} is part {part} of job {job.job_id}: "
                        f"this concerns the whole job, all {user_parts(job.spec)} parts"
                    )
                # Several of its parts may be named.
                if (job.job_id, task) in parted:
                    continue
                parted.add((job.job_id, task))
            if not by_part and job.pack is not None and pack_requests.is_whole(job):
                if job.pack.pack_id in packed:
                    continue
                packed.add(job.pack.pack_id)
                if len(notes) < NOTES_MAX:
                    notes.append(pack_requests.note_of(job, what))
                job = pack_requests.first_of(state, by, job, what)
            found += change(job, task)
            count += 1
        except Refused as refused:
            failed += 1
            if len(problems) < PROBLEMS_MAX:
                problems.append(JobProblem(what, refused.code, refused.text))
    if failed > len(problems):
        more = failed - len(problems)
        problems.append(JobProblem("", RefusalCode.CONFLICT, f"{more} more of them could not be changed"))
    return found, Changed(count, tuple(problems), tuple(notes))


def _resolve(state: State, by: Principal, ref: JobRef) -> tuple[Job, int, int]:
    """The record a reference means, a task that has no record of its own yet, or -1, and a part, or -1: all of them."""
    job = get_seen(state, by, ref.job_id)
    part = part_of(job, ref)
    if ref.task < 0:
        return job, -1, part
    if job.tasks_left is not None and ranges.contains(job.tasks_left, ref.task):
        return job, ref.task, part
    if (task := state.find_task(job.job_id, ref.task)) is not None:
        return task, -1, part
    raise Refused(RefusalCode.NOT_FOUND, f"job {ref.job_id} has no waiting or running task {ref.task}")


def _with_tasks(state: State, job: Job) -> list[Job]:
    """The record itself and, for an array, its tasks that are not final."""
    tasks = sorted(state.tasks_of.get(job.job_id, ()))
    return [job, *(task for task in map(state.get_job, tasks) if task.state not in FINAL)]


def _with_others(state: State, by: Principal, job: Job, refs: Iterable[JobRef]) -> list[Job]:
    """The record with an array's tasks, or with the other jobs of a pack that a request with these references concerns."""
    if job.pack is not None:
        is_named = pack_requests.is_named(job.pack.pack_id, refs)
        return pack_requests.concerned(state, by, job, is_named=is_named)
    return _with_tasks(state, job)


def _once(records: Iterable[Job], seen: set[int]) -> list[Job]:
    """The records not seen before: one job may be named twice, by its own id and as a task of its array, and all decisions
    for a message use the state before it.
    """
    fresh = [record for record in records if record.job_id not in seen]
    seen.update(record.job_id for record in fresh)
    return fresh


def on_cancel(state: State, message: CancelJobs, now_us: int) -> Decision:
    """End jobs, or send them a signal."""
    refs = message.jobs or _selected(state, message)
    wanted = "" if message.jobs else message.state.upper()
    cancelled: set[int] = set()
    signalled: set[int] = set()

    def change(job: Job, task: int) -> list[facts.Fact]:
        if message.lost:
            return given_up(job, message.by.name, now_us)
        if message.signal:
            return _signal(state, job, task, message, signalled)
        if not message.cron:
            check_not_line(state, job, "--cron ends the job and disables the line")
        if task >= 0:
            return [facts.TasksDropped(job.job_id, ((task, task),), f"cancelled by {message.by.name}")]
        with_it = _with_others(state, message.by, job, message.jobs)
        if job.state in FINAL and not [one for one in with_it if one.state not in FINAL]:
            raise Refused(RefusalCode.CONFLICT, f"job {job.job_id} has already ended ({job.state.value})")
        found: list[facts.Fact] = []
        concerned = [one for one in with_it if wanted in ("", one.state.value)]
        for record in _once(concerned, cancelled):
            found += _cancel(state, record, message.by.name, now_us, alone=bool(wanted))
        return found

    found, answer = for_each(state, message.by, refs, change)
    return [*disabled(state, cancelled), *found], answer


def _cancel(state: State, job: Job, by: str, now_us: int, *, alone: bool) -> list[facts.Fact]:
    """Cancel a job; `alone`: of an array only the tasks without a record of their own."""
    if job.is_array and job.tasks_running and alone:
        left = job.tasks_left or ()
        return [facts.TasksDropped(job.job_id, left, f"cancelled by {by}")] if left else []
    if job.is_away and job.state not in FINAL:
        return cancelled(job, by)
    if job.state is JobState.PENDING and job.outcome is None:
        return [facts.JobFinished(job.job_id, JobState.CANCELLED, f"cancelled by {by}")]
    return stop(state, job, StopCause.CANCEL, now_us, by) if job.state in ACTIVE else []


def _signal(state: State, job: Job, task: int, message: CancelJobs, signalled: set[int]) -> list[facts.Fact]:
    """Signal the script and what it has started, or the job's steps, as far as the message reaches."""
    records = _with_tasks(state, job) if task < 0 else []
    running = [record for record in records if record.state in STARTED]
    if not running:
        raise Refused(RefusalCode.CONFLICT, f"job {job.job_id} is not running: there is nothing to signal")
    found: list[facts.Fact] = []
    for record in _once(running, signalled):
        assert record.attempt is not None
        number, signal, by = record.attempt.number, message.signal, message.by.name
        if message.reach in ("", "all") and not record.spec.no_script:
            found.append(facts.JobSignalled(record.job_id, number, signal, by))
        if message.reach in ("steps", "all") or record.spec.no_script:
            steps = _running_steps(state, record.job_id, number)
            found += [facts.JobSignalled(record.job_id, number, signal, by, step) for step in steps]
    return found


def _running_steps(state: State, job_id: int, attempt: int) -> list[int]:
    """The numbers of the steps that have begun in this attempt and not ended."""
    steps = [state.steps[job_id, number] for number in sorted(state.steps_of.get(job_id, ()))]
    return [one.step for one in steps if one.attempt == attempt and one.state is StepState.RUNNING]


def _selected(state: State, message: CancelJobs) -> list[JobRef]:
    if not (message.user or message.name or message.partition or message.state):
        raise Refused(
            RefusalCode.INVALID, "nothing is named: give job ids, or --user, --name, --partition or --state"
        )
    return [
        JobRef(job.job_id)
        for job in state.jobs.values()
        if job.state not in FINAL
        and (message.cron or not is_line(state, job.job_id))
        and may_manage(state, message.by, job)
        and message.user in ("", job.spec.user.name)
        and message.name in ("", job.spec.name)
        and (not message.partition or message.partition in partitions_of(job.spec))
        and message.state.upper() in ("", job.state.value)
    ]


def on_hold(state: State, message: HoldJobs, now_us: int) -> Decision:
    """Hold pending jobs, or release them. A hold is lifted by a caller who could have set it."""

    def change(job: Job, task: int) -> list[facts.Fact]:
        if task >= 0:
            raise Refused(
                RefusalCode.INVALID, f"task {task} waits within its array: hold job {job.job_id} as a whole"
            )
        check_here(job)
        # An array's tasks that wait for another attempt are held and released with it.
        with_it = _with_others(state, message.by, job, message.jobs)
        waiting = [record for record in with_it if record.state is JobState.PENDING]
        if not waiting or (job.state is not JobState.PENDING and job.pack is None):
            raise Refused(
                RefusalCode.CONFLICT, f"job {job.job_id} is {job.state.value}: only waiting jobs can be held"
            )
        if pack_requests.is_whole(job):
            # The fact about its first job is one about all.
            waiting = [job]
        if message.release:
            check_user(state, job.spec.user)
            most = max((HOLDS.index(record.hold) for record in waiting), default=0)
            if most > HOLDS.index(_hold_of(state, message.by, job)):
                raise Refused(RefusalCode.DENIED, f"job {job.job_id} was {HELD[HOLDS[most]]}")
            return [facts.JobHeld(record.job_id, "") for record in waiting if record.hold]
        return _held(state, message.by, job, waiting)

    return for_each(state, message.by, message.jobs, change)


def _held(state: State, by: Principal, job: Job, records: Iterable[Job]) -> list[facts.Fact]:
    """Hold the job's records, but for those with a stronger hold already."""
    hold = "user" if job.spec.user.uid == by.uid else _hold_of(state, by, job)
    return [
        facts.JobHeld(record.job_id, hold, f"held by {by.name}")
        for record in records
        if HOLDS.index(record.hold) < HOLDS.index(hold)
    ]


def _hold_of(state: State, by: Principal, job: Job) -> str:
    """The strongest hold that the caller may set."""
    if is_operator(state, by):
        return "admin"
    return "account" if coordinates(state, by, job.spec.account) else "user"


def on_requeue(state: State, message: RequeueJobs, now_us: int) -> Decision:
    """End the live attempts; the jobs wait again, on hold if the message says so."""
    requeued: set[int] = set()

    def change(job: Job, task: int) -> list[facts.Fact]:
        check_here(job)
        if job.spec.no_script:
            text = f"job {job.job_id} is an allocation without a script: nothing of it can be started again"
            raise Refused(RefusalCode.CONFLICT, text)
        live = [
            record
            for record in _with_others(state, message.by, job, message.jobs)
            if record.state is JobState.LAUNCHING or record.state in STARTED
        ]
        if not live or task >= 0:
            raise Refused(
                RefusalCode.CONFLICT, f"job {job.job_id} is not running: there is nothing to requeue"
            )
        if message.hold and job.pack is not None:
            text = f"job {job.job_id} is of pack {job.pack.pack_id}: requeue it, and hold the pack when it waits again"
            raise Refused(RefusalCode.CONFLICT, text)
        for record in live:
            _check_whole(state, record)
        fresh = _once(live, requeued)
        found = _held(state, message.by, job, fresh) if message.hold else []
        for record in fresh:
            found += stop(state, record, StopCause.REQUEUE, now_us, message.by.name)
        return found

    return for_each(state, message.by, message.jobs, change)


def _check_whole(state: State, job: Job) -> None:
    """Check that nothing of a job may run on where it was given up. Raises `Refused`."""
    attempt = job.attempt
    if attempt is None or not attempt.gone or job.spec.requeue:
        return
    names = fold(state.node_names(sorted(attempt.gone)))
    raise Refused(
        RefusalCode.CONFLICT,
        f"job {job.job_id} goes on without {names}, where it may still run, and it has --no-requeue: "
        "cancel it and submit it again",
    )


def on_suspend(state: State, message: SuspendJobs, now_us: int) -> Decision:
    """Suspend running jobs, or resume them: for operators only, because suspended jobs keep their nodes."""
    if not is_operator(state, message.by):
        raise Refused(
            RefusalCode.DENIED, f"{message.by.name} is no operator: only they suspend and resume jobs"
        )

    by = f"by {message.by.name}"
    returned: set[int] = set()
    seen: set[int] = set()

    def suspend_one(job: Job) -> list[facts.Fact]:
        assert job.attempt is not None
        if not message.resume:
            check_alone(job, "suspending it")
        told = suspend(state, job, by, now_us, resume=message.resume)
        if told and message.resume and lends(job.attempt):
            # Two that lent the same cores: the second goes on when the first has ended.
            if not returned.isdisjoint(job.attempt.held):
                raise Refused(
                    RefusalCode.CONFLICT,
                    f"job {job.job_id} made room together with others that go on now: "
                    "it goes on by itself when its cores are free",
                )
            returned.update(job.attempt.held)
        return told

    def change(job: Job, task: int) -> list[facts.Fact]:
        records = _with_tasks(state, job) if task < 0 else []
        concerned = [record for record in records if record.state in STARTED]
        if not concerned:
            raise Refused(
                RefusalCode.CONFLICT,
                f"job {job.job_id} is {job.state.value}: only a running job can be suspended",
            )
        found: list[facts.Fact] = []
        problem: Refused | None = None
        for one in _once(concerned, seen):
            try:
                found += suspend_one(one)
            except Refused as refused:
                # A task that ends just now does not keep the others of its array from it.
                problem = refused
        if problem is not None and not found:
            raise problem
        return found

    return for_each(state, message.by, message.jobs, change)
