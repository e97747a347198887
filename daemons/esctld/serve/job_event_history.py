"""The replay for a new estimator: the last ended jobs, from accounting, and the live ones.

All of it is as of one commit. Invariants: events are in the order of time, at one instant ends come last; a job is in it
once, as having run and ended or as live; the store is read in pages, and the rest is done in slices, deallocation
included: freeing many objects at once takes as long as making them.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from esctld.lead.time_slicing import paced
from esctld.serve.job_event_messages import JobEvent, event_bytes, whole_s
from eslurm.core.model.job import Job
from eslurm.core.model.job_ids import JOB_ID_MAX
from eslurm.core.model.job_states import FINAL, STARTED, JobState
from eslurm.core.plan.slices import sorting
from eslurm.core.state.allocation_amounts import limit_s
from eslurm.core.state.rows import decode_accounted, decode_job
from eslurm.ports.store import AccountingQuery, AttemptRow, JobRow, StoreReader
from eslurm.v1 import controller_pb2 as pb

PAGE_ROWS: Final = 500
LOOKED_AT_TIMES: Final = 5
"""Number of attempts read for each wanted job: those of arrays and of jobs that never ran are among them."""
JOBS_PER_SLICE: Final = 50
LINES_PER_SLICE: Final = 4_096
LOOKS_PER_SLICE: Final = 2_048
_REQUEUED: Final = "REQUEUED"

_JOB_BITS: Final = 31
_KIND_BITS: Final = 3
_LINES_OF_A_RUN: Final = 3

Line: TypeAlias = tuple[int, bytes]
"""An encoded event behind what it is sorted by: when, what (ends last), which job; one number, for there are many."""


def lives(job: Job) -> bool:
    """Check whether its end is still to come. An array that was cancelled lives until its last task has ended."""
    is_open = job.is_array or job.outcome is None or job.outcome is JobState.PENDING
    return is_open and job.state not in FINAL


class Recorded:
    """The jobs that have run and ended, the latest `jobs_max` by their ids."""

    def __init__(self, store: StoreReader, owner: str, jobs_max: int) -> None:
        self._store = store
        self._owner = owner
        self._jobs_max = jobs_max

    async def load(self, next_id: int, now_us: int, but: Collection[int]) -> list[Line]:
        """Load jobs as of `now_us`, the latest first; `next_id` was next then, `but` are those that had not ended.

        They are found by their attempts, not by their ids: blocks of ids that a cell leases lie far apart, and jobs of other
        cells that ran here may have ids above `next_id`. Raises `StoreUnavailable`.
        """
        found: list[Line] = []
        most = _LINES_OF_A_RUN * self._jobs_max
        left = LOOKED_AT_TIMES * self._jobs_max
        after: tuple[int, int] | None = (JOB_ID_MAX, 0)
        behind: list[AttemptRow] = []
        while after is not None and left > 0 and len(found) < most:
            query = AccountingQuery(after=after, limit=PAGE_ROWS, latest_first=True)
            page = await self._store.accounting(self._owner, query)
            left -= len(page.attempts)
            after = page.next
            rows, behind = _whole_jobs([*behind, *page.attempts], is_last=after is None)
            ended = [
                row
                for row in _ended(rows)
                # A job that came and went meanwhile is in the following events.
                if row.job_id not in but
                and max(row.submitted_us, row.started_us) <= now_us
                and (row.job_id < next_id or row.submitted_us < now_us)
            ]
            jobs = await self._store.find_jobs(self._owner, [row.job_id for row in ended])
            found += await paced(_all_ran(ended, jobs, now_us))
        del found[most:]
        return found


def _whole_jobs(rows: list[AttemptRow], *, is_last: bool) -> tuple[list[AttemptRow], list[AttemptRow]]:
    """The rows of jobs with all of their attempts, and those of the job that goes on in the next page."""
    if is_last or not rows:
        return rows, []
    end = len(rows)
    while end and rows[end - 1].job_id == rows[-1].job_id:
        end -= 1
    return rows[:end], rows[end:]


def _ended(rows: Sequence[AttemptRow]) -> list[AttemptRow]:
    """The last attempts of the jobs that ran and have ended; rows and results come latest first."""
    last: dict[int, AttemptRow | None] = {}
    for row in rows:
        if row.state != _REQUEUED:
            # What ended while it waited (attempt 0) may have run before, but was not let to its end.
            last[row.job_id] = row if row.started_us else None
    return [row for row in last.values() if row is not None]


def open_ids(jobs: Sequence[Job]) -> Generator[None, None, set[int]]:
    """Ids of the live ones among these jobs."""
    found: set[int] = set()
    for at in range(0, len(jobs), LOOKS_PER_SLICE):
        found.update(job.job_id for job in jobs[at : at + LOOKS_PER_SLICE] if lives(job))
        yield
    return found


def beginning(told: list[Line], living: Sequence[Job], now_us: int) -> Generator[None, None, list[bytes]]:
    """The events of ended jobs, whose lines it takes over, and of live ones; none is later than `now_us`."""
    for at, job in enumerate(living):
        if lives(job):
            told += _living_lines(job, now_us)
        if at % JOBS_PER_SLICE == JOBS_PER_SLICE - 1:
            yield
    ordered = yield from sorting(told)
    told.clear()
    ordered.reverse()
    events: list[bytes] = []
    while ordered:
        last = ordered[-LINES_PER_SLICE:]
        del ordered[-LINES_PER_SLICE:]
        events += [event for _, event in reversed(last)]
        yield
    return events


def _all_ran(
    rows: Sequence[AttemptRow], jobs: Sequence[JobRow], now_us: int
) -> Generator[None, None, list[Line]]:
    """The lines of these runs, in their order, with the request from the jobs' own records."""
    kept = {row.job_id: row.blob for row in jobs}
    lines: list[Line] = []
    for at, row in enumerate(rows):
        blob = kept.get(row.job_id)
        if blob is not None:
            lines += _ran_lines(row, blob, now_us)
        if at % JOBS_PER_SLICE == JOBS_PER_SLICE - 1:
            yield
    return lines


def _ran_lines(row: AttemptRow, job: bytes, now_us: int) -> list[Line]:
    job_id, spec = row.job_id, decode_job(job).spec
    runtime_s = whole_s(row.started_us, row.ended_us, decode_accounted(row.blob).paused_us)
    # Nodes' clocks are not the controller's.
    submitted_us = min(row.submitted_us, now_us)
    started_us = min(max(row.started_us, submitted_us), now_us)
    ended_us = min(max(row.ended_us, started_us), now_us)
    return [
        _line(JobEvent(pb.JobEvent.SUBMITTED, job_id, submitted_us, 0, spec)),
        _line(JobEvent(pb.JobEvent.STARTED, job_id, started_us)),
        _line(JobEvent(pb.JobEvent.ENDED, job_id, ended_us, runtime_s)),
    ]


def _living_lines(job: Job, now_us: int) -> list[Line]:
    submitted_us, attempt = job.submitted_us, job.attempt
    if job.array_job_id and attempt is not None:
        # A task comes into being when it is placed.
        submitted_us = attempt.placed_us
    submitted_us = min(submitted_us, now_us)
    lines = [_line(JobEvent(pb.JobEvent.SUBMITTED, job.job_id, submitted_us, 0, job.spec))]
    if job.state in STARTED and attempt is not None:
        started_us = min(max(attempt.started_us, submitted_us), now_us)
        lines.append(_line(JobEvent(pb.JobEvent.STARTED, job.job_id, started_us)))
        as_it_stands_s = limit_s(job, attempt)
        if as_it_stands_s != job.spec.time_limit_s:
            # When it was changed is not kept.
            spec = replace(job.spec, time_limit_s=as_it_stands_s)
            lines.append(_line(JobEvent(pb.JobEvent.CHANGED, job.job_id, started_us, 0, spec)))
    return lines


def _line(one: JobEvent) -> Line:
    return (one.at_us << _KIND_BITS | one.kind) << _JOB_BITS | one.job_id, event_bytes(one)
