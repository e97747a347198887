"""Jobs that change their cell: offers, arrivals, outcomes (ADR 31).

The shared store decides between the two cells; these messages say what it holds. Invariant: a message that comes again, or
about another offer than the present one, changes nothing.
"""

from __future__ import annotations

from eslurm.core.control.jobs.admission import admitted, check_room, first_priority
from eslurm.core.control.jobs.movable import check_here, check_movable
from eslurm.core.model import facts
from eslurm.core.model.federation import Outcome
from eslurm.core.model.job import Job, JobSpec
from eslurm.core.model.job_ids import JOB_ID_MAX
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.job_weight import weight
from eslurm.core.model.messages import (
    Arrival,
    ConfirmArrival,
    DropArrival,
    EndOffer,
    NoteOutcome,
    NoteTold,
    NoteTransferred,
    OfferJob,
    RefusalCode,
    Refused,
    SubmitJobs,
    Submitted,
)
from eslurm.core.model.transfer import ANY_CELL, Transfer, TransferStage
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State

GIVEN_UP_AFTER_S = 60
"""An offer without an answer for so long may be given up."""
SERIAL_MAX = 2**53


# ---- at home ----


def on_offer(state: State, message: OfferJob) -> list[facts.Fact]:
    """Offer a job that waits for resources only, and that has never been placed here: nothing of it can run."""
    job = state.find_job(message.job_id)
    if job is None or job.job_id not in state.queue or job.transfer is not None:
        return []
    may_go = ANY_CELL in job.spec.cells or message.cell in job.spec.cells
    return [facts.JobOffered(job.job_id, message.cell)] if may_go and not job.attempts else []


def on_offer_ended(state: State, message: EndOffer) -> list[facts.Fact]:
    """Let the job wait here again, or end it if it was to be cancelled."""
    job = _of(state, message, TransferStage.OFFERED)
    if job is None or job.transfer is None:
        return []
    found: list[facts.Fact] = [facts.OfferEnded(job.job_id, message.serial)]
    if by := job.transfer.cancel_by:
        found.append(facts.JobFinished(job.job_id, JobState.CANCELLED, f"cancelled by {by}"))
    return found


def on_transferred(state: State, message: NoteTransferred) -> list[facts.Fact]:
    """Note that the other cell owns the job."""
    job = _of(state, message, TransferStage.OFFERED)
    return [facts.JobTransferred(job.job_id, message.serial)] if job is not None else []


def on_outcome(state: State, message: NoteOutcome) -> list[facts.Fact]:
    """End the job as it ended in the cell that owned it; this one may not have heard that it did."""
    found = on_transferred(state, NoteTransferred(message.job_id, message.serial))
    job = _of(state, message, TransferStage.OFFERED if found else TransferStage.TRANSFERRED)
    if job is None or job.state in FINAL:
        return []
    return [*found, facts.TransferEnded(job.job_id, message.serial, message.outcome)]


def cancelled(job: Job, by: str) -> list[facts.Fact]:
    """Demand the end of a job that another cell owns, or may take. Raises `Refused` for one that is not owned here yet."""
    transfer = job.transfer
    if transfer is None or transfer.stage is TransferStage.ARRIVING:
        check_here(job)
        return []
    return [] if transfer.cancel_by else [facts.OfferCancelled(job.job_id, by)]


def given_up(job: Job, by: str, now_us: int) -> list[facts.Fact]:
    """End a job whose other cell is lost for good: it may run there all the same. Raises `Refused`."""
    transfer = job.transfer
    is_offered = transfer is not None and transfer.stage is TransferStage.OFFERED
    if transfer is None or not (is_offered or job.state is JobState.TRANSFERRED):
        raise Refused(
            RefusalCode.CONFLICT,
            f"--lost: job {job.job_id} ({job.state.value}) is in no other cell: cancel it without --lost",
        )
    if is_offered and now_us < transfer.since_us + GIVEN_UP_AFTER_S * SECOND_US:
        raise Refused(
            RefusalCode.CONFLICT,
            f"--lost: cell {transfer.cell} may still answer the offer of job {job.job_id}: try again when it has not for "
            f"{GIVEN_UP_AFTER_S} s",
        )
    outcome = Outcome(JobState.NODE_FAIL.value, text=f"given up with cell {transfer.cell} by {by}"[:255])
    ended = facts.TransferEnded(job.job_id, transfer.serial, outcome)
    return [facts.JobTransferred(job.job_id, transfer.serial), ended] if is_offered else [ended]


# ---- in the cell that takes it ----


def on_arrival(state: State, message: SubmitJobs, now_us: int) -> tuple[list[facts.Fact], Submitted]:
    """Accept another cell's job as a submission of its user, under the home cell's id. Raises `Refused`."""
    arrival = message.arrival
    assert arrival is not None
    spec = _spec_of(message)
    answer = Submitted((arrival.job_id,))
    if _is_here(state, arrival, spec):
        return [], answer
    check_room(state, spec.user, 1, weight(spec))
    spec = admitted(state, spec, now_us)
    transfer = Transfer(TransferStage.ARRIVING, arrival.home, arrival.serial, now_us)
    due_us = spec.begin_us if spec.begin_us > now_us else 0
    submitted = facts.JobSubmitted(
        arrival.job_id, spec, first_priority(state, spec), not_before_us=due_us, transfer=transfer
    )
    return [submitted], answer


def _spec_of(message: SubmitJobs) -> JobSpec:
    """The one job that arrives. Raises `Refused` for what no cell offers."""
    if len(message.specs) != 1 or message.packs:
        raise Refused(RefusalCode.INVALID, "arrival: a cell offers its jobs one by one")
    (spec,) = message.specs
    if spec.dependencies or spec.cells or spec.held:
        raise Refused(
            RefusalCode.INVALID, "arrival: dependencies, holds and the choice of cells stay in the home cell"
        )
    check_movable(spec)
    return spec


def _is_here(state: State, arrival: Arrival, spec: JobSpec) -> bool:
    """Check whether this offer of the job has arrived already. Raises `Refused` when the id cannot be the home cell's."""
    job_id, home = arrival.job_id, arrival.home
    if not 0 < job_id < JOB_ID_MAX or not 0 < arrival.serial <= SERIAL_MAX:
        raise Refused(
            RefusalCode.INVALID, f"arrival: job {job_id}, serial {arrival.serial}: no cell offers that"
        )
    if any(block.first <= job_id < block.end for block in state.id_blocks):
        raise Refused(RefusalCode.CONFLICT, f"arrival: job id {job_id} is this cell's own, not one of {home}")
    job = state.find_named(job_id)
    if job is None:
        return False
    transfer = job.transfer
    if (
        transfer is None
        or transfer.cell != home
        or transfer.stage
        in (
            TransferStage.OFFERED,
            TransferStage.TRANSFERRED,
        )
    ):
        raise Refused(
            RefusalCode.CONFLICT, f"arrival: job id {job_id} is another job's here, not one of {home}"
        )
    if transfer.serial == arrival.serial:
        if job.spec.user.uid != spec.user.uid:
            raise Refused(RefusalCode.CONFLICT, f"arrival: job {job_id} is {job.spec.user.name}'s here")
        return True
    if transfer.stage is TransferStage.ARRIVING and transfer.serial < arrival.serial:
        raise Refused(
            RefusalCode.EXHAUSTED,
            f"arrival: an earlier offer of job {job_id} is being dropped: offer it again",
        )
    raise Refused(
        RefusalCode.CONFLICT,
        f"arrival: offer {transfer.serial} of job {job_id} is here: {arrival.serial} is over",
    )


def on_confirmed(state: State, message: ConfirmArrival) -> list[facts.Fact]:
    """Let the job wait here: this cell owns it."""
    job = _of(state, message, TransferStage.ARRIVING)
    return [facts.ArrivalConfirmed(job.job_id, message.serial)] if job is not None else []


def on_dropped(state: State, message: DropArrival) -> list[facts.Fact]:
    """Remove the job: its offer is over."""
    job = _of(state, message, TransferStage.ARRIVING)
    return [facts.ArrivalDropped(job.job_id, message.serial)] if job is not None else []


def on_told(state: State, message: NoteTold) -> list[facts.Fact]:
    """Note that nothing is owed to the home cell any more."""
    job = _of(state, message, TransferStage.OWNED)
    if job is None or job.state not in FINAL:
        return []
    return [facts.OutcomeTold(job.job_id, message.serial)]


def _of(
    state: State,
    message: EndOffer | NoteTransferred | NoteOutcome | ConfirmArrival | DropArrival | NoteTold,
    stage: TransferStage,
) -> Job | None:
    """The job, while this offer of it is in this stage."""
    job = state.find_job(message.job_id)
    transfer = job.transfer if job is not None else None
    is_meant = transfer is not None and (transfer.serial, transfer.stage) == (message.serial, stage)
    return job if is_meant else None
