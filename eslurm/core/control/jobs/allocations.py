"""Allocations without a script: which jobs may be one, their release by their command, and their end without it (ADR 44).

Invariant: such a job ends for good, whatever ended it: nothing of it can be started a second time.
"""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.control.jobs.access import get_seen
from eslurm.core.control.jobs.stopping import stop
from eslurm.core.model import facts
from eslurm.core.model.job import Job, JobSpec, Principal
from eslurm.core.model.job_states import ACTIVE, FINAL, STARTED, JobState, StopCause
from eslurm.core.model.messages import Changed, EndUnattended, RefusalCode, Refused, ReleaseJob
from eslurm.core.model.values import EXIT_CODE_MAX
from eslurm.core.state.cluster import State


def allocation(spec: JobSpec, *, in_pack: bool = False) -> JobSpec:
    """The spec of an allocation, which is never started again. Raises `Refused` for what needs a script."""
    if not spec.no_script:
        raise Refused(RefusalCode.INVALID, "attended: a job with a script needs no command that keeps it")
    problem = ""
    if spec.script_hash or spec.arguments:
        problem = "an allocation has no script: submit it as a batch job"
    elif in_pack:
        problem = "the jobs of a pack begin by themselves: give it scripts"
    elif spec.array is not None:
        problem = "--array: the tasks of an array are scripts"
    elif spec.cells or spec.span:
        problem = "--cell: steps of an allocation start in the cell that was asked for it: name no other one"
    elif spec.retry is not None:
        problem = "--retry-on: an allocation is not started again"
    elif spec.warn_script:
        problem = "--warn-script: a script is warned of the time limit, and an allocation has none"
    elif spec.gateway is not None:
        problem = "--gateways: they are told of a job's script: submit it as a batch job"
    if problem:
        raise Refused(RefusalCode.INVALID, problem)
    return replace(spec, requeue=False)


def on_release(state: State, message: ReleaseJob, now_us: int) -> tuple[list[facts.Fact], Changed]:
    """Give an allocation back: it ends as its command did, or is cancelled when it has not begun. Raises `Refused`."""
    job = get_seen(state, message.by, message.job_id)
    check_kept(message.by, job)
    if not job.spec.no_script:
        text = f"job {job.job_id} has a script, which ends it: cancel it with escancel {job.job_id}"
        raise Refused(RefusalCode.CONFLICT, text)
    if not 0 <= message.exit_code <= EXIT_CODE_MAX:
        text = f"exit_code: {message.exit_code} is not within 0..{EXIT_CODE_MAX}"
        raise Refused(RefusalCode.INVALID, text)
    if job.state in STARTED:
        found = stop(*(state, job, StopCause.RELEASE, now_us, message.by.name), exit_code=message.exit_code)
    else:
        found = _ended(state, job, now_us, message.by.name)
    return found, Changed(1 if found else 0)


def on_unattended(state: State, message: EndUnattended, now_us: int) -> list[facts.Fact]:
    """End allocations whose commands are gone."""
    by = f"eslurm: its command has not been heard of for {message.silent_s:g} s"
    found: list[facts.Fact] = []
    for job_id in message.job_ids:
        job = state.find_job(job_id)
        if job is not None and job.spec.attended:
            found += _ended(state, job, now_us, by)
    return found


def _ended(state: State, job: Job, now_us: int, by: str) -> list[facts.Fact]:
    if job.state in FINAL:
        return []
    if job.state is JobState.PENDING and job.outcome is None:
        return [facts.JobFinished(job.job_id, JobState.CANCELLED, f"cancelled by {by}")]
    return stop(state, job, StopCause.CANCEL, now_us, by) if job.state in ACTIVE else []


def check_kept(by: Principal, job: Job) -> None:
    """Raise `Refused` unless it is the caller's own job."""
    if by.uid != job.spec.user.uid:
        raise Refused(
            RefusalCode.DENIED,
            f"job {job.job_id} belongs to {job.spec.user.name}: only its user keeps and releases it",
        )
