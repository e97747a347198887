"""Application of facts about jobs that span several cells (ADR 32).

Invariant: the request of such a job is for all of its nodes but while its guests hold their part.
"""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.model import facts
from eslurm.core.model.guests import GATHER_US, Guests, GuestStage, nodes_of, share_of
from eslurm.core.model.job import Job, JobSpec
from eslurm.core.state.cluster import State


def apply_asked(state: State, fact: facts.GuestsAsked) -> None:
    job = state.get_job(fact.job_id)
    asked = replace(
        _guests(job),
        stage=GuestStage.ASKED,
        serial=state.revision,
        attempt=job.attempts + 1,
        until_us=state.now_us + GATHER_US,
        own_nodes=fact.own_nodes,
        total_nodes=nodes_of(job.spec.components[0]),
        guests=fact.guests,
    )
    state.put_job(replace(job, guests=asked))
    # A plan under way may place the job.
    state.note_change(fact.job_id)


def apply_held(state: State, fact: facts.GuestsHeld) -> None:
    job = _of_serial(state, fact.job_id, fact.serial)
    guests = replace(_guests(job), stage=GuestStage.HELD, guests=fact.guests)
    state.put_job(replace(job, guests=guests, spec=_asking_for(job.spec, guests.own_nodes)))
    state.note_change(fact.job_id)


def apply_given_up(state: State, fact: facts.GuestsGivenUp) -> None:
    job = _of_serial(state, fact.job_id, fact.serial)
    leaving = replace(_guests(job), stage=GuestStage.LEAVING)
    spec = _asking_for(job.spec, leaving.total_nodes)
    _put(state, replace(job, spec=spec), leaving)


def apply_gone(state: State, fact: facts.GuestGone) -> None:
    job = _of_serial(state, fact.job_id, fact.serial)
    _put(state, job, _guests(job).without(fact.cell))


def _put(state: State, job: Job, guests: Guests) -> None:
    """Put the job with these guests; after the last one has gone it may ask again."""
    if not guests.guests and guests.stage is not GuestStage.HELD:
        guests = Guests(is_wide=guests.is_wide)
    state.put_job(replace(job, guests=guests))
    state.note_change(job.job_id)


def apply_kept(state: State, fact: facts.GuestKept) -> None:
    job = state.get_job(fact.job_id)
    assert job.guest_of is not None
    state.put_job(replace(job, guest_of=replace(job.guest_of, until_us=0)))


def _asking_for(spec: JobSpec, nodes: int) -> JobSpec:
    return replace(spec, components=(share_of(spec.components[0], nodes),))


def _guests(job: Job) -> Guests:
    assert job.guests is not None
    return job.guests


def _of_serial(state: State, job_id: int, serial: int) -> Job:
    """The job that has these guests."""
    job = state.get_job(job_id)
    assert _guests(job).serial == serial, f"job {job_id}: {job.guests}, not {serial}"
    return job
