"""Updates of existing jobs: of a waiting one its whole request, of a running one its time limit and comment.

A changed job is checked like a submission, and keeps its id, its age and its turn. Invariant: a refusal changes nothing,
and no other job's start is delayed by a change.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from eslurm.core.control.accounts.associations import check_times
from eslurm.core.control.jobs import pack_requests
from eslurm.core.control.jobs.access import name_of, part_of
from eslurm.core.control.jobs.admission import (
    check_limits,
    check_nice,
    check_open,
    check_room,
    checked,
    empty_of,
    first_priority,
)
from eslurm.core.control.jobs.comparing import asks_for_more
from eslurm.core.control.jobs.crontabs import check_not_line
from eslurm.core.control.jobs.dependency import open_dependencies
from eslurm.core.control.jobs.dependency_cycles import check_cycles
from eslurm.core.control.jobs.movable import check_alone, check_here
from eslurm.core.control.jobs.requests import for_each
from eslurm.core.control.jobs.running import change_started
from eslurm.core.control.rights import coordinates, is_operator
from eslurm.core.model import facts
from eslurm.core.model.job import Job, JobSpec, Principal
from eslurm.core.model.job_states import STARTED, JobState
from eslurm.core.model.job_weight import weight
from eslurm.core.model.messages import Changed, RefusalCode, Refused, UpdateJob
from eslurm.core.model.option_text import asked_words
from eslurm.core.model.parts import partition_of, user_parts
from eslurm.core.model.promise import Promise
from eslurm.core.model.request import Request
from eslurm.core.model.request_limits import PRIORITY_MAX
from eslurm.core.plan.cycle.priority import weighs
from eslurm.core.state.cluster import State

_PLAIN = (
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
    "wckey",
    "output",
    "error",
    "input",
    "work_dir",
)
_FILES = ("output", "error", "input", "work_dir")
"""Fields that only the job's own user changes: the job reads and writes there with that user's rights."""
_OF_PART = ("partition", "nodes_min", "nodes_max", "constraint", "request")
"""Properties of each part."""
_REFERENCES = ("by", "job", "was", "dry_run")


def on_update(state: State, message: UpdateJob, now_us: int) -> tuple[list[facts.Fact], Changed]:
    """Change a waiting job, which is checked like a new one; of a running one the time limit and the comment."""
    operator = is_operator(state, message.by)
    notes: list[str] = []

    def change(job: Job, task: int) -> list[facts.Fact]:
        if task >= 0:
            raise Refused(
                RefusalCode.CONFLICT,
                f"task {task} waits within its array: change job {job.job_id} as a whole",
            )
        check_not_line(state, job, "change it there: scrontab -e")
        part = _part(state, job, message)
        check_alone(job, "a change")
        if job.state in STARTED:
            return change_started(state, job, message, part, now_us, operator=operator)
        check_here(job)
        if job.grows is not None:
            raise Refused(
                RefusalCode.CONFLICT,
                f"job {job.job_id} is the growth of job {job.grows.job_id}, which asks for it: "
                f"esctl update job {job.grows.job_id} nodes=NUMBER",
            )
        if job.state is not JobState.PENDING:
            raise Refused(
                RefusalCode.CONFLICT,
                f"job {job.job_id} is {job.state.value}: only waiting jobs can be changed, "
                "and the time limit and comment of running ones",
            )
        if job.pack is not None:
            pack_requests.check_update(job, message)
        if message.priority is not None:
            _check_priority(state, job, message.priority, operator=operator)
        if message.array_limit is not None and not job.is_array:
            raise Refused(RefusalCode.INVALID, f"ArrayTaskThrottle: job {job.job_id} is no array")
        if message.nice is not None:
            check_nice(state, message.nice, message.by)
        _check_files(job, message)
        if message.account is not None:
            _check_moved(state, job, message.account, message.by)
        wanted = _changed_spec(job, message, part)
        if job.guests is not None and wanted.components != job.spec.components:
            text = f"job {job.job_id} may span cells (--span): what it asks for cannot be changed: submit it again"
            raise Refused(RefusalCode.CONFLICT, text)
        spec = accepted(state, wanted, job.spec, now_us, message.by)
        if message.partition is not None:
            check_open(state, spec)
        if pack_requests.is_whole(job) and _bound_by(spec) != _bound_by(job.spec):
            pack_requests.check_changed(state, job, spec, now_us, empty_of(state))
        if not job.hold and asks_for_more(job.spec, spec):
            notes.append(
                f"job {job.job_id} asks for more now, or for something else: it keeps its turn, but its start may be later "
                f"than was planned (eswhy {job.job_id})"
            )
        changed = _fact(state, job, spec, message, now_us)
        if changed.open is not None or changed.was_named:
            check_cycles(state, job, changed, message.by)
        others: Sequence[facts.Fact] = ()
        if message.priority is not None and pack_requests.is_whole(job):
            others = pack_requests.with_priority(state, job, message.priority)
        return [changed, *others, *_given_up(state, job, changed)]

    found, changed = for_each(state, message.by, (message.job,), change, by_part=True)
    return [] if message.dry_run else found, replace(changed, notes=tuple(notes))


def _part(state: State, job: Job, message: UpdateJob) -> int:
    """The part to change, the first one of most jobs. Raises `Refused` when the change is none of a part, or of no part."""
    named = state.find_named(message.job.job_id)
    assert named is not None
    part = part_of(named, message.job)
    if user_parts(job.spec) == 1:
        return 0
    given = [
        name
        for name in UpdateJob.__struct_fields__
        if name not in _REFERENCES and getattr(message, name) is not None
    ]
    of_part = [name for name in given if name in _OF_PART]
    whole = [name for name in given if name not in _OF_PART]
    if part < 0 and of_part:
        raise Refused(
            RefusalCode.CONFLICT,
            f"{_named(of_part[0])}: job {job.job_id} has {user_parts(job.spec)} parts: say which one is to be changed, "
            f"like {name_of(message.job)}+1",
        )
    if part >= 0 and whole:
        raise Refused(
            RefusalCode.CONFLICT,
            f"{_named(whole[0])}: it is one for all parts of job {job.job_id}: change it without naming a part",
        )
    return max(part, 0)


def _named(field: str) -> str:
    """A field of the message as users know it."""
    return {"nodes_min": "nodes", "nodes_max": "nodes", "request": "resources"}.get(
        field, field.removesuffix("_us")
    )


def accepted(state: State, spec: JobSpec, before: JobSpec, now_us: int, by: Principal) -> JobSpec:
    """A waiting job's changed spec as accepted. Raises `Refused`, as for a submission."""
    spec = checked(state, spec, now_us, by)
    if _times(spec) != _times(before):
        check_times(state, spec, now_us)
    if _bound_by(spec) != _bound_by(before):
        check_limits(state, spec, now_us, before=before)
    more = weight(spec) - weight(before)
    if more > 0 and not is_operator(state, by):
        check_room(state, spec.user, 0, more)
    return spec


def _fact(state: State, job: Job, spec: JobSpec, message: UpdateJob, now_us: int) -> facts.JobChanged:
    priority = job.priority if message.priority is None else message.priority
    if message.priority is None and job.priority == first_priority(state, job.spec):
        # No explicit priority was set: the job's nice value may have changed.
        priority = first_priority(state, spec)
    due_us = job.not_before_us if message.begin_us is None else message.begin_us
    still_open = None
    if message.dependencies is not None:
        still_open, delayed_us = open_dependencies(
            state, spec, job.job_id, members=job.pack.count if job.pack is not None else 0
        )
        # The delay of an earlier dependency is gone; the pause before another attempt is not.
        due_us = max(spec.begin_us, delayed_us, job.not_before_us if job.attempts else 0)
    was_named = job.spec.name if spec.name != job.spec.name else ""
    return facts.JobChanged(
        job.job_id, spec, priority, due_us if due_us > now_us else 0, was_named, still_open
    )


def _given_up(state: State, job: Job, changed: facts.JobChanged) -> list[facts.Fact]:
    """Drop the logged promise when the request grows: it would be kept for the new, longer time at the cost of others (ADR
    17).
    """
    # A pack that has not begun has one promise, its first job's.
    is_pack = job.pack is not None and pack_requests.is_whole(job)
    promised_id = job.pack.pack_id if job.pack is not None and is_pack else job.job_id
    promise = state.promises.get(promised_id)
    if promise is None:
        return []
    before = replace(job.spec, begin_us=changed.spec.begin_us)
    if (
        not changed.open
        and changed.not_before_us <= promise.start_us
        and not asks_for_more(before, changed.spec)
    ):
        return []
    return [facts.JobsPromised((Promise(promised_id),))]


def _check_priority(state: State, job: Job, priority: int, *, operator: bool) -> None:
    if not 0 <= priority <= PRIORITY_MAX:
        raise Refused(RefusalCode.INVALID, f"priority: {priority} is not within 0..{PRIORITY_MAX}")
    if weighs(state.config.priority) and not operator:
        raise Refused(
            RefusalCode.DENIED, "priority: it is computed here and only operators give numbers: use nice=N"
        )
    if priority > job.priority and not operator:
        raise Refused(RefusalCode.DENIED, "priority: only operators may raise it")


def _check_files(job: Job, message: UpdateJob) -> None:
    """Check that the job's own user changes where it reads and writes. Raises `Refused`."""
    given = next((name for name in _FILES if getattr(message, name) is not None), "")
    if given and message.by.uid != job.spec.user.uid:
        text = f"{given}: job {job.job_id} belongs to {job.spec.user.name}: only its user changes its files"
        raise Refused(RefusalCode.DENIED, text)


def _check_moved(state: State, job: Job, account: str, by: Principal) -> None:
    """Check that a coordinator moves a job between the coordinator's own accounts only."""
    if by.uid == job.spec.user.uid or is_operator(state, by) or coordinates(state, by, account):
        return
    raise Refused(
        RefusalCode.DENIED,
        f"account: {by.name} is no coordinator of '{account}': ask one of it, or an operator, to move job {job.job_id}",
    )


def _bound_by(spec: JobSpec) -> tuple[object, ...]:
    """The fields that limits, pools and reservations examine."""
    return (
        *(spec.partition, spec.account, spec.qos, spec.reservation),
        *(spec.time_limit_s, spec.components, spec.parts),
    )


def _times(spec: JobSpec) -> tuple[int, ...]:
    return (spec.time_limit_s, spec.start_at_us, spec.begin_us, spec.deadline_us)


def _changed_spec(job: Job, message: UpdateJob, part: int) -> JobSpec:
    """The job's spec with the changes, those of resources in one of its parts."""
    spec = job.spec
    changes: dict[str, object] = {
        name: value for name in _PLAIN if (value := getattr(message, name)) is not None
    }
    request = _changed_request(job, message, part)
    changes["components"] = (*spec.components[:part], request, *spec.components[part + 1 :])
    if spec.parts and message.partition is not None:
        # The job's own partition is the first part's: the others stay where they are.
        named = [partition_of(spec, number) for number in range(len(spec.parts))]
        named[part] = message.partition
        changes["parts"] = tuple(
            [replace(own, partition=partition) for own, partition in zip(spec.parts, named, strict=True)]
        )
        changes["partition"] = named[0]
    if message.dependencies is not None:
        changes["dependencies"], changes["dependency_any"] = (
            message.dependencies,
            bool(message.dependency_any),
        )
    if message.array_limit is not None:
        assert spec.array is not None
        if message.array_limit < 0:
            raise Refused(
                RefusalCode.INVALID,
                f"ArrayTaskThrottle: {message.array_limit} is below zero: 0 lets all tasks run",
            )
        changes["array"] = replace(spec.array, limit=message.array_limit)
    return replace(spec, **changes)


def _changed_request(job: Job, message: UpdateJob, part: int) -> Request:
    """The whole request of a part, or the parts of it that can be named alone."""
    request = job.spec.components[part]
    if message.request is not None:
        if message.was and message.was != asked_words(request):
            raise Refused(
                RefusalCode.CONFLICT,
                f"job {job.job_id} asks for something else since you looked: try again",
            )
        request = message.request
    if message.nodes_min is not None or message.nodes_max is not None:
        low = request.nodes_min if message.nodes_min is None else message.nodes_min
        high = low if message.nodes_max is None else message.nodes_max
        if not 0 <= low <= high:
            raise Refused(RefusalCode.INVALID, f"--nodes: {low}-{high} is no range: give MIN-MAX")
        request = replace(request, nodes_min=low, nodes_max=high)
    if message.constraint is not None:
        request = replace(request, constraint=message.constraint)
    return request
