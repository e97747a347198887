"""Application of facts about jobs that change their cell (ADR 31).

Invariant: while `Job.is_away` holds, the job has no attempt and no place in a plan.
"""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.model import facts
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import JobState
from eslurm.core.model.transfer import Transfer, TransferStage
from eslurm.core.state.cluster import State
from eslurm.core.state.transitions import moved


def apply_offered(state: State, fact: facts.JobOffered) -> None:
    offer = Transfer(TransferStage.OFFERED, fact.cell, state.revision, state.now_us)
    state.put_job(replace(state.get_job(fact.job_id), transfer=offer))
    # A plan under way may place the job.
    state.note_change(fact.job_id)


def apply_cancelled(state: State, fact: facts.OfferCancelled) -> None:
    job = state.get_job(fact.job_id)
    state.put_job(replace(job, transfer=replace(_transfer(job), cancel_by=fact.by)))


def apply_offer_ended(state: State, fact: facts.OfferEnded) -> None:
    job = _of_serial(state, fact.job_id, fact.serial, TransferStage.OFFERED)
    state.put_job(replace(job, transfer=None))
    state.note_change(fact.job_id)


def apply_transferred(state: State, fact: facts.JobTransferred) -> None:
    job = _of_serial(state, fact.job_id, fact.serial, TransferStage.OFFERED)
    transfer = replace(_transfer(job), stage=TransferStage.TRANSFERRED, since_us=state.now_us)
    state.put_job(replace(job, state=moved(job, JobState.TRANSFERRED), transfer=transfer))


def apply_ended(state: State, fact: facts.TransferEnded) -> None:
    job = _of_serial(state, fact.job_id, fact.serial, TransferStage.TRANSFERRED)
    outcome, final = fact.outcome, JobState(fact.outcome.state)
    # The other cell has another clock: only the length of the run counts.
    ran_us = max(0, outcome.ended_us - outcome.started_us) if outcome.started_us else -1
    job = replace(
        job,
        state=moved(job, final),
        outcome=final,
        exit_code=outcome.exit_code,
        exit_signal=outcome.exit_signal,
        exit_text=outcome.text,
        started_us=max(job.submitted_us, state.now_us - ran_us) if ran_us >= 0 else 0,
        ended_us=state.now_us,
        not_before_us=0,
    )
    state.touched.ended.append((job, None))
    state.put_job(job)


def apply_confirmed(state: State, fact: facts.ArrivalConfirmed) -> None:
    job = _of_serial(state, fact.job_id, fact.serial, TransferStage.ARRIVING)
    transfer = replace(_transfer(job), stage=TransferStage.OWNED, since_us=state.now_us)
    state.put_job(replace(job, transfer=transfer))
    state.note_change(fact.job_id)


def apply_dropped(state: State, fact: facts.ArrivalDropped) -> None:
    job = _of_serial(state, fact.job_id, fact.serial, TransferStage.ARRIVING)
    # Every index follows it to an end, which no record shows.
    final = JobState.CANCELLED
    state.put_job(replace(job, state=moved(job, final), outcome=final, ended_us=state.now_us))
    state.drop_job(fact.job_id)
    state.touched.forgotten = [one for one in state.touched.forgotten if one.job_id != fact.job_id]
    state.touched.dropped.add(fact.job_id)


def apply_told(state: State, fact: facts.OutcomeTold) -> None:
    job = _of_serial(state, fact.job_id, fact.serial, TransferStage.OWNED)
    transfer = replace(_transfer(job), stage=TransferStage.TOLD, since_us=state.now_us)
    state.put_job(replace(job, transfer=transfer))


def _transfer(job: Job) -> Transfer:
    assert job.transfer is not None
    return job.transfer


def _of_serial(state: State, job_id: int, serial: int, stage: TransferStage) -> Job:
    """The job that is in this stage of this offer."""
    job = state.get_job(job_id)
    transfer = _transfer(job)
    assert (transfer.serial, transfer.stage) == (serial, stage), (
        f"job {job_id}: {transfer}, not {stage} {serial}"
    )
    return job
