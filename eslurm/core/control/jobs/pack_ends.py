"""Ends of packs: what the end of one job means for the others, and what a pack is for jobs that wait for it (D-04).

To others a pack is one job: it ends with its last member, well if all members have. With `PackPlace.cancels` the end of a
member otherwise than well cancels the members that do not run. Invariant: after that commit none of them is placed.
"""

from __future__ import annotations

from collections.abc import Iterator

from eslurm.core.control.jobs.stopping import stop
from eslurm.core.model import facts
from eslurm.core.model.job import Dependency, Job
from eslurm.core.model.job_states import JobState, StopCause
from eslurm.core.state.cluster import State
from eslurm.core.state.endings import settled_outcome


def is_pack(dependency: Dependency, target: Job) -> bool:
    """Check whether the dependency is one on all of the pack that begins with this job."""
    return target.pack is not None and not target.pack.index and dependency.is_of_pack


def outcome_of_pack(state: State, first: Job) -> JobState | None:
    """COMPLETED when all members of a pack have ended well, FAILED for any other end; None before its end."""
    living = state.packs.get(first.job_id, ())
    if any(settled_outcome(state.jobs[one]) is None for one in living):
        return None
    return JobState.FAILED if has_failed(first) else JobState.COMPLETED


def outcome_of_old(first: Job) -> JobState:
    """The outcome of a pack that has left memory, by the last record of its first member."""
    return (
        JobState.FAILED if has_failed(first) or first.state is not JobState.COMPLETED else JobState.COMPLETED
    )


def has_failed(first: Job) -> bool:
    """Check whether a member of this first one's pack has ended otherwise than well: nothing can change that."""
    return first.pack is not None and first.pack.failed > 0


def is_cancelled(state: State, job: Job) -> bool:
    """Check whether the job is not to begin any more, because another one of its pack has ended otherwise than well."""
    place = job.pack
    if place is None or not place.cancels or not place.anchor_us:
        return False
    first = state.find_job(place.pack_id)
    return (
        first is not None and has_failed(first) and first.pack is not None and first.pack.failed != job.job_id
    )


def concerned(state: State, job_id: int) -> list[int]:
    """The members of its pack to look at after the end of an attempt, or of a job that waited: perhaps `cancelled`."""
    job = state.find_job(job_id)
    if job is None or job.pack is None or not job.pack.cancels:
        return []
    if is_cancelled(state, job):
        return [job_id]
    return [one for one in state.packs.get(job.pack.pack_id, ()) if is_cancelled(state, state.jobs[one])]


def all_concerned(state: State) -> Iterator[int]:
    """The members of all packs that are not to begin any more."""
    for pack_id, living in state.packs.items():
        first = state.find_job(pack_id)
        if first is not None and has_failed(first):
            yield from (one for one in living if is_cancelled(state, state.jobs[one]))


def cancelled(state: State, job: Job) -> list[facts.Fact]:
    """The facts that cancel a member which is not to begin any more; none if it runs."""
    if not is_cancelled(state, job):
        return []
    by = f"its pack: {_end_of(state, job)}"
    if job.state is JobState.PENDING:
        return [facts.JobFinished(job.job_id, JobState.CANCELLED, f"cancelled by {by}")]
    if job.state in (JobState.LAUNCHING, JobState.COMPLETING):
        return stop(state, job, StopCause.CANCEL, state.now_us, by)
    return []


def _end_of(state: State, job: Job) -> str:
    """`job 18 ended FAILED`."""
    first = state.get_job(job.pack.pack_id) if job.pack is not None else job
    failed_id = first.pack.failed if first.pack is not None else 0
    failed = state.find_job(failed_id)
    outcome = settled_outcome(failed) if failed is not None else None
    return (
        f"job {failed_id} ended {outcome.value}"
        if outcome is not None
        else f"job {failed_id} did not end well"
    )
