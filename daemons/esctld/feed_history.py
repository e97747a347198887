"""What an estimator that begins is told first: the jobs that ended last, from accounting, and those that live.

All of it is as of one commit. Invariants: events are in the order of time, at one instant ends come last; a job is in it
once, as having run and ended or as living; the store is asked in pages, and the rest is done in slices.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from typing import Final, NamedTuple, TypeAlias

from esctld.feed_events import Happening, event_bytes, whole_s
from eslurm.core.job.model import Job, JobSpec
from eslurm.core.job.states import FINAL, STARTED, JobState
from eslurm.core.plan.slices import sorting
from eslurm.core.records import decode_accounted, decode_job
from eslurm.ports.store import AccountingQuery, AttemptRow, StoreReader
from eslurm.v1 import controller_pb2 as pb

PAGE_ROWS: Final = 500
LOOKED_AT_TIMES: Final = 5
"""So many job ids are looked at for each job that is wanted: arrays and jobs that never ran are among them."""
JOBS_PER_SLICE: Final = 50
_REQUEUED: Final = "REQUEUED"
_ATTEMPT_LAST: Final = 1 << 32

_JOB_BITS: Final = 31
_KIND_BITS: Final = 3

_Line: TypeAlias = tuple[int, bytes]
"""An encoded event behind what it is sorted by: when, what (ends last), which job; one number, for there are many."""


class Ran(NamedTuple):
    """A job that has run and ended."""

    job_id: int
    spec: JobSpec
    submitted_us: int
    started_us: int
    ended_us: int
    runtime_s: int


def lives(job: Job) -> bool:
    """Whether its end is still to be told. An array that was cancelled lives until its last task has ended."""
    is_open = job.is_array or job.outcome is None or job.outcome is JobState.PENDING
    return is_open and job.state not in FINAL


class Recorded:
    """The jobs that have run and ended, the latest `jobs_max` by their ids."""

    def __init__(self, store: StoreReader, owner: str, jobs_max: int) -> None:
        self._store = store
        self._owner = owner
        self._jobs_max = jobs_max

    async def load(self, next_id: int, now_us: int, but: Collection[int]) -> list[Ran]:
        """Of the jobs before `next_id`, as of `now_us`; `but` are those that had not ended then.

        Raises `StoreUnavailable`.
        """
        found: list[Ran] = []
        upper = next_id
        lowest = max(1, upper - LOOKED_AT_TIMES * self._jobs_max)
        while upper > lowest and len(found) < self._jobs_max:
            lower = max(lowest, upper - PAGE_ROWS)
            ended = [
                row
                for row in await self._ended(lower, upper)
                # One that came and went meanwhile is told of by what follows.
                if row.job_id not in but and max(row.submitted_us, row.started_us) <= now_us
            ]
            found += reversed(await self._described(ended))
            upper = lower
        return found[: self._jobs_max]

    async def _ended(self, lower: int, upper: int) -> list[AttemptRow]:
        """The last attempts of the jobs within [lower, upper) that ran and have ended."""
        last: dict[int, AttemptRow | None] = {}
        after: tuple[int, int] | None = (lower - 1, _ATTEMPT_LAST)
        while after is not None:
            page = await self._store.accounting(self._owner, AccountingQuery(after=after, limit=PAGE_ROWS))
            for row in page.attempts:
                if row.job_id < upper and row.state != _REQUEUED:
                    # What ended while it waited (attempt 0) may have run before, but was not let to its end.
                    last.setdefault(row.job_id, row if row.started_us else None)
            after = page.next if page.next is not None and page.next[0] < upper else None
        return [row for row in last.values() if row is not None]

    async def _described(self, rows: Sequence[AttemptRow]) -> list[Ran]:
        """With what was asked for, which the jobs' own records know."""
        jobs = {
            row.job_id: row for row in await self._store.find_jobs(self._owner, [row.job_id for row in rows])
        }
        found: list[Ran] = []
        for row in rows:
            kept = jobs.get(row.job_id)
            if kept is None:
                continue
            runtime_s = whole_s(row.started_us, row.ended_us, decode_accounted(row.blob).paused_us)
            spec = decode_job(kept.blob).spec
            found.append(Ran(row.job_id, spec, row.submitted_us, row.started_us, row.ended_us, runtime_s))
        return found


def beginning(
    history: Sequence[Ran], living: Sequence[Job], now_us: int
) -> Generator[None, None, list[bytes]]:
    """The events of both, encoded; none is later than `now_us`."""
    lines: list[_Line] = []
    for at, one in enumerate(history):
        lines += _ran_lines(one, now_us)
        if at % JOBS_PER_SLICE == JOBS_PER_SLICE - 1:
            yield
    for at, job in enumerate(living):
        if lives(job):
            lines += _living_lines(job, now_us)
        if at % JOBS_PER_SLICE == JOBS_PER_SLICE - 1:
            yield
    ordered = yield from sorting(lines)
    return [line[1] for line in ordered]


def _ran_lines(one: Ran, now_us: int) -> list[_Line]:
    # Nodes' clocks are not the controller's.
    submitted_us = min(one.submitted_us, now_us)
    started_us = min(max(one.started_us, submitted_us), now_us)
    ended_us = min(max(one.ended_us, started_us), now_us)
    return [
        _line(Happening(pb.JobEvent.SUBMITTED, one.job_id, submitted_us, 0, one.spec)),
        _line(Happening(pb.JobEvent.STARTED, one.job_id, started_us)),
        _line(Happening(pb.JobEvent.ENDED, one.job_id, ended_us, one.runtime_s)),
    ]


def _living_lines(job: Job, now_us: int) -> list[_Line]:
    submitted_us, attempt = job.submitted_us, job.attempt
    if job.array_job_id and attempt is not None:
        # A task comes into being when it is placed.
        submitted_us = attempt.placed_us
    submitted_us = min(submitted_us, now_us)
    lines = [_line(Happening(pb.JobEvent.SUBMITTED, job.job_id, submitted_us, 0, job.spec))]
    if job.state in STARTED and attempt is not None:
        started_us = min(max(attempt.started_us, submitted_us), now_us)
        lines.append(_line(Happening(pb.JobEvent.STARTED, job.job_id, started_us)))
    return lines


def _line(one: Happening) -> _Line:
    return (one.at_us << _KIND_BITS | one.kind) << _JOB_BITS | one.job_id, event_bytes(one)
