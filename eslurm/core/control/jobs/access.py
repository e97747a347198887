"""Permission checks of calls about a job.

Invariant: an invisible job is refused in the same words as a missing one.
"""

from __future__ import annotations

from typing import Protocol

from eslurm.core.control.privacy import Visibility
from eslurm.core.control.rights import Rules, may_manage
from eslurm.core.model.job import Job, Principal
from eslurm.core.model.messages import JobRef, RefusalCode, Refused
from eslurm.core.model.parts import user_parts
from eslurm.core.model.wording import counted


class Jobs(Rules, Protocol):
    """Jobs and the rules about them: the state, or the committed view."""

    def find_named(self, job_id: int) -> Job | None:
        """The job that has this id, or a part of that id, or None."""
        ...


def get_seen(jobs: Jobs, who: Principal, job_id: int) -> Job:
    """The job, if it exists and the caller may see it. Raises `Refused`."""
    job = jobs.find_named(job_id)
    if job is None or not Visibility(jobs, who).job(job):
        raise Refused(RefusalCode.NOT_FOUND, f"job {job_id} does not exist or has ended long ago: see esacct")
    return job


def check_managed(rules: Rules, by: Principal, job: Job, what: str) -> None:
    """Raise `Refused` unless the caller may change the job; `what` is the caller's name for it."""
    if not may_manage(rules, by, job):
        raise Refused(
            RefusalCode.DENIED,
            f"job {what} belongs to {job.spec.user.name}: "
            "only its user, coordinators of its account and operators may do that",
        )


def check_owned(by: Principal, job: Job) -> None:
    """Raise `Refused` unless it is the caller's own job: steps run as its user."""
    if by.uid != job.spec.user.uid:
        raise Refused(
            RefusalCode.DENIED,
            f"job {job.job_id} belongs to {job.spec.user.name}: only its user runs steps in it",
        )


def name_of(ref: JobRef) -> str:
    """A reference as users write it: `17_4+1`."""
    task = f"_{ref.task}" if ref.task >= 0 else ""
    return f"{ref.job_id}{task}" + (f"+{ref.part}" if ref.part >= 0 else "")


def part_of(job: Job, ref: JobRef) -> int:
    """The part that a reference to this job names, or -1: the whole job. Raises `Refused` when there is no such part."""
    by_id = ref.job_id - job.job_id
    if ref.part < 0:
        return by_id or -1
    if by_id:
        raise Refused(
            RefusalCode.NOT_FOUND,
            f"job {ref.job_id} is part {by_id} of job {job.job_id} and has no parts: name it {job.job_id}+{by_id}",
        )
    count = user_parts(job.spec)
    if ref.part >= count:
        raise Refused(
            RefusalCode.NOT_FOUND,
            f"job {job.job_id} has {counted(count, 'part')}: there is no part {ref.part}, name one from 0 to {count - 1}",
        )
    return ref.part
