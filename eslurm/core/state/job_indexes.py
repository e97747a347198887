"""Values for the indexes from the record of a job or attempt: waiting, counts, owed effects.

Invariant: functions of the record alone; the indexes of `State` are made of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from eslurm.core.model import ranges
from eslurm.core.model.job import Attempt, Job, JobSpec
from eslurm.core.model.job_states import AttemptPhase, JobState
from eslurm.core.model.mail_words import PERCENTAGES, events_of
from eslurm.core.model.units import SECOND_US
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.state.allocation_amounts import limit_s


def began(attempt: Attempt) -> tuple[int, ...]:
    """Begin of an attempt's run time, as far as its record says."""
    return (attempt.started_us, attempt.paused_us, attempt.suspended_us)


def waits(job: Job) -> bool:
    """Check whether the job waits for the planner only, by an entry of its own."""
    return is_free(job) and (job.pack is None or not job.pack.waits_for_first)


def is_movable(job: Job) -> bool:
    """Check whether it concerns the other cells of the federation: they may take it, or a part, or it is another cell's."""
    return job.transfer is not None or bool(job.spec.cells) or job.guest_of is not None


def is_free(job: Job) -> bool:
    """Check whether nothing of its own keeps the job from starting."""
    return is_unblocked(job) and not job.not_before_us and not (job.open and all_wait(job))


def is_unblocked(job: Job) -> bool:
    """Check whether the job waits for its begin time, for other jobs, or for the planner, and for nothing else."""
    return (
        job.state is JobState.PENDING
        and job.attempt is None
        and not job.hold
        and not job.is_away
        and not job.gathers
        and not (job.grows is not None and (job.grows.is_still or job.grows.is_own))
        and job.tasks_left != ()
    )


def fills(job: Job) -> bool:
    """Check whether it is the growth of an elastic job, which takes what is free, and may do so now."""
    return (
        job.grows is not None
        and job.grows.is_own
        and not job.grows.is_still
        and job.state is JobState.PENDING
        and not job.hold
        and not job.not_before_us
    )


SHORTER = 0.8
"""A growth asks for less time when so much of what it asks for is left until its job's end."""
SHORTER_MIN_S = 60


def shorter_at_us(job: Job | None, growth: Job) -> int:
    """The time at which a growth that waits asks for less time; 0: never."""
    place, attempt = growth.grows, job.attempt if job is not None else None
    if place is None or place.is_own or attempt is None or attempt.number != place.attempt:
        return 0
    limit_s = growth.spec.time_limit_s
    if limit_s < SHORTER_MIN_S or attempt.until_us >= INFINITY_US:
        return 0
    return attempt.until_us - int(limit_s * SHORTER * SECOND_US)


def all_wait(job: Job) -> bool:
    """Check whether open dependencies hold back the whole job: `aftercorr` lets an array's tasks go one after the other."""
    if job.is_array and job.spec.dependency_any:
        return bool(job.open) and job.tasks_ready is None
    return any(dependency.kind != "aftercorr" or not job.is_array for dependency in job.open)


def waits_for_start(job: Job) -> bool:
    """Check whether it is a member of a pack that has begun, and waits for the start that it is owed."""
    return (
        job.pack is not None
        and bool(job.pack.anchor_us)
        and job.pack.index > 0
        and job.state is JobState.PENDING
        and not job.started_us
    )


def has_wish(job: Job) -> bool:
    """Check whether the planner has to answer a wish: of its pack, or of its attempt that runs."""
    attempt = job.attempt
    if attempt is not None:
        wish = attempt.more.wish if attempt.more is not None else None
        return wish is not None and not wish.said and attempt.phase is AttemptPhase.RUNNING
    if job.pack is None or job.pack.wish is None:
        return False
    return not job.pack.wish.said and waits_for_start(job)


def has_lending(job: Job) -> bool:
    """Check whether an attempt of the job has borrowed cores, or leaves cores to others."""
    more = job.attempt.more if job.attempt is not None else None
    if more is not None and (more.loans or more.exclusions):
        return True
    return any(attempt.more is not None and attempt.more.loans for attempt in job.residues)


def next_mail(job: Job) -> tuple[int, int]:
    """The next percentage of its time limit that a running job's user wants to hear of, and its time; (0, 0): none."""
    attempt = job.attempt
    if attempt is None or attempt.phase is not AttemptPhase.RUNNING or attempt.stop is not None:
        return 0, 0
    length_s = limit_s(job, attempt)
    if not length_s or attempt.until_us >= INFINITY_US:
        return 0, 0
    record = job.mail
    told = record.percent if record is not None and record.attempt == attempt.number else 0
    events = events_of(job.spec.mail_type)
    for percent, event in PERCENTAGES.items():
        if percent > told and event in events:
            return percent, attempt.until_us - length_s * (100 - percent) * SECOND_US // 100
    return 0, 0


def name_key(spec: JobSpec) -> tuple[int, str]:
    """The key that `singleton` compares."""
    return (spec.user.uid, spec.name)


def task_slots(array: Job) -> int:
    """Number of further tasks that the array's own limit lets run."""
    limit = array.spec.array.limit if array.spec.array is not None else 0
    return max(0, limit - array.tasks_running) if limit else 1 << 30


def startable(jobs: Mapping[int, Job], job: Job) -> int:
    """Number of attempts of this record that its own rules let start now: 1, or an array's tasks within its limit."""
    if job.tasks_left is None:
        if job.array_job_id and (parent := jobs.get(job.array_job_id)) is not None:
            return 1 if task_slots(parent) > 0 else 0
        return 1
    ready = (
        job.tasks_left if job.tasks_ready is None else ranges.intersection(job.tasks_left, job.tasks_ready)
    )
    return min(ranges.count(ready), task_slots(job))


def owed_revisions(attempt: Attempt) -> tuple[int, ...]:
    """Revisions of the effects that this attempt still owes to some node."""
    if attempt.phase is AttemptPhase.PREPARING:
        if attempt.awaits_prolog:
            return ()
        revisions = [attempt.placed_revision]
        if attempt.gateway is not None and attempt.gateway.waiting:
            revisions.append(attempt.gateway.revision)
    elif attempt.phase in (AttemptPhase.STARTING, AttemptPhase.RELEASING):
        revisions = [attempt.owed_revision]
    else:
        revisions = []
    if attempt.stop_revision and attempt.phase not in (AttemptPhase.RELEASING, AttemptPhase.ENDED):
        revisions.append(attempt.stop_revision)
    if attempt.phase is AttemptPhase.RUNNING and attempt.stop is None:
        revisions += filter(None, (attempt.suspend_revision, attempt.time_revision))
        if attempt.leaving:
            assert attempt.more is not None
            revisions.append(attempt.more.part_revision)
        if attempt.growth is not None and attempt.growth.waiting:
            revisions.append(attempt.growth.revision)
        revisions += dict.fromkeys([one.revision for one in attempt.exclusions if one.revision])
    return tuple(revisions)
