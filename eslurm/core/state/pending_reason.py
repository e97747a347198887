"""The reason why a pending job is not in the queue."""

from __future__ import annotations

from typing import Protocol

from msgspec.structs import replace

from eslurm.core.model import ranges
from eslurm.core.model.job import Job
from eslurm.core.model.transfer import TransferStage
from eslurm.core.state.job_indexes import all_wait

PACK_NOT_BEGUN = "PackNotBegun"
"""Reason of a member that starts after the first of its pack, which waits."""

OFFERED = "OfferedToCell"
"""Reason of a job that another cell may take."""
ARRIVING = "ArrivingFromCell"
"""Reason of another cell's job that this one does not own yet."""
GATHERING = "NodesInOtherCells"
"""Reason of a job for which nodes of other cells are being asked for, or given back."""

JOINING = "NodesJoining"
"""Reason of a growth whose nodes are being prepared."""
WHEN_FREE = "NodesWhenFree"
"""Reason of a growth of an elastic job, which takes what no other job wants."""
JOB_SUSPENDED = "JobSuspended"
"""Reason of a growth whose job is suspended."""


class Startable(Protocol):
    """The state, or the committed view."""

    def startable(self, job: Job) -> int:
        """See `job_indexes.startable`."""


def pending_reason(jobs: Startable, job: Job) -> str:
    """The reason why a pending job is not in the queue; "" when it is."""
    if job.transfer is not None and job.is_away:
        return ARRIVING if job.transfer.stage is TransferStage.ARRIVING else OFFERED
    if job.grows is not None and job.grows.joins:
        return JOINING
    if job.hold:
        held = {"user": "JobHeldUser", "account": "JobHeldAdmin", "admin": "JobHeldAdmin"}
        return held.get(job.hold, "JobHeldSystem")
    if job.grows is not None and job.grows.pauses:
        return JOB_SUSPENDED
    if job.pack is not None and job.pack.waits_for_first:
        return PACK_NOT_BEGUN
    if all_wait(job):
        return "Dependency"
    if job.not_before_us:
        return "BeginTime"
    if job.grows is not None and job.grows.is_own:
        return WHEN_FREE
    if job.is_array and not ranges.count(job.tasks_left or ()):
        return "TasksRunning"
    if (
        job.is_array
        and job.tasks_ready is not None
        and not ranges.intersection(job.tasks_left or (), job.tasks_ready)
    ):
        return "Dependency"
    if (job.is_array or job.array_job_id) and not jobs.startable(job):
        return "JobArrayTaskLimit"
    if job.pack is not None and not jobs.startable(job):
        return PACK_NOT_BEGUN
    return GATHERING if job.gathers else ""


def may_gather(jobs: Startable, job: Job) -> bool:
    """Check whether nothing but nodes keeps a spanning job from starting."""
    return pending_reason(jobs, replace(job, guests=None)) == ""
