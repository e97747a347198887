"""Crontabs: lines that are jobs, each of which waits for its next time, runs, and waits again (scrontab).

A line keeps one job: at the end of an attempt the job returns to the queue, not before the next time that is later than the
attempt's start. So a change of the leader neither repeats a run nor leaves the job out, and a run that lasts longer than the
interval skips the times within. Invariant: a crontab is set by its own user; operators only remove it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from eslurm.core.control.job_ids import take_ids
from eslurm.core.control.jobs.admission import admitted, check_room, first_priority
from eslurm.core.control.jobs.cron_times import next_us
from eslurm.core.control.jobs.stopping import stop
from eslurm.core.control.rights import is_operator
from eslurm.core.model import facts
from eslurm.core.model.crontab import BYTES_MAX, ENTRIES_MAX, CronLine, Crontab
from eslurm.core.model.job import Job, JobSpec
from eslurm.core.model.job_states import FINAL, JobState, StopCause
from eslurm.core.model.job_weight import weight
from eslurm.core.model.messages import Changed, RefusalCode, Refused, SetCrontab
from eslurm.core.model.parts import ids_taken
from eslurm.core.state.cluster import State

Decision = tuple[list[facts.Fact], Changed]
_UNSUITED: Final[Mapping[str, str]] = {
    "array": "--array",
    "begin_us": "--begin",
    "cells": "--cell",
    "deadline_us": "--deadline",
    "dependencies": "--dependency",
    "elastic": "--elastic",
    "gateway": "--gateways",
    "no_script": "an allocation",
    "retry": "--retry-on",
    "start_at_us": "--start-at",
}
"""Requests that mean nothing of a job that runs again and again, by their option."""


def on_set(state: State, message: SetCrontab, now_us: int) -> Decision:
    """Replace the user's crontab, or remove it (no text). Lines that stay the same keep their jobs. Raises `Refused`."""
    _check(state, message)
    before = state.crontabs.get(message.uid, Crontab(message.uid, message.user, ""))
    new = [replace(one, spec=_accepted(state, one.spec, now_us)) for one in message.jobs]
    kept = _kept(state, before, [one.spec for one in new])
    fresh = [one.spec for at, one in enumerate(new) if at not in kept]
    if fresh:
        check_room(state, message.by, len(fresh), sum(map(weight, fresh)))
    found, ids = take_ids(state, sum(map(ids_taken, fresh)))
    next_id = ids.start
    lines = []
    for at, one in enumerate(new):
        job_id = kept.get(at, 0)
        if not job_id:
            job_id, next_id = next_id, next_id + ids_taken(one.spec)
            found.append(
                facts.JobSubmitted(job_id, one.spec, first_priority(state, one.spec), (), one.spec.begin_us)
            )
        lines.append(CronLine(one.line, job_id, one.first or one.line))
    crontab = Crontab(message.uid, message.user, message.text, tuple(lines))
    if crontab != before:
        found.append(facts.CrontabSet(crontab))
    stay = set(kept.values())
    for line in before.lines:
        if line.job_id not in stay:
            found += _ended(state, line.job_id, message.by.name, now_us)
    return found, Changed(len(new))


def disabled(state: State, cancelled: Iterable[int]) -> list[facts.Fact]:
    """The facts that take the lines of these jobs, which are being cancelled, out of service."""
    gone = frozenset(cancelled)
    uids = dict.fromkeys(
        state.get_job(job_id).spec.user.uid for job_id in sorted(gone) if is_line(state, job_id)
    )
    return [facts.CrontabSet(state.crontabs[uid].without(gone)) for uid in uids]


def is_line(state: State, job_id: int) -> bool:
    """Check whether the job is a line of its user's crontab."""
    job = state.find_job(job_id)
    crontab = state.crontabs.get(job.spec.user.uid) if job is not None and job.spec.cron else None
    return crontab is not None and crontab.has(job_id)


def check_not_line(state: State, job: Job, way_out: str) -> None:
    """Raise `Refused` for a line of a crontab."""
    if is_line(state, job.job_id):
        text = f"job {job.job_id} is a line of the crontab of {job.spec.user.name}: {way_out}"
        raise Refused(RefusalCode.INVALID, text)


def _check(state: State, message: SetCrontab) -> None:
    by = message.by
    if message.uid != by.uid and (message.text or message.jobs):
        text = f"the crontab of {message.user}: only its user sets it: {by.name} can show it, or remove it"
        raise Refused(RefusalCode.DENIED, text)
    if message.uid != by.uid and not is_operator(state, by):
        text = f"the crontab of {message.user}: {by.name} is no operator: only they remove those of others"
        raise Refused(RefusalCode.DENIED, text)
    if len(message.text.encode("utf-8", "surrogatepass")) > BYTES_MAX:
        raise _refused(f"the crontab is longer than {BYTES_MAX} bytes: keep scripts in files")
    if len(message.jobs) > ENTRIES_MAX:
        raise _refused(
            f"{len(message.jobs)} lines in one crontab are more than {ENTRIES_MAX}: run several in one script"
        )
    numbers = [one.line for one in message.jobs]
    last = message.text.count("\n") + 1
    firsts = [one.first or one.line for one in message.jobs]
    ends = [0, *numbers]
    if not all(
        before < first <= line <= last for before, first, line in zip(ends, firsts, numbers, strict=False)
    ):
        raise _refused(f"the jobs are not those of the {last} lines of the crontab: use scrontab")
    for one in message.jobs:
        for field, option in _UNSUITED.items():
            if getattr(one.spec, field):
                raise _refused(
                    f"line {one.line}: {option} goes not with a crontab: its line says when it runs"
                )


def _accepted(state: State, spec: JobSpec, now_us: int) -> JobSpec:
    """The job of a line, from its first time on. Raises `Refused`."""
    begin_us = next_us(state.calendar, spec.cron, now_us)
    if not begin_us:
        raise _refused(f"'{spec.cron}' never comes: give another time")
    return replace(admitted(state, spec, now_us), begin_us=begin_us)


def _kept(state: State, before: Crontab, specs: list[JobSpec]) -> dict[int, int]:
    """The jobs of lines that were there before, by the index of the new line."""
    left = [
        (line.job_id, _same(state.get_job(line.job_id).spec)) for line in before.lines if _lives(state, line)
    ]
    found = {}
    for at, spec in enumerate(specs):
        wanted = _same(spec)
        match = next((one for one in left if one[1] == wanted), None)
        if match is not None:
            left.remove(match)
            found[at] = match[0]
    return found


def _same(spec: JobSpec) -> JobSpec:
    """A spec without what differs between two submissions of one line."""
    return replace(spec, begin_us=0, trace=b"")


def _lives(state: State, line: CronLine) -> bool:
    job = state.find_job(line.job_id)
    return job is not None and job.state not in FINAL


def _ended(state: State, job_id: int, by: str, now_us: int) -> list[facts.Fact]:
    """End the job of a line that is gone. One that runs goes on to its end, and is not run again."""
    job = state.find_job(job_id)
    if job is None or job.state in FINAL:
        return []
    if job.state is JobState.PENDING and job.outcome is None:
        return [facts.JobFinished(job_id, JobState.CANCELLED, f"taken out of the crontab by {by}")]
    if job.outcome is JobState.PENDING:
        return stop(state, job, StopCause.CANCEL, now_us, by)
    return []


def _refused(text: str) -> Refused:
    return Refused(RefusalCode.INVALID, text)
