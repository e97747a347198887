"""Mail about jobs, turned into facts: a message was sent or given up, a part of a time limit is over."""

from __future__ import annotations

from eslurm.core.model import facts
from eslurm.core.model.job import JobSpec
from eslurm.core.model.mail_words import addresses_of, events_of
from eslurm.core.model.messages import NoteMailTold, RefusalCode, Refused
from eslurm.core.state.cluster import State
from eslurm.core.state.job_indexes import next_mail


def check_mail(spec: JobSpec) -> None:
    """Raise `Refused` for an event that is none, and for what is no plain mail address."""
    try:
        events_of(spec.mail_type)
        addresses_of(spec.mail_user)
    except ValueError as error:
        raise Refused(RefusalCode.INVALID, str(error)) from None


def on_told(state: State, message: NoteMailTold) -> list[facts.Fact]:
    """A message has left, or is given up."""
    job = state.find_job(message.job_id)
    if job is None or job.mail is None or all(note.number != message.number for note in job.mail.notes):
        return []
    return [facts.MailTold(message.job_id, message.number)]


def due(state: State, job_id: int, now_us: int) -> list[facts.Fact]:
    """The fact of a running job's part of its time limit, if it is over."""
    job = state.find_job(job_id)
    percent, at_us = next_mail(job) if job is not None else (0, 0)
    if job is None or job.attempt is None or not percent or at_us > now_us or not state.config.sends_mail:
        # Another timer was set when its limit changed.
        return []
    return [facts.MailReached(job_id, job.attempt.number, percent)]
