"""Guests of spanning jobs that hang: nodes that are held for a job that does not start or end, and cells that are silent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from eslurm.core.doctor.finding import WARNING, Finding, Sliced
from eslurm.core.doctor.transfers import LATE_US, Gone
from eslurm.core.model.guests import GuestOf, Guests
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import FINAL
from eslurm.core.model.units import SECOND_US

if TYPE_CHECKING:
    from eslurm.core.federation.view import FederationView

GUESTS: Final = "guests"


def check_guests(jobs: Mapping[int, Job], view: FederationView, now_us: int) -> Sliced:
    """Check spanning jobs at home, and the guests of other cells here (ADR 32)."""
    gone = Gone(view)
    for job in list(jobs.values()):
        yield None
        if job.guests is not None and job.guests.guests:
            yield from _at_home(job, job.guests, gone, now_us)
        if job.guest_of is not None and job.state not in FINAL:
            yield from _here(job, job.guest_of, gone, now_us)


def _at_home(job: Job, guests: Guests, gone: Gone, now_us: int) -> Iterator[Finding]:
    cells = [guest.cell for guest in guests.guests]
    silent = [cell for cell in cells if cell in gone]
    if silent and job.attempt is not None:
        text = (
            f"runs on nodes of cell {', '.join(silent)}, which is silent: whether they still run is not known"
        )
        yield _finding(job, text, _RUNS_ADVICE)
        return
    is_over = job.state in FINAL
    late_s = (now_us - (job.ended_us if is_over else guests.until_us)) // SECOND_US
    if late_s * SECOND_US <= LATE_US or (job.attempt is not None and not job.frees_guests):
        return
    since = f"ended {late_s} s ago" if is_over else f"was to start {late_s} s ago"
    yield _finding(job, f"{since}, and cell {', '.join(cells)} still holds nodes for it", _HELD_ADVICE)


def _here(job: Job, given: GuestOf, gone: Gone, now_us: int) -> Iterator[Finding]:
    origin = f"job {given.job_id} of cell {given.home}"
    if given.home in gone:
        yield _finding(job, f"holds nodes for {origin}, which is silent", _HOME_ADVICE)
        return
    late_s = (now_us - given.until_us) // SECOND_US
    if given.until_us and late_s * SECOND_US > LATE_US:
        text = f"holds nodes for {origin}, which was to claim them {late_s} s ago"
        yield _finding(job, text, _KEEP_ADVICE)


def _finding(job: Job, text: str, advice: str) -> Finding:
    return Finding(GUESTS, WARNING, f"job {job.job_id}", text, advice.format(job=job.job_id))


_RUNS_ADVICE = "it goes on by itself when that cell answers; to end the job and its part here: escancel {job}"
_HELD_ADVICE = (
    "see whether that cell answers (esinfo --federation); else its nodes become free within ten minutes"
)
_HOME_ADVICE = "it ends by itself after ten minutes of silence; to free its nodes now: escancel {job}"
_KEEP_ADVICE = "this controller should have ended it: escancel {job}, and please report it"
