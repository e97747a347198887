"""What people ask of jobs, turned into facts or refused with a reason and the way out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from msgspec.structs import replace

from eslurm.core import facts
from eslurm.core.account.associations import associated, check_times, within_qos
from eslurm.core.account.defaults import with_defaults
from eslurm.core.account.model import Defaults
from eslurm.core.account.submission import submission_problem
from eslurm.core.cluster import SECOND_US, State, name_key
from eslurm.core.config import Partition
from eslurm.core.ids import take_ids
from eslurm.core.job import ranges
from eslurm.core.job.dependency import KINDS, MET, NEVER, WAIT, delayed_until_us, judge
from eslurm.core.job.holding import lends
from eslurm.core.job.model import Dependency, Job, JobSpec, Principal
from eslurm.core.job.request import Request
from eslurm.core.job.running import change_limit, suspend
from eslurm.core.job.states import ACTIVE, FINAL, STARTED, JobState, StopCause
from eslurm.core.job.stopping import stop
from eslurm.core.messages import (
    CancelJobs,
    Changed,
    HoldJobs,
    JobProblem,
    JobRef,
    RefusalCode,
    Refused,
    RequeueJobs,
    SubmitJobs,
    Submitted,
    SuspendJobs,
    UpdateJob,
)
from eslurm.core.plan.feasible import empty_ledger, feasible_ever
from eslurm.core.plan.priority import NICE_MAX, PRIORITY_DEFAULT, PRIORITY_MAX, weighs

FEASIBLE_MAX = 1024
"""Bound of the memory of which requests fit; a site's users ask for few different shapes."""

Decision = tuple[list[facts.Fact], Submitted | Changed]


def is_operator(state: State, who: Principal) -> bool:
    """Operators may change anything; never someone who came through an agent's door."""
    return who.uid in state.config.operators and who.via != "agent"


# ---- submit ----


def on_submit(state: State, message: SubmitJobs, now_us: int) -> Decision:
    """All of the jobs or none. Raises `Refused` naming the option and the way out."""
    if state.pending_count + len(message.specs) > state.config.pending_jobs_max:
        raise Refused(
            RefusalCode.EXHAUSTED,
            f"the queue is full ({state.config.pending_jobs_max} waiting jobs): submit again later",
        )
    lease, ids = take_ids(state, len(message.specs))
    found: list[facts.Fact] = list(lease)
    names: set[tuple[int, str]] = set()
    beside = 0
    for job_id, spec in zip(ids, message.specs, strict=True):
        spec = admitted(state, spec, now_us, beside)
        beside += jobs_of(spec)
        _check_priority(state, spec)
        still_open, not_before_us = _open_dependencies(state, spec, job_id, names)
        names.add(name_key(spec))
        due_us = max(spec.begin_us, not_before_us)
        priority = first_priority(state, spec)
        found.append(facts.JobSubmitted(job_id, spec, priority, still_open, due_us if due_us > now_us else 0))
    return found, Submitted(tuple(ids))


def admitted(state: State, spec: JobSpec, now_us: int, beside: int = 0) -> JobSpec:
    """A new job's spec as it is accepted, beside so many others. Raises `Refused`."""
    spec = checked(state, spec, now_us, spec.user)
    check_times(state, spec, now_us)
    _check_limits(state, spec, now_us, beside)
    return spec


def _check_limits(
    state: State, spec: JobSpec, now_us: int, beside: int = 0, before: JobSpec | None = None
) -> None:
    if any(state.policies[kind] for kind in ("limit", "pool", "reservation")):
        problem = submission_problem(state, spec, now_us, beside, before)
        if problem is not None:
            raise Refused(RefusalCode.INFEASIBLE, problem)


def jobs_of(spec: JobSpec) -> int:
    """How many jobs a submission stands for: each task of an array is one."""
    return ranges.count(spec.array.tasks) if spec.array is not None else 1


def checked(state: State, spec: JobSpec, now_us: int, by: Principal) -> JobSpec:
    """The spec with the defaults of its user and partition filled in. Raises `Refused` if it may not or can never run.

    `by` is who asks for it to be so: its user, or an operator who changes it.
    """
    if state.policies["defaults"]:
        spec = with_defaults(spec, cast("Iterable[Defaults]", state.policies["defaults"].values()))
    spec = associated(state, spec, now_us, operator=is_operator(state, by))
    partition = _partition(state, spec.partition)
    limit_s = spec.time_limit_s or partition.time_limit_default_s or partition.time_limit_max_s
    if partition.time_limit_max_s and limit_s > partition.time_limit_max_s:
        raise Refused(
            RefusalCode.INFEASIBLE,
            f"--time: {limit_s} s is more than partition {partition.name} allows "
            f"({partition.time_limit_max_s} s): ask for less or use another partition",
        )
    if spec.array is not None and ranges.count(spec.array.tasks) > state.config.array_tasks_max:
        raise Refused(
            RefusalCode.INVALID,
            f"--array: {ranges.count(spec.array.tasks)} tasks are more than {state.config.array_tasks_max}: split it",
        )
    is_said = bool(spec.time_limit_s)
    spec = replace(spec, partition=partition.name, time_limit_s=limit_s)
    spec = within_qos(state, spec, is_said=is_said)
    for request in spec.components:
        _feasible(state, spec.partition, request, spec.time_limit_s)
    return spec


def _partition(state: State, name: str) -> Partition:
    if not name:
        for partition in state.config.partitions:
            if partition.default:
                return partition
        raise Refused(RefusalCode.INVALID, "--partition: there is no default partition: name one")
    named = state.partitions.get(name)
    if named is None:
        known = ", ".join(sorted(state.partitions)) or "none"
        raise Refused(RefusalCode.INVALID, f"--partition: '{name}' does not exist: use one of {known}")
    return named


def _feasible(state: State, partition: str, request: Request, time_limit_s: int) -> None:
    # The time limit matters only where some nodes are for short jobs.
    limit_us = time_limit_s * SECOND_US if state.ledger.topology.rules else 0
    key = (partition, request, limit_us)
    known = state.feasible.get(key)
    if known is None:
        if state.empty is None:
            state.empty = empty_ledger(state.ledger.topology)
        problem = feasible_ever(request, state.partition_views[partition], state.empty, limit_us)
        known = problem.reason if problem is not None else ""
        if len(state.feasible) >= FEASIBLE_MAX:
            state.feasible.clear()
        state.feasible[key] = known
    if known:
        raise Refused(RefusalCode.INFEASIBLE, known)


def first_priority(state: State, spec: JobSpec) -> int:
    """The number a job starts with. Where the site weighs nothing there is no other place for its nice value."""
    if spec.priority is not None:
        return spec.priority
    return PRIORITY_DEFAULT if weighs(state.config.priority) else max(0, PRIORITY_DEFAULT - spec.nice)


def check_nice(state: State, nice: int, by: Principal) -> None:
    """Anybody may step back. Raises `Refused` for what is out of range, and for other people's stepping forward."""
    if not -NICE_MAX <= nice <= NICE_MAX:
        raise Refused(RefusalCode.INVALID, f"--nice: {nice} is not within {-NICE_MAX}..{NICE_MAX}")
    if nice < 0 and not is_operator(state, by):
        raise Refused(RefusalCode.DENIED, f"--nice: only operators may go below 0: {nice} is, leave it out")


def _check_priority(state: State, spec: JobSpec) -> None:
    check_nice(state, spec.nice, spec.user)
    if spec.priority is None:
        return
    if not 0 <= spec.priority <= PRIORITY_MAX:
        raise Refused(RefusalCode.INVALID, f"--priority: {spec.priority} is not within 0..{PRIORITY_MAX}")
    if is_operator(state, spec.user):
        return
    if weighs(state.config.priority) and spec.priority != PRIORITY_DEFAULT:
        raise Refused(
            RefusalCode.DENIED,
            f"--priority: {spec.priority}: priorities are computed here and only operators give numbers: "
            "use --nice to step back",
        )
    if spec.priority > PRIORITY_DEFAULT:
        raise Refused(
            RefusalCode.DENIED,
            f"--priority: only operators may go above {PRIORITY_DEFAULT}: use a lower number",
        )


def _open_dependencies(
    state: State, spec: JobSpec, job_id: int, names: set[tuple[int, str]]
) -> tuple[tuple[Dependency, ...], int]:
    """`names` are those of the jobs before it in the same message, which the state does not know yet."""
    still_open: list[Dependency] = []
    met: list[Dependency] = []
    for dependency in spec.dependencies:
        if dependency.kind not in KINDS:
            raise Refused(
                RefusalCode.INVALID,
                f"--dependency: '{dependency.kind}' is unknown: use one of {', '.join(KINDS)}",
            )
        known = dependency.job_id in state.jobs or dependency.settled or dependency.kind == "singleton"
        if not known:
            raise Refused(RefusalCode.INVALID, f"--dependency: job {dependency.job_id} does not exist")
        verdict = judge(state, dependency, spec, job_id)
        if dependency.kind == "singleton" and name_key(spec) in names:
            verdict = WAIT
        if verdict == NEVER:
            raise Refused(
                RefusalCode.INVALID,
                f"--dependency: {dependency.kind}:{dependency.job_id} can never be met: that job has ended otherwise",
            )
        if verdict == WAIT:
            still_open.append(dependency)
        elif verdict == MET:
            met.append(dependency)
            if dependency.kind == "aftercorr" and spec.array is not None:
                target = state.find_job(dependency.job_id)
                if target is not None and target.is_array:
                    still_open.append(dependency)
    return tuple(still_open), delayed_until_us(state, met)


# ---- everything that names existing jobs ----

Change = Callable[[Job, int], list[facts.Fact]]


def _for_each(
    state: State, by: Principal, refs: Iterable[JobRef], change: Change
) -> tuple[list[facts.Fact], Changed]:
    """Apply `change(job, task)` to each named job; problems are told one by one, the others go through."""
    found: list[facts.Fact] = []
    problems: list[JobProblem] = []
    count = 0
    for ref in dict.fromkeys(refs):
        what = f"{ref.job_id}_{ref.task}" if ref.task >= 0 else str(ref.job_id)
        try:
            job, task = _resolve(state, ref)
            if by.uid != job.spec.user.uid and not is_operator(state, by):
                raise Refused(RefusalCode.DENIED, f"job {what} belongs to {job.spec.user.name}")
            found += change(job, task)
            count += 1
        except Refused as refused:
            problems.append(JobProblem(what, refused.code, refused.text))
    return found, Changed(count, tuple(problems))


def _resolve(state: State, ref: JobRef) -> tuple[Job, int]:
    """The record a reference means; the second value is a task that has no record of its own yet, or -1."""
    job = state.find_job(ref.job_id)
    if job is None:
        raise Refused(
            RefusalCode.NOT_FOUND, f"job {ref.job_id} does not exist or has ended long ago: see esacct"
        )
    if ref.task < 0:
        return job, -1
    if job.tasks_left is not None and ranges.contains(job.tasks_left, ref.task):
        return job, ref.task
    for task_id in state.tasks_of.get(ref.job_id, ()):
        task = state.get_job(task_id)
        if task.array_task == ref.task:
            return task, -1
    raise Refused(RefusalCode.NOT_FOUND, f"job {ref.job_id} has no waiting or running task {ref.task}")


def _with_tasks(state: State, job: Job) -> list[Job]:
    """The record itself and, for an array, its tasks that are not final."""
    tasks = sorted(state.tasks_of.get(job.job_id, ()))
    return [job, *(task for task in map(state.get_job, tasks) if task.state not in FINAL)]


def on_cancel(state: State, message: CancelJobs, now_us: int) -> Decision:
    """End jobs, or send them a signal."""
    refs = message.jobs or _selected(state, message)
    wanted = "" if message.jobs else message.state.upper()
    cancelled: set[int] = set()

    def change(job: Job, task: int) -> list[facts.Fact]:
        if message.signal:
            return _signal(state, job, task, message.signal, message.by.name)
        if task >= 0:
            return [facts.TasksDropped(job.job_id, ((task, task),), f"cancelled by {message.by.name}")]
        if job.state in FINAL:
            raise Refused(RefusalCode.CONFLICT, f"job {job.job_id} has already ended ({job.state.value})")
        found: list[facts.Fact] = []
        for record in _with_tasks(state, job):
            if record.job_id not in cancelled and wanted in ("", record.state.value):
                cancelled.add(record.job_id)
                found += _cancel(state, record, message.by.name, now_us, alone=bool(wanted))
        return found

    return _for_each(state, message.by, refs, change)


def _cancel(state: State, job: Job, by: str, now_us: int, *, alone: bool) -> list[facts.Fact]:
    """`alone`: of an array only the tasks without a record of their own."""
    if job.is_array and job.tasks_running and alone:
        left = job.tasks_left or ()
        return [facts.TasksDropped(job.job_id, left, f"cancelled by {by}")] if left else []
    if job.state is JobState.PENDING and job.outcome is None:
        return [facts.JobFinished(job.job_id, JobState.CANCELLED, f"cancelled by {by}")]
    return stop(state, job, StopCause.CANCEL, now_us, by) if job.state in ACTIVE else []


def _signal(state: State, job: Job, task: int, signal: int, by: str) -> list[facts.Fact]:
    records = _with_tasks(state, job) if task < 0 else []
    running = [record for record in records if record.state in STARTED]
    if not running:
        raise Refused(RefusalCode.CONFLICT, f"job {job.job_id} is not running: there is nothing to signal")
    found: list[facts.Fact] = []
    for record in running:
        assert record.attempt is not None
        found.append(facts.JobSignalled(record.job_id, record.attempt.number, signal, by))
    return found


def _selected(state: State, message: CancelJobs) -> list[JobRef]:
    if not (message.user or message.name or message.partition or message.state):
        raise Refused(
            RefusalCode.INVALID, "nothing is named: give job ids, or --user, --name, --partition or --state"
        )
    operator = is_operator(state, message.by)
    return [
        JobRef(job.job_id)
        for job in state.jobs.values()
        if job.state not in FINAL
        and (operator or job.spec.user.uid == message.by.uid)
        and message.user in ("", job.spec.user.name)
        and message.name in ("", job.spec.name)
        and message.partition in ("", job.spec.partition)
        and message.state.upper() in ("", job.state.value)
    ]


def on_hold(state: State, message: HoldJobs, now_us: int) -> Decision:
    """Hold pending jobs, or let them go."""
    operator = is_operator(state, message.by)

    def change(job: Job, task: int) -> list[facts.Fact]:
        if task >= 0:
            raise Refused(
                RefusalCode.INVALID, f"task {task} waits within its array: hold job {job.job_id} as a whole"
            )
        if job.state is not JobState.PENDING:
            raise Refused(
                RefusalCode.CONFLICT, f"job {job.job_id} is {job.state.value}: only waiting jobs can be held"
            )
        # An array's tasks that wait for another attempt are held and released with it.
        waiting = [record for record in _with_tasks(state, job) if record.state is JobState.PENDING]
        if message.release:
            if any(record.hold == "admin" for record in waiting) and not operator:
                raise Refused(
                    RefusalCode.DENIED,
                    f"job {job.job_id} was held by an administrator: ask one to release it",
                )
            return [facts.JobHeld(record.job_id, "") for record in waiting if record.hold]
        hold = "user" if job.spec.user.uid == message.by.uid else "admin"
        return [
            facts.JobHeld(record.job_id, hold, f"held by {message.by.name}")
            for record in waiting
            if record.hold not in (hold, "admin")
        ]

    return _for_each(state, message.by, message.jobs, change)


def on_requeue(state: State, message: RequeueJobs, now_us: int) -> Decision:
    """End the live attempts; the jobs wait again."""

    def change(job: Job, task: int) -> list[facts.Fact]:
        live = [
            record
            for record in _with_tasks(state, job)
            if record.state is JobState.LAUNCHING or record.state in STARTED
        ]
        if not live or task >= 0:
            raise Refused(
                RefusalCode.CONFLICT, f"job {job.job_id} is not running: there is nothing to requeue"
            )
        found: list[facts.Fact] = []
        for record in live:
            found += stop(state, record, StopCause.REQUEUE, now_us, message.by.name)
        return found

    return _for_each(state, message.by, message.jobs, change)


def on_suspend(state: State, message: SuspendJobs, now_us: int) -> Decision:
    """Stop running jobs where they are, or let them go on: for operators only, as what stands still keeps its nodes."""
    if not is_operator(state, message.by):
        raise Refused(
            RefusalCode.DENIED, f"{message.by.name} is no operator: only they suspend and resume jobs"
        )

    returned: set[int] = set()

    def change(job: Job, task: int) -> list[facts.Fact]:
        records = _with_tasks(state, job) if task < 0 else []
        concerned = [record for record in records if record.state in STARTED]
        if not concerned:
            raise Refused(
                RefusalCode.CONFLICT,
                f"job {job.job_id} is {job.state.value}: only a running job can be suspended",
            )
        by = f"by {message.by.name}"
        found: list[facts.Fact] = []
        for one in concerned:
            assert one.attempt is not None
            told = suspend(state, one, by, resume=message.resume)
            if told and message.resume and lends(one.attempt):
                # Two that lent the same cores: the second goes on when the first has ended.
                if not returned.isdisjoint(one.attempt.held):
                    raise Refused(
                        RefusalCode.CONFLICT,
                        f"job {one.job_id} made room together with others that go on now: "
                        "it goes on by itself when its cores are free",
                    )
                returned.update(one.attempt.held)
            found += told
        return found

    return _for_each(state, message.by, message.jobs, change)


def on_update(state: State, message: UpdateJob, now_us: int) -> Decision:
    """Change a waiting job's parameters; the new job is checked like a new one. Of a running job only the time limit."""
    operator = is_operator(state, message.by)

    def change(job: Job, task: int) -> list[facts.Fact]:
        if task < 0 and job.state in STARTED:
            return change_limit(state, job, message, now_us, operator=operator)
        if task >= 0 or job.state is not JobState.PENDING:
            raise Refused(
                RefusalCode.CONFLICT,
                f"job {job.job_id} is {job.state.value}: only waiting jobs can be changed, "
                "and the time limit of running ones",
            )
        if message.priority is not None:
            if not 0 <= message.priority <= PRIORITY_MAX:
                raise Refused(
                    RefusalCode.INVALID, f"priority: {message.priority} is not within 0..{PRIORITY_MAX}"
                )
            if weighs(state.config.priority) and not operator:
                raise Refused(
                    RefusalCode.DENIED,
                    "priority: it is computed here and only operators give numbers: use nice=N",
                )
            if message.priority > job.priority and not operator:
                raise Refused(RefusalCode.DENIED, "priority: only operators may raise it")
        if message.array_limit is not None and not job.is_array:
            raise Refused(RefusalCode.INVALID, f"ArrayTaskThrottle: job {job.job_id} is no array")
        if message.nice is not None:
            check_nice(state, message.nice, message.by)
        spec = checked(state, _changed_spec(job.spec, message), now_us, message.by)
        if _times(spec) != _times(job.spec):
            check_times(state, spec, now_us)
        if _bound_by(spec) != _bound_by(job.spec):
            _check_limits(state, spec, now_us, before=job.spec)
        priority = job.priority if message.priority is None else message.priority
        if message.priority is None and job.priority == first_priority(state, job.spec):
            # Nobody but the job itself has said anything: its nice value may have changed.
            priority = first_priority(state, spec)
        due_us = job.not_before_us if message.begin_us is None else message.begin_us
        was_named = job.spec.name if spec.name != job.spec.name else ""
        due_us = due_us if due_us > now_us else 0
        return [facts.JobChanged(job.job_id, spec, priority, due_us, was_named)]

    return _for_each(state, message.by, (message.job,), change)


_PLAIN_CHANGES = (
    "name",
    "partition",
    "time_limit_s",
    "begin_us",
    "comment",
    "qos",
    "account",
    "reservation",
    "nice",
    "deadline_us",
)


def _bound_by(spec: JobSpec) -> tuple[object, ...]:
    """What limits, pools and reservations look at."""
    return spec.partition, spec.account, spec.qos, spec.reservation, spec.time_limit_s, spec.components


def _times(spec: JobSpec) -> tuple[int, ...]:
    return (spec.time_limit_s, spec.start_at_us, spec.begin_us, spec.deadline_us)


def _changed_spec(spec: JobSpec, message: UpdateJob) -> JobSpec:
    changes: dict[str, object] = {
        name: value for name in _PLAIN_CHANGES if (value := getattr(message, name)) is not None
    }
    request = spec.components[0]
    if message.nodes_min is not None or message.nodes_max is not None:
        low = request.nodes_min if message.nodes_min is None else message.nodes_min
        high = low if message.nodes_max is None else message.nodes_max
        if not 0 <= low <= high:
            raise Refused(RefusalCode.INVALID, f"--nodes: {low}-{high} is no range: give MIN-MAX")
        request = replace(request, nodes_min=low, nodes_max=high)
    if message.constraint is not None:
        request = replace(request, constraint=message.constraint)
    changes["components"] = (request, *spec.components[1:])
    if message.array_limit is not None:
        assert spec.array is not None
        if message.array_limit < 0:
            raise Refused(
                RefusalCode.INVALID,
                f"ArrayTaskThrottle: {message.array_limit} is below zero: 0 lets all tasks run",
            )
        changes["array"] = replace(spec.array, limit=message.array_limit)
    return replace(spec, **changes)
