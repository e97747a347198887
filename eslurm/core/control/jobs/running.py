"""Changes of a running job: suspension, resumption, its time limit and its comment.

Each function is pure: it examines one started job and returns the facts that follow. Effects inform the nodes, and are
owed until acknowledged.
"""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.control.jobs.closed import ClosedTime, longest_s, shut
from eslurm.core.model import facts
from eslurm.core.model.dates import format_moment
from eslurm.core.model.job import NO_LIMIT, Attempt, Job
from eslurm.core.model.messages import RefusalCode, Refused, UpdateJob
from eslurm.core.model.option_text import differing
from eslurm.core.model.request_limits import COMMENT_CHARS_MAX
from eslurm.core.model.units import SECOND_US
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import CORES
from eslurm.core.state.allocation_amounts import (
    UNLIMITED_S,
    elapsed_us,
    end_us,
    lends,
    lent_on,
    limit_s,
    paused_us,
)
from eslurm.core.state.cluster import State

_NOT_PARAMETERS = ("by", "job", "request", "was", "dependency_any", "dry_run")
_CHANGEABLE = ("time_limit_s", "comment")


def suspend(
    state: State, job: Job, by: str, now_us: int, *, resume: bool, room_for: int = 0
) -> list[facts.Fact]:
    """Suspend the started job, or resume it. Empty if that is its state already; raises `Refused` if it cannot.

    `room_for` is the job that gets its cores meanwhile. A job that would run into a closure of its nodes is not resumed.
    """
    attempt = _started(job)
    if bool(attempt.suspended_us) is not resume:
        return []
    if resume and lends(attempt) and not cores_are_back(state, attempt):
        raise Refused(
            RefusalCode.CONFLICT,
            f"job {job.job_id} made room for job {attempt.room_for}, which still has its cores: "
            "it goes on by itself when they are free",
        )
    if resume and (closed := shut_when_resumed(state, job, attempt, now_us)) is not None:
        longest = longest_s(replace(attempt, paused_us=paused_us(attempt, now_us)), closed)
        is_left = longest * SECOND_US > elapsed_us(attempt, now_us)
        raise Refused(
            RefusalCode.CONFLICT,
            f"job {job.job_id} would still run when node {closed.node} is closed to it, from {_at(state, closed)} on: "
            f"{closed.what}: resume it afterwards"
            + (f", or give it a time limit of at most {longest} s first" if is_left else ""),
        )
    return [facts.AttemptSuspended(job.job_id, attempt.number, not resume, by, room_for)]


def shut_when_resumed(state: State, job: Job, attempt: Attempt, now_us: int) -> ClosedTime | None:
    """The closure of a suspended job's nodes before its end if it resumes now.

    Only the extra time after its suspension counts: the closures that it would have met anyway were set up over it.
    """
    has_s = limit_s(job, attempt)
    planned_us = end_us(attempt, has_s)
    until_us = end_us(replace(attempt, paused_us=paused_us(attempt, now_us)), has_s)
    return shut(state, job, attempt, (max(now_us, planned_us), until_us), has_s, now_us)


def cores_are_back(state: State, attempt: Attempt) -> bool:
    """Check whether the cores that a suspended attempt has lent are free on all its nodes."""
    if not lends(attempt):
        return True
    return all(state.ledger.free(number)[CORES] >= amounts[CORES] for number, amounts in lent_on(attempt))


def change_started(
    state: State, job: Job, message: UpdateJob, part: int, now_us: int, *, operator: bool
) -> list[facts.Fact]:
    """Give the started job another time limit or comment. Raises `Refused` for all else.

    `part` is the one that the message names, or the first.
    """
    attempt = _started(job)
    others = [
        name
        for name in UpdateJob.__struct_fields__
        if name not in (*_NOT_PARAMETERS, *_CHANGEABLE) and getattr(message, name) is not None
    ]
    if message.request is not None:
        others += differing(job.spec.components[part], message.request)
    if others or (message.time_limit_s is None and message.comment is None):
        named = ", ".join(others) or "nothing"
        raise Refused(
            RefusalCode.CONFLICT,
            f"job {job.job_id} is {job.state.value}: only its time limit and its comment can be changed, not {named}: "
            "it has started with what it asked for",
        )
    found: list[facts.Fact] = []
    if message.time_limit_s is not None:
        found += _change_limit(state, job, attempt, message.time_limit_s, now_us, operator=operator)
    if message.comment is not None and message.comment != job.spec.comment:
        if len(message.comment) > COMMENT_CHARS_MAX:
            text = f"comment: {len(message.comment)} characters are too many: use at most {COMMENT_CHARS_MAX}"
            raise Refused(RefusalCode.INVALID, text)
        found.append(facts.JobNoted(job.job_id, message.comment))
    return found


def _change_limit(
    state: State, job: Job, attempt: Attempt, wanted_s: int, now_us: int, *, operator: bool
) -> list[facts.Fact]:
    """Another time limit (C-40). Raises `Refused` with the remaining allowance.

    The owner may shorten it, and extend it by `extension_percent` of the job's first limit in all, but not into a closure
    of its nodes; operators without bounds.
    """
    has_s = limit_s(job, attempt)
    if wanted_s == has_s:
        return []
    _check_passed(job, attempt, wanted_s, now_us)
    if not operator:
        _check_extension(state, job, wanted_s, has_s)
    until_us = INFINITY_US if attempt.suspended_us else end_us(attempt, wanted_s)
    # What stands still is looked at when it is to go on.
    if not operator and until_us > attempt.until_us:
        _check_open(state, job, wanted_s, until_us, now_us)
    return [facts.TimeChanged(job.job_id, attempt.number, wanted_s or UNLIMITED_S, until_us)]


def extension_max_s(state: State, job: Job) -> int:
    """The longest limit that a job's owner may give it while it runs, in seconds; 0: any (C-40)."""
    first_s = job.spec.time_limit_s
    return first_s + int(first_s * state.config.extension_percent / 100)


def _started(job: Job) -> Attempt:
    assert job.attempt is not None
    if job.attempt.stop is not None:
        raise Refused(RefusalCode.CONFLICT, f"job {job.job_id} is being ended: it is too late to change it")
    return job.attempt


def _check_passed(job: Job, attempt: Attempt, wanted_s: int, now_us: int) -> None:
    """Refuse a limit that has passed, which would end the job on the spot: that is escancel's task."""
    passed_s = elapsed_us(attempt, now_us) // SECOND_US
    if wanted_s != NO_LIMIT and wanted_s <= passed_s:
        raise Refused(
            RefusalCode.INVALID,
            f"--time: {wanted_s} s: job {job.job_id} has run for {passed_s} s already: "
            f"give at least {passed_s + 1} s, or end it: escancel {job.job_id}",
        )


def _check_open(state: State, job: Job, wanted_s: int, until_us: int, now_us: int) -> None:
    attempt = job.attempt
    assert attempt is not None
    closed = shut(state, job, attempt, (max(now_us, attempt.until_us), until_us), wanted_s, now_us)
    if closed is None:
        return
    longest = longest_s(attempt, closed)
    has_s = limit_s(job, attempt)
    way_out = f"ask for at most {longest} s" if longest > has_s else "it cannot be extended"
    asked = "no limit" if wanted_s == NO_LIMIT else f"{wanted_s} s"
    raise Refused(
        RefusalCode.CONFLICT,
        f"--time: {asked}: job {job.job_id} would run on node {closed.node} into {closed.what}, from "
        f"{_at(state, closed)} on: {way_out}, or ask an operator",
    )


def _at(state: State, closed: ClosedTime) -> str:
    return format_moment(closed.from_us, state.calendar.offset_s)


def _check_extension(state: State, job: Job, wanted_s: int, has_s: int) -> None:
    if job.spec.time_limit_s == NO_LIMIT:
        return
    is_longer = wanted_s == NO_LIMIT or (has_s != NO_LIMIT and wanted_s > has_s)
    most_s = extension_max_s(state, job)
    if is_longer and (wanted_s == NO_LIMIT or wanted_s > most_s):
        asked = "no limit" if wanted_s == NO_LIMIT else f"{wanted_s} s"
        raise Refused(
            RefusalCode.DENIED,
            f"--time: {asked}: a running job may be extended by {state.config.extension_percent:g} % of its first limit "
            f"({job.spec.time_limit_s} s) in all: ask for at most {most_s} s ({max(0, most_s - has_s)} s more), "
            "or ask an operator",
        )
