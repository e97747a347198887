"""Messages about jobs that are owed to their users, written into the jobs' records as the jobs move on.

Invariant: a job that asks for no mail, and a cluster that sends none, cost one look. What is owed is bounded for each job
and for all of them together.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from eslurm.core.model import facts
from eslurm.core.model.job import Attempt, Job
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.mail import JOBS_MAX, NODES_MAX, NOTES_MAX, MailNote, MailRecord
from eslurm.core.model.mail_words import (
    ARRAY_TASKS,
    BEGIN,
    END,
    FAIL,
    INVALID_DEPENDENCY,
    PERCENTAGES,
    REQUEUE,
    TIME_LIMIT,
    events_of,
)
from eslurm.core.state.allocation_amounts import paused_us
from eslurm.core.state.cluster import State

WELL = frozenset({JobState.COMPLETED, JobState.CANCELLED})
"""Ends that are no failure for mail."""


def wanted(state: State, job: Job) -> tuple[str, ...]:
    """The events of the record for which a message is owed: of an array its own, or those of its tasks."""
    spec = job.spec
    if not spec.mail_type or not state.config.sends_mail or job.grows is not None or job.guest_of is not None:
        return ()
    events = events_of(spec.mail_type)
    if spec.array is not None and (ARRAY_TASKS in events) == job.is_array:
        return ()
    return events


def begun(state: State, job: Job) -> Job:
    """The record of a job whose attempt, or of an array whose first task, has begun."""
    events = wanted(state, job)
    return _noted(state, job, [BEGIN], events) if BEGIN in events else job


def ended(state: State, job: Job, before: Attempt, fact: facts.AttemptEnded) -> Job:
    """The record of a job whose attempt has just ended; `before` is the attempt before that."""
    events = wanted(state, job)
    if not events:
        return job
    found = []
    has_run = job.started_us and fact.end is not None
    if has_run and not before.started_us:
        found.append(BEGIN)
    if has_run and fact.end is not None and fact.end.cause == "time_limit":
        found.append(TIME_LIMIT)
    if fact.outcome is JobState.PENDING:
        found += [REQUEUE] if job.started_us else []
    else:
        found.append(_end_of(fact.outcome, events))
    return _noted(state, job, found, events)


def finished(state: State, job: Job, *, never_met: bool = False) -> Job:
    """The record of a job that waits, or of an array, that has reached its final state."""
    events = wanted(state, job)
    if not events:
        return job
    outcome = job.outcome or job.state
    found = [INVALID_DEPENDENCY] if never_met else []
    return _noted(state, job, [*found, _end_of(outcome, events)], events)


def apply_reached(state: State, fact: facts.MailReached) -> None:
    """So much of the running attempt's time limit is over."""
    job = state.get_job(fact.job_id)
    job = _noted(state, job, [PERCENTAGES[fact.percent]], wanted(state, job))
    record = job.mail or MailRecord()
    state.put_job(replace(job, mail=replace(record, attempt=fact.attempt, percent=fact.percent)))


def apply_told(state: State, fact: facts.MailTold) -> None:
    """The message of that number was sent, or is given up."""
    job = state.find_job(fact.job_id)
    if job is None or job.mail is None:
        return
    left = tuple([note for note in job.mail.notes if note.number != fact.number])
    state.put_job(replace(job, mail=replace(job.mail, notes=left)))


def _end_of(outcome: JobState, events: tuple[str, ...]) -> str:
    """The one event of an end: a failure is one, and an end where only ends are asked for."""
    return FAIL if outcome not in WELL and FAIL in events else END


def _noted(state: State, job: Job, found: Iterable[str], events: tuple[str, ...]) -> Job:
    """The record with a message for each of these events that is asked for."""
    record = job.mail or MailRecord()
    for event in found:
        is_full = len(record.notes) >= NOTES_MAX
        is_crowded = job.job_id not in state.mailing and len(state.mailing) >= JOBS_MAX
        if event not in events or is_full or is_crowded:
            continue
        note = _note(state, job, event, record.count + 1)
        record = replace(record, notes=(*record.notes, note), count=note.number)
    return replace(job, mail=record) if record.notes else job


def _note(state: State, job: Job, event: str, number: int) -> MailNote:
    attempt = job.attempt
    end = attempt.end if attempt is not None else None
    nodes = attempt.nodes if attempt is not None else []
    now_us = state.now_us
    if event == BEGIN:
        run_us = job.started_us - job.submitted_us
    elif not job.started_us:
        run_us = 0
    elif job.ended_us:
        run_us = job.ended_us - job.started_us - job.paused_us
    else:
        run_us = now_us - job.started_us - (paused_us(attempt, now_us) if attempt is not None else 0)
    return MailNote(
        number,
        event,
        now_us,
        (job.state if job.state in FINAL or job.outcome in (None, JobState.PENDING) else job.outcome).value,
        attempt.number if attempt is not None else job.attempts,
        job.started_us,
        max(0, run_us),
        job.exit_code,
        job.exit_signal,
        job.exit_text if event != BEGIN else "",
        tuple(nodes[:NODES_MAX]),
        len(nodes),
        end.user_cpu_us + end.system_cpu_us if end is not None else 0,
        end.max_rss_kib if end is not None else 0,
    )
