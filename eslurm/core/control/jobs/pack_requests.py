"""Requests about jobs of packs: which jobs one concerns.

A pack that has not begun is one: each of its jobs names all of them. Afterwards its id, the first job's, names all that have
not ended, and another id that job alone; so does `17+0` the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eslurm.core.control.jobs.access import check_managed
from eslurm.core.control.jobs.pack_submission import check_delay, check_pack
from eslurm.core.model import facts
from eslurm.core.model.job import Job, JobSpec, Principal
from eslurm.core.model.job_states import FINAL
from eslurm.core.model.messages import JobRef, RefusalCode, Refused, UpdateJob
from eslurm.core.model.units import SECOND_US
from eslurm.core.model.wording import counted
from eslurm.core.resources.ledger import Ledger
from eslurm.core.state.apply_packs import members
from eslurm.core.state.cluster import State


def is_whole(job: Job) -> bool:
    """Check whether the job's pack has not begun: what concerns the job concerns all of it."""
    return job.pack is not None and not job.pack.anchor_us and job.state not in FINAL


def first_of(state: State, by: Principal, job: Job, what: str) -> Job:
    """The first job of a pack that has not begun. Raises `Refused` unless the caller may change all of it."""
    assert job.pack is not None
    for one in members(state, job.pack.pack_id):
        check_managed(state, by, one, what)
    return state.get_job(job.pack.pack_id)


def note_of(job: Job, what: str) -> str:
    """The remark that a request about this job concerns its whole pack."""
    assert job.pack is not None
    return (
        f"{what} is part {job.pack.index} of pack {job.pack.pack_id}, which has not begun: "
        f"this concerns all of its {counted(job.pack.count, 'job')}"
    )


def is_named(pack_id: int, refs: Iterable[JobRef]) -> bool:
    """Check whether one of the references is to the pack: its id alone, as `17+0` is the first job."""
    return any(ref.job_id == pack_id and ref.part < 0 for ref in refs)


def concerned(state: State, by: Principal, job: Job, *, is_named: bool) -> list[Job]:
    """The jobs that a request about a job of a pack concerns, the first one last; `is_named`: the user named its id.

    Raises `Refused` unless the caller may change all of them.
    """
    assert job.pack is not None
    if not is_whole(job) and not (is_named and job.job_id == job.pack.pack_id):
        return [job]
    found = members(state, job.pack.pack_id)
    for one in found:
        check_managed(state, by, one, str(one.job_id))
    return found[::-1]


def check_update(job: Job, message: UpdateJob) -> None:
    """Raise `Refused` for changes of a pack's job that contradict its delay."""
    place = job.pack
    assert place is not None
    given = [
        name
        for name, value in (("begin", message.begin_us), ("dependency", message.dependencies))
        if value is not None
    ]
    if given and place.index:
        raise Refused(
            RefusalCode.CONFLICT,
            f"{given[0]}: job {job.job_id} begins {place.delay_us // SECOND_US} s after job {place.pack_id}: "
            + ("its pack has begun" if place.anchor_us else f"change job {place.pack_id}"),
        )


def check_changed(state: State, job: Job, spec: JobSpec, now_us: int, empty: Ledger) -> None:
    """Raise `Refused` when a pack that has not begun could never run with this job so changed."""
    assert job.pack is not None
    check_delay(state, spec, job.pack.delay_us // SECOND_US, now_us)
    found = members(state, job.pack.pack_id)
    specs = [spec if one.job_id == job.job_id else one.spec for one in found]
    delays_s = [one.pack.delay_us // SECOND_US for one in found if one.pack]
    check_pack(state, specs, delays_s, now_us, empty)


def with_priority(state: State, job: Job, priority: int) -> Sequence[facts.Fact]:
    """The facts that give the other jobs of a pack that has not begun this priority."""
    assert job.pack is not None
    return [
        facts.JobChanged(one.job_id, one.spec, priority, one.not_before_us)
        for one in members(state, job.pack.pack_id)
        if one.job_id != job.job_id and one.priority != priority
    ]
