"""Jobs that span several cells, at home and in the cells that lend nodes (S-05, ADR 32).

At home: a request for guests, all of them held, given up, gone. In the other cell: a guest that is kept, or ends.
Invariant: a message that comes again, or about other guests than the present ones, changes nothing.
"""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.control.jobs.admission import on_submit, partition_limit_s
from eslurm.core.control.jobs.movable import check_movable
from eslurm.core.control.jobs.stopping import stop
from eslurm.core.model import facts
from eslurm.core.model.guests import GATHER_US, GUESTS_MAX, Guest, Guests, GuestStage, nodes_of
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import ACTIVE, FINAL, JobState, StopCause
from eslurm.core.model.messages import (
    AskGuests,
    GiveUpGuests,
    HoldGuests,
    KeepGuest,
    LoseGuest,
    NoteGuestGone,
    RefusalCode,
    Refused,
    SubmitJobs,
    Submitted,
)
from eslurm.core.model.transfer import ANY_CELL
from eslurm.core.state.cluster import State
from eslurm.core.state.pending_reason import may_gather

SERIAL_MAX = 2**53

# ---- at home ----


def on_ask(state: State, message: AskGuests) -> list[facts.Fact]:
    """Ask other cells for a part of the nodes of a job that waits for resources alone."""
    job = state.find_job(message.job_id)
    guests = job.guests if job is not None else None
    if job is None or guests is None or guests.stage is not GuestStage.NONE or guests.guests:
        return []
    if job.state is not JobState.PENDING or job.attempt is not None or not may_gather(state, job):
        return []
    cells = [guest.cell for guest in message.guests]
    may_go = ANY_CELL in job.spec.cells or set(cells) <= set(job.spec.cells)
    fits = message.own_nodes + sum(guest.nodes for guest in message.guests) == nodes_of(
        job.spec.components[0]
    )
    is_split = message.own_nodes > 0 and 0 < len(cells) <= GUESTS_MAX and len(set(cells)) == len(cells)
    if not (may_go and fits and is_split and all(guest.nodes > 0 for guest in message.guests)):
        return []
    asked = tuple([Guest(guest.cell, guest.nodes) for guest in message.guests])
    return [facts.GuestsAsked(job.job_id, message.own_nodes, asked)]


def on_held(state: State, message: HoldGuests, now_us: int) -> list[facts.Fact]:
    """Let the job start on its own part: all guests have their nodes."""
    job = _of(state, message, GuestStage.ASKED)
    if job is None or job.guests is None or now_us >= job.guests.until_us:
        return []
    asked = [(guest.cell, guest.nodes) for guest in job.guests.guests]
    if [(guest.cell, guest.nodes) for guest in message.guests] != asked:
        return []
    return [facts.GuestsHeld(job.job_id, message.serial, message.guests)]


def on_given_up(state: State, message: GiveUpGuests) -> list[facts.Fact]:
    """End the guests of a job that is not going to start with them, or that starts again without them."""
    job = _of(state, message, GuestStage.ASKED, GuestStage.HELD)
    if job is None or job.state in FINAL or job.attempt is not None:
        return []
    return [facts.GuestsGivenUp(job.job_id, message.serial, message.text)]


def overdue(state: State, job_id: int, now_us: int) -> list[facts.Fact]:
    """Give up guests that did not all come in time, or whose job did not start in time."""
    job = state.find_job(job_id)
    guests = job.guests if job is not None else None
    if job is None or guests is None or not is_due(job, guests) or guests.until_us > now_us:
        return []
    text = (
        "not all of the nodes came in time"
        if guests.stage is GuestStage.ASKED
        else "its own part of the nodes was not free in time"
    )
    return [facts.GuestsGivenUp(job_id, guests.serial, text)]


def is_due(job: Job, guests: Guests) -> bool:
    """Check whether the guests wait for their job to start."""
    if job.state is not JobState.PENDING or job.attempt is not None:
        return False
    is_held = guests.stage is GuestStage.HELD and job.attempts < guests.attempt
    return is_held or guests.stage is GuestStage.ASKED


def on_lost(state: State, message: LoseGuest, now_us: int) -> list[facts.Fact]:
    """A guest has ended by itself: the running job has lost its nodes."""
    job = _of(state, message, GuestStage.HELD)
    if job is None or job.attempt is None or job.guests is None or job.frees_guests:
        return []
    attempt = job.attempt
    gone: list[facts.Fact] = [facts.GuestGone(job.job_id, message.serial, message.cell)]
    if job.spec.no_kill or attempt.until_us <= now_us + 2 * GATHER_US:
        # A guest's time limit may end a moment before that of its job, which is to end by its own.
        return gone
    why = f"cell {message.cell}, which lost its nodes: {message.text}"
    return [*gone, *stop(state, job, StopCause.NODE_LOST, now_us, why)]


def on_gone(state: State, message: NoteGuestGone) -> list[facts.Fact]:
    """Forget a guest that has ended, or that was never there."""
    job = _of(state, message, GuestStage.HELD, GuestStage.LEAVING, GuestStage.ASKED)
    if job is None or job.guests is None or not job.frees_guests:
        return []
    if all(guest.cell != message.cell for guest in job.guests.guests):
        return []
    return [facts.GuestGone(job.job_id, message.serial, message.cell)]


def _of(
    state: State,
    message: HoldGuests | GiveUpGuests | LoseGuest | NoteGuestGone,
    *stages: GuestStage,
) -> Job | None:
    """The job, while it has these guests in one of these stages."""
    job = state.find_job(message.job_id)
    guests = job.guests if job is not None else None
    is_meant = guests is not None and guests.serial == message.serial and guests.stage in stages
    return job if is_meant else None


# ---- in the cell that lends nodes ----


def on_guest(state: State, message: SubmitJobs, now_us: int) -> tuple[list[facts.Fact], Submitted]:
    """Accept a guest as a submission of its user. Raises `Refused`."""
    given = message.guest_of
    assert given is not None
    if len(message.specs) != 1 or message.packs:
        raise Refused(RefusalCode.INVALID, "guest: a cell asks for one part of a job at a time")
    (spec,) = message.specs
    most_s = partition_limit_s(state, spec)
    if most_s and spec.time_limit_s > most_s:
        # Its job's own limit is allowed there: what is more is for the time until that starts.
        spec = replace(spec, time_limit_s=most_s)
    if spec.dependencies or spec.cells or spec.held or spec.span or spec.begin_us:
        raise Refused(RefusalCode.INVALID, "guest: what a job waits for stays in its home cell")
    check_movable(spec)
    if not 0 < given.serial <= SERIAL_MAX or given.job_id <= 0:
        raise Refused(
            RefusalCode.INVALID, f"guest: job {given.job_id}, serial {given.serial}: no cell asks so"
        )
    found, answer = on_submit(
        state, replace(message, specs=(replace(spec, requeue=False),), guest_of=None), now_us
    )
    return [
        replace(fact, guest_of=given) if isinstance(fact, facts.JobSubmitted) else fact for fact in found
    ], answer


def on_keep(state: State, message: KeepGuest, now_us: int) -> list[facts.Fact]:
    """Keep a guest for a job that has started, or end it (`keep` false) because the job does not need it any more."""
    job = state.find_job(message.job_id)
    given = job.guest_of if job is not None else None
    if job is None or given is None or job.state in FINAL:
        return []
    if not given.is_of(message.home, message.home_job_id, message.serial):
        return []
    if message.keep:
        return [facts.GuestKept(job.job_id)] if given.until_us and now_us < given.until_us else []
    return _end(state, job, f"its job {given.job_id}@{given.home}", now_us)


def expired(state: State, job_id: int, now_us: int) -> list[facts.Fact]:
    """End a guest that its home has not kept in time."""
    job = state.find_job(job_id)
    given = job.guest_of if job is not None else None
    if job is None or given is None or job.state in FINAL or not 0 < given.until_us <= now_us:
        return []
    return _end(state, job, f"its job {given.job_id}@{given.home}, which did not start in time", now_us)


def _end(state: State, job: Job, by: str, now_us: int) -> list[facts.Fact]:
    if job.state is JobState.PENDING and job.outcome is None:
        return [facts.JobFinished(job.job_id, JobState.CANCELLED, f"ended with {by}")]
    return stop(state, job, StopCause.CANCEL, now_us, by) if job.state in ACTIVE else []
