"""A waiting job before the other waiting jobs of its user: these step back, so no other user's job is overtaken.

Invariant: what changes are jobs of the same user, partition, account and QOS, and each of them only downwards.
"""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.control.jobs.access import check_managed, get_seen, name_of
from eslurm.core.control.jobs.admission import first_priority
from eslurm.core.control.jobs.movable import check_here
from eslurm.core.model import facts
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import Changed, RefusalCode, Refused, TopJob
from eslurm.core.model.request_limits import NICE_MAX
from eslurm.core.state.cluster import State

CHANGED_MAX = 1_000
"""Jobs that one call moves back."""


def on_top(state: State, message: TopJob) -> tuple[list[facts.Fact], Changed]:
    """Move the others back as far as is needed. Raises `Refused`."""
    what = name_of(message.job)
    job = get_seen(state, message.by, message.job.job_id)
    check_managed(state, message.by, job, what)
    check_here(job)
    ranks = dict(message.ranks)
    mine = ranks.get(job.job_id)
    if message.job.task >= 0 or job.state is not JobState.PENDING or mine is None or not _is_plain(job):
        raise _refused(f"job {what} is none that waits in the queue by itself for nodes: see esqueue --start")
    place = (-mine, job.submitted_us, job.job_id)
    ahead = [
        (other, rank)
        for job_id, rank in ranks.items()
        if (other := state.find_job(job_id)) is not None
        and _is_beside(other, job)
        and (-rank, other.submitted_us, other.job_id) < place
    ]
    if len(ahead) > CHANGED_MAX:
        raise _refused(f"job {what}: {len(ahead)} of its user's jobs are before it, more than {CHANGED_MAX}")
    if ahead and mine <= 0:
        raise _refused(f"job {what} has priority 0: nothing can be behind it: give it another one first")
    return [_behind(state, other, rank - mine + 1, mine - 1) for other, rank in ahead], Changed(1)


def _behind(state: State, job: Job, by: int, priority: int) -> facts.JobChanged:
    """The job moved back by so many points, or, where its priority was given, to this one."""
    spec = job.spec
    if spec.priority is None and job.priority == first_priority(state, spec):
        if spec.nice + by > NICE_MAX:
            raise _refused(f"job {job.job_id} has nice {spec.nice}: it cannot step back by {by}")
        spec = replace(spec, nice=spec.nice + by)
        priority = first_priority(state, spec)
    return facts.JobChanged(job.job_id, spec, priority, job.not_before_us)


def _is_beside(other: Job, job: Job) -> bool:
    """Check whether the other job shares the job's user and all that ranks them together."""
    one, two = other.spec, job.spec
    same = (one.user.uid, one.partition, one.account, one.qos) == (
        *(two.user.uid, two.partition, two.account, two.qos),
    )
    return same and other.job_id != job.job_id and other.state is JobState.PENDING and _is_plain(other)


def _is_plain(job: Job) -> bool:
    return job.pack is None and job.grows is None and job.guests is None and len(job.spec.components) == 1


def _refused(text: str) -> Refused:
    return Refused(RefusalCode.CONFLICT, text)
