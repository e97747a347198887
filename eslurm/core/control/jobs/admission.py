"""Admission of a new job: defaults, limits of partitions and policies, feasibility.

Invariant: a refusal has a reason and the way out, and the jobs of one submission are all accepted or all refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from msgspec.structs import replace

from eslurm.core.control.accounts.associations import associated, check_times, within_qos
from eslurm.core.control.accounts.defaults import with_defaults
from eslurm.core.control.accounts.submission import has_rules, submission_problem
from eslurm.core.control.job_ids import take_ids
from eslurm.core.control.jobs import pack_submission
from eslurm.core.control.jobs.allocations import allocation
from eslurm.core.control.jobs.dependency import open_dependencies
from eslurm.core.control.jobs.elastic_kinds import check_elastic
from eslurm.core.control.jobs.gateway_requests import check_modules, with_gateways, without_gateways
from eslurm.core.control.jobs.lending_terms import check_lending
from eslurm.core.control.jobs.mail import check_mail
from eslurm.core.control.jobs.movable import check_movable
from eslurm.core.control.jobs.retry_requests import check_in_pack, check_maxima, check_retry
from eslurm.core.control.jobs.users import check_user
from eslurm.core.control.rights import is_operator
from eslurm.core.model import facts, ranges
from eslurm.core.model.accounts import Defaults
from eslurm.core.model.config import Partition
from eslurm.core.model.guests import nodes_of, share_of, span_problem
from eslurm.core.model.job import JobSpec, Principal
from eslurm.core.model.job_weight import weight
from eslurm.core.model.messages import RefusalCode, Refused, SubmitJobs, Submitted
from eslurm.core.model.partition import TAKING
from eslurm.core.model.parts import ids_taken, part_text, partition_of, partitions_of
from eslurm.core.model.request import PartSpec, Request
from eslurm.core.model.request_limits import NICE_MAX, PRIORITY_MAX
from eslurm.core.model.units import SECOND_US
from eslurm.core.model.values import parts_problem
from eslurm.core.plan.cycle.priority import PRIORITY_DEFAULT, weighs
from eslurm.core.plan.placement.feasible import empty_ledger, feasible_ever
from eslurm.core.plan.placement.feasible_parts import feasible_together
from eslurm.core.resources.ledger import Ledger
from eslurm.core.state.cluster import State, name_key

FEASIBLE_MAX = 1024
"""Bound of the memory of which requests fit; a site's users ask for few different shapes."""
FEASIBLE_NAMES_MAX = 64
"""Requests that name more nodes are not remembered: each is large, and hardly asked for twice."""
RESERVED_PART = 20
"""One part in this many of the queue is reserved for operators' jobs."""


def on_submit(state: State, message: SubmitJobs, now_us: int) -> tuple[list[facts.Fact], Submitted]:
    """All of the jobs or none. Raises `Refused` naming the option and the way out."""
    check_room(state, message.specs[0].user, len(message.specs), sum(map(weight, message.specs)))
    taken = list(map(ids_taken, message.specs))
    lease, ids = take_ids(state, sum(taken))
    job_ids: list[int] = []
    next_id = ids.start
    found: list[facts.Fact] = list(lease)
    names: set[tuple[int, str]] = set()
    members = pack_submission.members_of(message) if message.packs else {}
    beside = 0
    for number, spec in enumerate(message.specs):
        job_id, next_id = next_id, next_id + taken[number]
        job_ids.append(job_id)
        member = members.get(number)
        if member is None:
            spec = admitted(state, spec, now_us, beside)
        else:
            with pack_submission.naming(member):
                if spec.cells:
                    check_movable(spec, in_pack=True)
                if spec.retry is not None:
                    check_in_pack(spec.retry)
                if spec.elastic:
                    check_elastic(spec, in_pack=True)
                if spec.no_script:
                    allocation(spec, in_pack=True)
                spec = admitted(state, member.checked(spec), now_us, beside)
                pack_submission.check_delay(state, spec, member.delay_s, now_us)
            member.spec = spec
        beside += jobs_of(spec)
        count = len(member.draft.delays_s) if member is not None else 0
        still_open, not_before_us = open_dependencies(state, spec, job_id, names, count)
        names.add(name_key(spec))
        due_us = max(spec.begin_us, not_before_us)
        priority = first_priority(state, spec)
        place = member.place(job_ids) if member is not None else None
        submitted = facts.JobSubmitted(
            job_id, spec, priority, still_open, due_us if due_us > now_us else 0, place
        )
        found.append(replace(submitted, is_wide=is_wide(state, spec)) if spec.span else submitted)
    if members:
        pack_submission.check_together(state, members, now_us, empty_of(state))
    return found, Submitted(tuple(job_ids))


def check_room(state: State, user: Principal, jobs: int, weights: int) -> None:
    """Raise `Refused` when this many more jobs of this total weight may not wait: the queue, or this user's
    part, is full.
    """
    config = state.config
    room = config.pending_jobs_max - config.pending_jobs_max // RESERVED_PART
    if state.pending_count + jobs > room and is_operator(state, user):
        room = config.pending_jobs_max
    if state.pending_count + jobs > room:
        raise Refused(
            RefusalCode.EXHAUSTED,
            f"the queue is full ({state.pending_count} waiting jobs, {room} may wait: policy.pending_jobs_max): "
            "submit again later",
        )
    most, there = config.pending_jobs_user_max, state.pending_of.get(user.uid, 0)
    if most and there + weights > most and not is_operator(state, user):
        raise Refused(
            RefusalCode.EXHAUSTED,
            f"{user.name} has {there} waiting jobs, {weights} would come, and {most} may wait "
            "(policy.pending_jobs_user_max; a job counts more for long arguments, node lists, arrays and many parts): "
            "submit again when some have started, or submit an array",
        )


def admitted(state: State, spec: JobSpec, now_us: int, beside: int = 0) -> JobSpec:
    """A new job's accepted spec, beside `beside` others. Raises `Refused`."""
    check_user(state, spec.user)
    if spec.no_script or spec.attended:
        spec = allocation(spec)
    spec = checked(state, spec, now_us, spec.user)
    check_open(state, spec)
    _check_priority(state, spec)
    check_times(state, spec, now_us)
    check_limits(state, spec, now_us, beside)
    if spec.retry is not None:
        check_maxima(state, spec, spec.retry)
    return spec


def check_open(state: State, spec: JobSpec) -> None:
    """Raise `Refused` when an operator has closed a partition of the job for new ones."""
    for name in partitions_of(spec):
        partition = state.partitions.get(name)
        if partition is not None and state.state_of_partition(partition) not in TAKING:
            is_in = state.state_of_partition(partition)
            raise Refused(
                RefusalCode.CONFLICT,
                f"--partition: '{name}' is {is_in} and takes no jobs now: use another one, or submit later",
            )


def check_limits(
    state: State, spec: JobSpec, now_us: int, beside: int = 0, before: JobSpec | None = None
) -> None:
    """Raise `Refused` when limits, pools or reservations never allow it; `before` is a changed job's old spec."""
    if has_rules(state):
        problem = submission_problem(state, spec, now_us, beside, before)
        if problem is not None:
            raise Refused(RefusalCode.INFEASIBLE, problem)


def jobs_of(spec: JobSpec) -> int:
    """Number of jobs in a submission: each task of an array is one."""
    return ranges.count(spec.array.tasks) if spec.array is not None else 1


def checked(state: State, spec: JobSpec, now_us: int, by: Principal) -> JobSpec:
    """The spec with the defaults of its user and partition filled in. Raises `Refused` if it may not or can never run.

    `by` is the author of the request: its user, or an operator who changes it.
    """
    spec = without_gateways(spec)
    problem = parts_problem(len(spec.components))
    if problem:
        raise Refused(RefusalCode.INVALID, problem)
    if state.policies["defaults"]:
        spec = with_defaults(spec, cast("Iterable[Defaults]", state.policies["defaults"].values()))
    spec = associated(state, spec, now_us, operator=is_operator(state, by))
    spec = with_gateways(state, spec)
    partitions = _partitions(state, spec)
    if spec.gateway is not None:
        check_modules(state, spec, partitions)
    limit_s = _time_limit_s(spec, partitions)
    if spec.array is not None and ranges.count(spec.array.tasks) > state.config.array_tasks_max:
        raise Refused(
            RefusalCode.INVALID,
            f"--array: {ranges.count(spec.array.tasks)} tasks are more than {state.config.array_tasks_max}: split it",
        )
    is_said = bool(spec.time_limit_s)
    parts = _parts_in(spec, partitions) if len(partitions) > 1 else ()
    # The job's own partition is that of its first part.
    spec = replace(spec, partition=partitions[0].name, parts=parts, time_limit_s=limit_s)
    spec = within_qos(state, spec, is_said=is_said)
    if spec.span:
        spec = _spanning(spec)
    for part, (request, partition) in enumerate(zip(spec.components, partitions, strict=True)):
        if spec.span:
            # Its own part of the nodes is one at least.
            request = share_of(request, 1)
        problem = _infeasible(state, partition.name, request, spec.time_limit_s)
        if problem:
            raise Refused(RefusalCode.INFEASIBLE, part_text(spec, part, problem))
    if spec.parts:
        _check_together(state, spec)
    if spec.cells:
        check_movable(spec)
    if spec.retry is not None:
        check_retry(spec, spec.retry)
    if spec.elastic:
        check_elastic(spec)
    if spec.cooperate or spec.borrow:
        check_lending(spec)
    if spec.mail_type or spec.mail_user:
        check_mail(spec)
    return spec


def _spanning(spec: JobSpec) -> JobSpec:
    """The spec of a job that may span cells, with a task for each node at least. Raises `Refused`."""
    request = spec.components[0]
    problem = "name the cells that it may span (--cell A,B or --cell any)" if not spec.cells else ""
    problem = problem or span_problem(request)
    if problem:
        raise Refused(RefusalCode.INVALID, f"--span: {problem}")
    return replace(spec, components=(share_of(request, nodes_of(request)), *spec.components[1:]))


def is_wide(state: State, spec: JobSpec) -> bool:
    """Check whether this cell alone can never run a job that may span several."""
    return bool(_infeasible(state, spec.partition, spec.components[0], spec.time_limit_s))


def _partitions(state: State, spec: JobSpec) -> list[Partition]:
    """The partition of each part."""
    count = len(spec.components)
    if count == 1:
        return [_partition(state, spec, 0)]
    if len(spec.parts) not in (0, count):
        text = f"{count} requests and {len(spec.parts)} parts: give each part one request"
        raise Refused(RefusalCode.INVALID, text)
    return [_partition(state, spec, part) for part in range(count)]


def _parts_in(spec: JobSpec, partitions: Sequence[Partition]) -> tuple[PartSpec, ...]:
    """The parts with their partitions by name."""
    given = spec.parts or (PartSpec(),) * len(partitions)
    return tuple([replace(part, partition=one.name) for part, one in zip(given, partitions, strict=True)])


def _time_limit_s(spec: JobSpec, partitions: Sequence[Partition]) -> int:
    """The one time limit of all parts (seconds; 0: none): as given, else the least of their partitions' own.

    Raises `Refused` when a partition allows less than is given.
    """
    own = [one.time_limit_default_s or one.time_limit_max_s for one in partitions]
    limit_s = spec.time_limit_s or min(filter(None, own), default=0)
    for part, partition in enumerate(partitions):
        if partition.time_limit_max_s and limit_s > partition.time_limit_max_s:
            text = (
                f"--time: {limit_s} s is more than partition {partition.name} allows "
                f"({partition.time_limit_max_s} s): ask for less or use another partition"
            )
            raise Refused(RefusalCode.INFEASIBLE, part_text(spec, part, text))
    return limit_s


def partition_limit_s(state: State, spec: JobSpec) -> int:
    """The longest time limit in the partition of a job of one part, in seconds; 0: any. Raises `Refused`."""
    return _partition(state, spec, 0).time_limit_max_s


def _partition(state: State, spec: JobSpec, part: int) -> Partition:
    name = partition_of(spec, part)
    if not name:
        for partition in state.config.partitions:
            if partition.default:
                return partition
        text = "--partition: there is no default partition: name one"
        raise Refused(RefusalCode.INVALID, part_text(spec, part, text))
    named = state.partitions.get(name)
    if named is None or (named.role and not (spec.parts and spec.parts[part].role)):
        known = ", ".join(sorted(one.name for one in state.partitions.values() if not one.role)) or "none"
        text = f"--partition: '{name}' does not exist: use one of {known}"
        raise Refused(RefusalCode.INVALID, part_text(spec, part, text))
    return named


def _infeasible(state: State, partition: str, request: Request, time_limit_s: int) -> str:
    """The reason why the request never fits its partition; empty if it does."""
    # The time limit matters only where some nodes are for short jobs.
    limit_us = time_limit_s * SECOND_US if state.ledger.topology.rules else 0
    key = (partition, request, limit_us)
    known = state.feasible.get(key)
    if known is None:
        problem = feasible_ever(request, state.partition_views[partition], empty_of(state), limit_us)
        known = problem.reason if problem is not None else ""
        if len(request.include) + len(request.exclude) <= FEASIBLE_NAMES_MAX:
            if len(state.feasible) >= FEASIBLE_MAX:
                state.feasible.clear()
            state.feasible[key] = known
    return known


def _check_together(state: State, spec: JobSpec) -> None:
    """Raise `Refused` when the parts of a job, each of which fits alone, never fit together."""
    views = [state.partition_views[part.partition] for part in spec.parts]
    problem = feasible_together(spec.components, views, empty_of(state), spec.time_limit_s * SECOND_US)
    if problem is not None:
        raise Refused(RefusalCode.INFEASIBLE, problem.reason)


def empty_of(state: State) -> Ledger:
    """All nodes with nothing held."""
    if state.empty is None:
        state.empty = empty_ledger(state.ledger.topology)
    return state.empty


def first_priority(state: State, spec: JobSpec) -> int:
    """A job's initial priority. Where all weights are 0 it includes the nice value."""
    if spec.priority is not None:
        return spec.priority
    return PRIORITY_DEFAULT if weighs(state.config.priority) else max(0, PRIORITY_DEFAULT - spec.nice)


def check_nice(state: State, nice: int, by: Principal) -> None:
    """Check a nice value: any user may lower the own priority. Raises `Refused` out of range, or for a rise by a user."""
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
