"""Jobs and attempts as the planner sees them: queue entries and running attempts.

Pure functions of a job's record and of its partition.
"""

from __future__ import annotations

from collections.abc import Callable

from eslurm.core.model.amounts import Vector
from eslurm.core.model.job import Attempt, Dependency, Job, JobSpec
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.expected import running_us, waiting_us
from eslurm.core.plan.cycle.queue import Follower, Pending, PendingPart
from eslurm.core.plan.cycle.snapshot import Running
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import CORES
from eslurm.core.state.allocation_amounts import (
    elapsed_us,
    held_by_part,
    lends,
    lent_by_part,
    lent_on,
    limit_s,
    shares_of,
)
from eslurm.core.state.job_indexes import is_unblocked

UNFORESEEN = frozenset({"singleton", "afternotok"})
"""Dependencies that plans do not count on: on jobs not named, or on a failure."""


def pending_of(
    job: Job,
    startable: int,
    *,
    is_ready: bool = True,
    is_placed: bool = False,
    use_forecasts: bool = True,
    followers: tuple[Follower, ...] = (),
    packs: Callable[[int], tuple[int, ...]] | None = None,
    phases_us: int = 0,
) -> Pending:
    """A waiting job's entry; with `is_ready` it waits for resources only.

    A job that `is_placed` avoids no node. `followers` are those of a pack's first member. `packs` are those entries on which
    a dependency on this whole pack or job waits. `phases_us` is the expected length of its prolog and epilog.
    """
    spec = job.spec
    owed_us = _owed_us(job) if job.pack is not None and not is_placed else 0
    return Pending(
        job_id=job.job_id,
        request=spec.components[0],
        partition=spec.parts[0].partition or spec.partition if spec.parts else spec.partition,
        time_limit_us=spec.time_limit_s * SECOND_US,
        priority=job.priority,
        submitted_us=job.submitted_us,
        avoid=frozenset() if is_placed else job.avoid,
        startable=startable,
        user=spec.user.name,
        uid=spec.user.uid,
        groups=_groups(job),
        account=spec.account,
        qos=spec.qos,
        reservation=spec.reservation,
        start_at_us=owed_us or spec.start_at_us,
        deadline_us=spec.deadline_us,
        nice=spec.nice,
        after=() if is_ready else _after(job, packs),
        not_before_us=0 if is_ready else _not_before_us(job),
        # Members of a pack are planned for their limits: an overrun of one would break the delay of another. The nodes of a
        # growth are held until its job ends.
        estimate_us=waiting_us(job.forecast, spec.time_limit_s * SECOND_US)
        if use_forecasts and job.pack is None and job.grows is None
        else 0,
        eligible_us=spec.begin_us,
        parts=parts_of(spec) if spec.parts else (),
        after_any=not is_ready and spec.dependency_any,
        followers=followers,
        is_owed=owed_us > 0,
        phases_us=phases_us,
        apart=job.grows.apart if job.grows is not None else frozenset(),
        borrows=bool(spec.borrow) and not is_placed and job.grows is None,
    )


def _owed_us(job: Job) -> int:
    """The start that a pack which has begun owes a member: not its first, which began it, nor one that ran since."""
    place = job.pack
    return place.start_us if place is not None and place.index and not place.includes(job.started_us) else 0


def parts_of(spec: JobSpec) -> tuple[PendingPart, ...]:
    """The parts of a job of several parts, for plans."""
    return tuple(
        [
            PendingPart(request, part.partition or spec.partition)
            for request, part in zip(spec.components, spec.parts, strict=True)
        ]
    )


def _after(job: Job, packs: Callable[[int], tuple[int, ...]] | None) -> tuple[int, ...]:
    """The jobs whose ends a plan waits for: of several of which one is enough, those that can be foreseen."""
    if not job.spec.dependency_any:
        return tuple([one for dependency in job.open for one in _targets(dependency, packs)])
    if _delay_over_us(job):
        return ()
    # Of a pack the last job stands for all of them.
    return tuple([_targets(one, packs)[-1] for one in job.open if one.kind not in UNFORESEEN])


def _targets(dependency: Dependency, packs: Callable[[int], tuple[int, ...]] | None) -> tuple[int, ...]:
    if packs is not None and dependency.is_of_pack:
        return packs(dependency.job_id)
    return (dependency.job_id,)


def _not_before_us(job: Job) -> int:
    return max(job.not_before_us, _delay_over_us(job))


def _delay_over_us(job: Job) -> int:
    """The instant at which a delay (`after:ID+minutes`) meets the one dependency that is enough; 0: none runs."""
    return min((dependency.due_us for dependency in job.open if dependency.due_us), default=0)


def running_of(job: Job, attempt: Attempt, *, use_forecasts: bool = True) -> Running:
    """An attempt's holdings with their latest and expected end."""
    expected_us = since_us = 0
    estimate_us = running_us(job.forecast, limit_s(job, attempt) * SECOND_US) if use_forecasts else 0
    # What stands still goes on when people say so: nothing is expected of it.
    if estimate_us and not attempt.suspended_us:
        since_us = (attempt.started_us or attempt.placed_us) + attempt.paused_us
        expected_us = min(since_us + estimate_us, attempt.until_us)
    phases_us = 0
    if attempt.more is not None:
        phases_us = attempt.more.epilog_us + (0 if attempt.started_us else attempt.more.prolog_us)
        if phases_us and attempt.until_us < INFINITY_US:
            expected_us = (expected_us or attempt.until_us) + phases_us
    return Running(
        job.job_id,
        tuple(shares_of(attempt)),
        attempt.until_us,
        attempt.wide if attempt.held else (),
        pending_of(job, 1, is_placed=True, use_forecasts=use_forecasts, phases_us=phases_us),
        job.array_job_id,
        *(_lent(job, attempt) if lends(attempt) else ((), 0, 0)),
        expected_us,
        since_us,
        attempt.planned_us,
        held_by_part(attempt),
        tuple([(part, node, _cores(amounts)) for part, node, amounts in lent_by_part(attempt)]),
    )


def _lent(job: Job, attempt: Attempt) -> tuple[tuple[tuple[int, Vector], ...], int, int]:
    """Cores that a suspended attempt has lent, the job that uses them, and its own remaining time in microseconds."""
    spans = tuple([(node, _cores(amounts)) for node, amounts in lent_on(attempt)])
    limit_us = limit_s(job, attempt) * SECOND_US
    left_us = max(1, limit_us - elapsed_us(attempt, attempt.suspended_us)) if limit_us else INFINITY_US
    return spans, attempt.room_for, left_us


def _cores(amounts: Vector) -> Vector:
    return amounts[: CORES + 1]


def foreseeable(job: Job) -> bool:
    """Check whether a job waits only for predictable events: its begin time, or the ends of its dependencies."""
    return (
        is_unblocked(job)
        and bool(job.open or job.not_before_us)
        and (job.pack is None or not job.pack.waits_for_first)
        and not (job.open and _is_unforeseen(job))
    )


def _is_unforeseen(job: Job) -> bool:
    unforeseen = [dependency.kind in UNFORESEEN for dependency in job.open]
    return all(unforeseen) if job.spec.dependency_any else any(unforeseen)


def _groups(job: Job) -> tuple[str, ...]:
    """The primary group first."""
    user = job.spec.user
    return (str(user.gid), *[str(gid) for gid in user.groups if gid != user.gid])
