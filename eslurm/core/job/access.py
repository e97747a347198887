"""Refusals of calls about a job that is not the caller's.

Invariant: a job that the caller may not see is refused in the same words as a job that does not exist.
"""

from __future__ import annotations

from eslurm.core.cluster import State
from eslurm.core.job.model import Job, Principal
from eslurm.core.messages import RefusalCode, Refused
from eslurm.core.privacy import Sight
from eslurm.core.rights import may_manage


def unknown_job(job_id: int) -> Refused:
    """There is no such job, as far as the caller may know."""
    return Refused(RefusalCode.NOT_FOUND, f"job {job_id} does not exist or has ended long ago: see esacct")


def check_managed(state: State, by: Principal, job: Job, what: str) -> None:
    """Raise `Refused` unless the caller may change the job; `what` is how the caller named it."""
    if may_manage(state, by, job):
        return
    if not Sight(state, by).job(job):
        raise unknown_job(job.job_id)
    raise Refused(
        RefusalCode.DENIED,
        f"job {what} belongs to {job.spec.user.name}: only its user, coordinators of its account and operators change it",
    )


def check_owned(state: State, by: Principal, job: Job) -> None:
    """Raise `Refused` unless it is the caller's own job: steps run as its user."""
    if by.uid == job.spec.user.uid:
        return
    if not Sight(state, by).job(job):
        raise unknown_job(job.job_id)
    raise Refused(
        RefusalCode.DENIED,
        f"job {job.job_id} belongs to {job.spec.user.name}: only its user runs steps in it",
    )
