"""The jobs of a log as estimators see them: in the order of submission, with the instants of start and end.

What cannot be used is counted by reason and told, never dropped in silence. Invariant: each job has a number of its own, has
run for at least a second on at least one processor, and its start is not before its submission.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from eslurm.core.model.forecast import NO_LIMIT, Submitted
from eslurm.lab.workloads.swf import Header, Record, SwfError, SwfFile

BAD_LINES_MAX: Final = 1_000
"""So many lines in front without a single job, and the file is taken to be no log."""
_KIB_PER_MIB: Final = 1024


class LogError(Exception):
    """The log has no job that can be used; the text is one line."""


class LoggedJob(msgspec.Struct, frozen=True, gc=False):
    """One job: as it was asked for, and how it went. Seconds of the log's clock."""

    submitted: Submitted
    start_s: int
    runtime_s: int

    @property
    def end_s(self) -> int:
        """The first second in which it runs no more."""
        return self.start_s + self.runtime_s

    @property
    def area(self) -> int:
        """Processor seconds."""
        return self.submitted.cores * self.runtime_s


class Log(msgspec.Struct, frozen=True):
    """Jobs in the order of their submission, and what was found on the way, as sentences."""

    jobs: tuple[LoggedJob, ...]
    notes: tuple[str, ...]
    begins_s: int = 0
    """The local time of the log's second 0, for hours of the day: 0 when its header does not say."""


def read_log(path: Path, jobs_max: int = 0) -> Log:
    """Reads a log (its first `jobs_max` jobs that can be used; 0: all). Raises `LogError`, `SwfError`, `OSError`."""
    builder = _Builder()
    with SwfFile(path, builder.on_bad) as file:
        return builder.build(file, file.header, jobs_max)


def build(records: Iterable[Record], header: Header | None = None, jobs_max: int = 0) -> Log:
    """The same from records. Raises `LogError`, and what `records` raises."""
    return _Builder().build(records, header or Header(), jobs_max)


class _Builder:
    """Reads one record after the other and counts what is unusual."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._bad: list[SwfError] = []
        self._bad_lines = 0
        self._seen: set[int] = set()

    def on_bad(self, error: SwfError) -> None:
        """A line that is no job. Raises it when there are only such lines."""
        self._bad_lines += 1
        if not self._bad:
            self._bad.append(error)
        if self._bad_lines >= BAD_LINES_MAX and not self._seen:
            raise self._bad[0]

    def build(self, records: Iterable[Record], header: Header, jobs_max: int) -> Log:
        partitions = header.names_of("Queue"), header.names_of("Partition")
        jobs: list[LoggedJob] = []
        unsorted = 0
        last_s = 0
        for record in records:
            job = self._job(record, partitions)
            if job is None:
                continue
            unsorted += job.submitted.at_s < last_s
            last_s = job.submitted.at_s
            jobs.append(job)
            if len(jobs) == jobs_max:
                break
        if not jobs:
            raise LogError("; ".join(["the log has no job that can be used", *self._notes()]))
        if unsorted:
            self._count("submitted before the job above them: put in order of submission", unsorted)
            jobs.sort(key=lambda one: one.submitted.at_s)
        return Log(tuple(jobs), self._notes(), _begins_s(header))

    def _job(self, record: Record, partitions: tuple[dict[int, str], dict[int, str]]) -> LoggedJob | None:
        cores = record.requested if record.requested > 0 else record.allocated
        reason = self._find_reason(record, cores)
        if reason is not None:
            self._count(f"{reason}: left out")
            return None
        self._seen.add(record.job_id)
        if record.requested_s <= 0:
            self._count("without a requested time: no limit given")
        elif record.run_s > record.requested_s:
            self._count("ran longer than they asked for")
        if record.user < 0:
            self._count("of an unknown user")
        if record.wait_s < 0:
            self._count("without a wait, or a negative one: taken to have started at once")
        memory_kib = record.requested_kib * cores if record.requested_kib > 0 else 0
        submitted = Submitted(
            job_id=record.job_id,
            at_s=record.submit_s,
            user=_known(record.user),
            group=_known(record.group),
            name=_known(record.program),
            partition=_partition(record, *partitions),
            cores=cores,
            memory_mib=int(memory_kib / _KIB_PER_MIB),
            limit_s=record.requested_s if record.requested_s > 0 else NO_LIMIT,
        )
        return LoggedJob(submitted, record.submit_s + max(record.wait_s, 0), record.run_s)

    def _find_reason(self, record: Record, cores: int) -> str | None:
        """The reason why a job is unusable."""
        if record.job_id < 0:
            return "without a job number"
        if record.job_id in self._seen:
            return "with the number of a job above"
        if record.submit_s < 0:
            return "without a time of submission"
        if record.run_s <= 0:
            return "without a run time (never started, or not known)"
        return "without a number of processors" if cores <= 0 else None

    def _count(self, what: str, times: int = 1) -> None:
        self._counts[what] = self._counts.get(what, 0) + times

    def _notes(self) -> tuple[str, ...]:
        """In the order in which they first came up."""
        notes = [
            f"{times:,} {'job' if times == 1 else 'jobs'} {what}" for what, times in self._counts.items()
        ]
        if self._bad_lines:
            lines = "1 line that is" if self._bad_lines == 1 else f"{self._bad_lines:,} lines that are"
            notes.insert(0, f"{lines} no job: left out (the first: {self._bad[0]})")
        return tuple(notes)


def _begins_s(header: Header) -> int:
    began_s = header.find_number("UnixStartTime") or 0
    try:
        zone = ZoneInfo(header.find("TimeZoneString") or "UTC")
        offset = datetime.fromtimestamp(began_s, zone).utcoffset()
    except (ValueError, OverflowError, OSError, ZoneInfoNotFoundError):
        return began_s
    return began_s if offset is None else began_s + int(offset.total_seconds())


def _known(number: int) -> str:
    return str(number) if number >= 0 else ""


def _partition(record: Record, queues: dict[int, str], partitions: dict[int, str]) -> str:
    """The queue that a user chose, else the partition; by its name where the header has one."""
    if record.queue >= 0:
        return queues.get(record.queue, str(record.queue))
    return partitions.get(record.partition, _known(record.partition))
