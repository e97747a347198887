"""The limits of a retried attempt: grown by the job's own factors, within all maxima, and checked like a submission.

Invariant: what is returned could be submitted now by the same user.
"""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.control.jobs import retries
from eslurm.core.control.jobs.admission import check_limits, checked
from eslurm.core.control.jobs.growth import grown_memory_mib, grown_time_s, memory_of, reached_s
from eslurm.core.model.accounts import Qos
from eslurm.core.model.job import NO_LIMIT, Attempt, Job, JobSpec
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.model.parts import partition_of, user_parts
from eslurm.core.model.request import Request
from eslurm.core.model.retry import Retried, RetryRequest
from eslurm.core.model.retry_words import NODE_FAIL, SAME_PERCENT, TIMEOUT
from eslurm.core.plan.cycle.expected import safe_s
from eslurm.core.state.allocation_amounts import limit_s
from eslurm.core.state.apply_retries import grown_spec
from eslurm.core.state.cluster import State


def grown(state: State, job: Job, attempt: Attempt, cause: str, now_us: int) -> Retried:
    """The next attempt's limits: after a timeout more time, out of memory more memory, after a lost node the same.

    Raises `Refused`, naming the maximum that is reached or the rule that forbids more.
    """
    wish = job.spec.retry
    assert wish is not None
    if cause == NODE_FAIL:
        return retries.unchanged(state, job, attempt, cause, now_us)
    if cause == TIMEOUT:
        found = _with_time(state, job, attempt, wish)
    else:
        found = Retried(cause, memory_mib=_more_memory(state, job.spec, wish))
    spec = grown_spec(job.spec, found)
    try:
        checked(state, spec, now_us, spec.user)
        retries.check_still_possible(state, spec, now_us)
        check_limits(state, spec, now_us, before=job.spec)
    except Refused as refused:
        raise Refused(refused.code, f"its next attempt would be refused: {refused.text}") from None
    return found


def _with_time(state: State, job: Job, attempt: Attempt, wish: RetryRequest) -> Retried:
    old_s, percent = limit_s(job, attempt), wish.grow_time_percent
    if old_s == NO_LIMIT:
        raise Refused(RefusalCode.CONFLICT, "it has no time limit any more")
    ceiling_s, who = _ceiling_s(state, job, wish, old_s)
    forecast = job.forecast if state.config.use_forecasts else None
    estimate_s = safe_s(forecast) if forecast is not None else 0
    found_s = grown_time_s(old_s, percent, estimate_s, ceiling_s)
    if not found_s:
        raise Refused(
            RefusalCode.INFEASIBLE, f"its time limit of {old_s} s cannot grow: {who} allows {ceiling_s} s"
        )
    is_estimated = found_s > grown_time_s(old_s, percent, 0, ceiling_s)
    return Retried(TIMEOUT, found_s, is_estimated=is_estimated)


def _ceiling_s(state: State, job: Job, wish: RetryRequest, old_s: int) -> tuple[int, str]:
    """The longest time limit of the next attempt, and what sets it.

    Without `--max-time` an estimate counts up to what the factor alone would reach with all retries that are left.
    """
    spec = job.spec
    left = max(1, min(wish.retries_max, state.config.retries_max) - retries.retries_of(job))
    found = [(wish.max_time_s or reached_s(old_s, wish.grow_time_percent, left), "--max-time")]
    for part in range(user_parts(spec)):
        partition = state.partitions.get(partition_of(spec, part))
        if partition is not None and partition.time_limit_max_s:
            found.append((partition.time_limit_max_s, f"partition {partition.name}"))
    qos = state.policies["qos"].get(spec.qos)
    if isinstance(qos, Qos) and qos.time_limit_max_s:
        found.append((qos.time_limit_max_s, f"QOS {qos.name}"))
    return min(found, key=lambda one: one[0])


def _more_memory(state: State, spec: JobSpec, wish: RetryRequest) -> tuple[tuple[int, ...], ...]:
    """The memory of each component. Raises `Refused` when none can grow."""
    count = user_parts(spec)
    old = [memory_of(_asking(state, spec, part)) for part in range(count)]
    new = [grown_memory_mib(one, wish.grow_memory_percent, wish.max_memory_mib) for one in old]
    if old == new and wish.grow_memory_percent != SAME_PERCENT:
        most = f"--max-mem allows {wish.max_memory_mib} MiB" if wish.max_memory_mib else "it asks for none"
        raise Refused(RefusalCode.INFEASIBLE, f"its memory cannot grow: {most}")
    return tuple(new)


def _asking(state: State, spec: JobSpec, part: int) -> Request:
    """A component's request, with its partition's own memory per core where it names none."""
    request = spec.components[part]
    partition = state.partitions.get(partition_of(spec, part))
    if request.chunks or request.memory_per_node_mib or request.memory_per_cpu_mib or partition is None:
        return request
    return replace(request, memory_per_cpu_mib=partition.memory_per_cpu_default_mib)
