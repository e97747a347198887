"""From a log to the jobs that are replayed: what each asks for, how long it runs, how long it was thought to run.

What cannot be replayed is counted by reason and told, never dropped in silence. Invariant: jobs come in the order of
their submission (ties as in the log) and are numbered 1, 2, ... in it; those are the ids the planner sees.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from eslurm.compat.errors import quoted
from eslurm.core.model.forecast import Forecast
from eslurm.core.model.request import Request
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.expected import running_us, waiting_us
from eslurm.core.plan.cycle.queue import Pending
from eslurm.core.plan.placement.feasible import empty_ledger, feasible_ever
from eslurm.lab.workloads.machine import Machine
from eslurm.lab.workloads.swf import Header, Record

KIB_PER_MIB: Final = 1024
MONDAY_S: Final = 4 * 86_400
"""Date of a log without one: 1970-01-05, a Monday."""
FIELD_LETTERS: Final = {"user": "u", "group": "g", "queue": "q", "partition": "p"}
"""Prefixes of names made of the log's numbers: user 12 is u12."""


class WorkloadError(Exception):
    """The log, or a file beside it, cannot be replayed; the text is one line."""


class Job(msgspec.Struct, frozen=True, gc=False):
    """One job: as the planner sees it, and how it really goes."""

    pending: Pending
    record: Record
    submit_us: int
    run_us: int
    processors: int
    expected_us: int = 0
    """Expected runtime; 0: its limit."""
    forecast: Forecast | None = None
    account: str = ""
    qos: str = ""
    asked_partition: str = ""
    """The partition it names; empty: the default."""
    requests: tuple[Request, ...] = ()
    """Of a job of several parts; `pending` then has the first."""

    @property
    def name(self) -> str:
        """The job's number in the log."""
        return str(self.record.job_id)


class Names(msgspec.Struct, frozen=True):
    """Consumers of jobs that are replayed under rules.

    `account_from` and `qos_from` are the log's fields (user, group, queue, partition) that name them, empty: none;
    `accounts` and `qos` the existing ones. `routed`: records choose the partition, and whether jobs fit there. `tell`:
    owners and times of jobs matter.
    """

    account_from: str = ""
    qos_from: str = ""
    accounts: frozenset[str] = frozenset()
    qos: frozenset[str] = frozenset()
    routed: bool = False
    tell: bool = True


class Choices(msgspec.Struct, frozen=True):
    """Options of reading a log. `estimates`: user, perfect, or forecasts by the log's job number."""

    estimates: str | Mapping[int, Forecast] = "user"
    kill_at_limit: bool = False
    memory: bool = False
    partition_from: str = ""
    """The field, queue or partition, that names a job's partition; empty: all go to the machine's default."""
    jobs_max: int = 0
    names: Names | None = None
    """With rules: whose jobs are, and under which QOS."""


class Workload(msgspec.Struct, frozen=True):
    """Jobs in the order of their submission, and what was found on the way, as sentences."""

    jobs: tuple[Job, ...]
    notes: tuple[str, ...]
    kill_at_limit: bool = False

    @property
    def keeps_estimates(self) -> bool:
        """Check whether no job runs longer than its estimate."""
        return all(job.run_us <= job.pending.stay_us for job in self.jobs)


def read_estimates(path: Path) -> dict[int, Forecast]:
    """Forecasts by job from a table with columns `job` and `estimate` (seconds), and perhaps `p10`, `p50` and `p90`.

    Raises `WorkloadError`, and `OSError`.
    """
    found: dict[int, Forecast] = {}
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = csv.DictReader(file)
        try:
            if not {"job", "estimate"} <= set(rows.fieldnames or ()):
                raise WorkloadError(f"--estimates: {path}: line 1: has no columns job and estimate")
            for row in rows:
                try:
                    found[_job_number(row["job"])] = _forecast(row)
                except ValueError as error:
                    raise WorkloadError(f"--estimates: {path}: line {rows.line_num}: {error}") from None
        except csv.Error as error:
            raise WorkloadError(f"--estimates: {path}: line {rows.line_num}: {error}") from None
    return found


def build(records: Iterable[Record], header: Header, machine: Machine, choices: Choices) -> Workload:
    """Reads the whole log. Raises `WorkloadError` when no job is left, and what `records` raises."""
    builder = _Builder(header, machine, choices)
    kept: list[tuple[int, int, _Draft]] = []
    last_s: int | None = None
    unsorted = 0
    for record in records:
        if choices.jobs_max and len(kept) >= choices.jobs_max:
            break
        draft = builder.draft(record)
        if draft is None:
            continue
        unsorted += last_s is not None and record.submit_s < last_s
        last_s = record.submit_s
        kept.append((record.submit_s, len(kept), draft))
    if not kept:
        raise WorkloadError("; ".join(["the log has no job that can be replayed", *builder.notes()]))
    kept.sort(key=lambda one: one[:2])
    if unsorted:
        builder.count("submitted before the job above them: put in order of submission", unsorted)
    zero_s = header.find_number("UnixStartTime")
    notes = builder.notes()
    if choices.names is not None and choices.names.tell and not zero_s:
        zero_s = MONDAY_S
        notes += (
            "the log does not say when it began (UnixStartTime): taken for Monday 1970-01-05 00:00 UTC",
        )
    begins_us = max((zero_s or 0) * SECOND_US, -kept[0][0] * SECOND_US, 0)
    jobs = tuple(builder.job(number, draft, begins_us) for number, (_, _, draft) in enumerate(kept, start=1))
    return Workload(jobs, notes, choices.kill_at_limit)


class _Draft(msgspec.Struct, frozen=True, gc=False):
    record: Record
    request: Request
    partition: str
    run_s: int
    limit_s: int
    forecast: Forecast | None
    account: str = ""
    qos: str = ""


class _Builder:
    """Reads one record after the other and counts what is unusual."""

    def __init__(self, header: Header, machine: Machine, choices: Choices) -> None:
        self._machine = machine
        self._choices = choices
        self._counts: dict[str, int] = {}
        field = choices.partition_from
        self._names = header.names_of(field.capitalize()) if field else {}
        self._field_names = {name: header.names_of(name.capitalize()) for name in FIELD_LETTERS}
        self._requests: dict[tuple[int, int], Request] = {}
        self._empty = empty_ledger(machine.topology)
        self._fitting: dict[tuple[str, Request, int], bool] = {}

    def count(self, what: str, times: int = 1) -> None:
        self._counts[what] = self._counts.get(what, 0) + times

    def notes(self) -> tuple[str, ...]:
        """In the order in which they first came up."""
        return tuple(
            f"{times} {'job' if times == 1 else 'jobs'} {what}" for what, times in self._counts.items()
        )

    def draft(self, record: Record) -> _Draft | None:
        """The record's request; None when it cannot be replayed."""
        if record.run_s <= 0:
            self.count("without a run time (never started, or not known): left out")
            return None
        processors = record.requested if record.requested > 0 else record.allocated
        if processors <= 0:
            self.count("without a number of processors: left out")
            return None
        partition = self._partition(record)
        names = self._choices.names
        is_routed = names is not None and names.routed
        if not is_routed and processors > self._machine.largest.get(partition, 0):
            self.count("for more processors than the machine has: left out")
            return None
        run_s = record.run_s
        if record.requested_s <= 0:
            self.count("without a requested time: taken to have asked for what they ran")
        requested_s = record.requested_s if record.requested_s > 0 else run_s
        if run_s > requested_s:
            if self._choices.kill_at_limit:
                self.count("ran longer than they asked for: ended at their limit")
                # Under rules the limit may be another one: the loop ends it by what comes out.
                if names is None or self._choices.estimates == "perfect":
                    run_s = requested_s
            else:
                self.count("ran longer than they asked for: run on as in the log")
        request = self._request(processors, self._memory_mib(record))
        limit_s = run_s if self._choices.estimates == "perfect" else requested_s
        if not is_routed and not self._fits(request, partition, limit_s):
            self.count("that no nodes of the machine can hold: left out")
            return None
        forecast = self._forecast(record)
        if names is None:
            return _Draft(record, request, partition, run_s, limit_s, forecast)
        if names.tell and record.user < 0:
            self.count("without a user: taken for those of one, called unknown")
        account, qos = self._account(record, names), self._qos(record, names)
        return _Draft(record, request, partition, run_s, limit_s, forecast, account, qos)

    def job(self, number: int, draft: _Draft, begins_us: int) -> Job:
        """With the number and the instants it has in virtual time."""
        submit_us = begins_us + draft.record.submit_s * SECOND_US
        limit_us = draft.limit_s * SECOND_US
        pending = Pending(
            job_id=number,
            request=draft.request,
            partition=draft.partition,
            time_limit_us=limit_us,
            submitted_us=submit_us,
            estimate_us=waiting_us(draft.forecast, limit_us),
        )
        run_us, expected_us = draft.run_s * SECOND_US, running_us(draft.forecast, limit_us)
        names = self._choices.names
        is_said = bool(self._choices.partition_from) or names is None or not names.routed
        return Job(
            pending,
            draft.record,
            submit_us,
            run_us,
            draft.request.tasks,
            expected_us,
            draft.forecast,
            draft.account,
            draft.qos,
            draft.partition if is_said else "",
        )

    def _account(self, record: Record, names: Names) -> str:
        """Its account: one of the records', or the log's own, which every user without a record may use."""
        if not names.account_from:
            return ""
        spellings = self._spellings(record, names.account_from)
        if not spellings:
            self.count(f"without a {names.account_from}: without an account")
            return ""
        return next((name for name in spellings if name in names.accounts), spellings[0])

    def _qos(self, record: Record, names: Names) -> str:
        if not names.qos_from:
            return ""
        field = names.qos_from
        spellings = self._spellings(record, field)
        found = next((name for name in spellings if name in names.qos), "")
        if not spellings:
            self.count(f"without a {field}: without a QOS")
        elif not found:
            self.count(f"with a {field} that is no QOS of the records: without a QOS")
        return found

    def _spellings(self, record: Record, field: str) -> tuple[str, ...]:
        """Possible names of a field's value; empty when the log does not have it."""
        number: int = getattr(record, field)
        if number < 0:
            return ()
        return tuple(
            name
            for name in (self._field_names[field].get(number), f"{FIELD_LETTERS[field]}{number}", str(number))
            if name
        )

    def _forecast(self, record: Record) -> Forecast | None:
        """The job's estimate; None: there is none."""
        estimates = self._choices.estimates
        if isinstance(estimates, str):
            return None
        found = estimates.get(record.job_id)
        if found is None:
            self.count("without an estimate: planned with the time they asked for")
        return found

    def _memory_mib(self, record: Record) -> int:
        if not self._choices.memory:
            return 0
        known = record.requested_kib if record.requested_kib > 0 else record.used_kib
        return math.ceil(known / KIB_PER_MIB) if known > 0 else 0

    def _request(self, processors: int, memory_mib: int) -> Request:
        key = (processors, memory_mib)
        found = self._requests.get(key)
        if found is None:
            found = self._requests[key] = Request(tasks=processors, memory_per_cpu_mib=memory_mib)
        return found

    def _fits(self, request: Request, partition: str, limit_s: int) -> bool:
        # How long it may run matters only where some nodes are for short jobs.
        limit_us = limit_s * SECOND_US if self._machine.topology.rules else 0
        key = (partition, request, limit_us)
        found = self._fitting.get(key)
        if found is None:
            refused = feasible_ever(request, self._machine.partitions[partition], self._empty, limit_us)
            found = self._fitting[key] = refused is None
        return found

    def _partition(self, record: Record) -> str:
        machine, field = self._machine, self._choices.partition_from
        if not field:
            return machine.partition
        number = record.queue if field == "queue" else record.partition
        for name in (self._names.get(number, ""), str(number)):
            if name in machine.partitions:
                return name
        self.count(f"with a {field} that is no partition of the machine: sent to {machine.partition}")
        return machine.partition


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 12 else None


def _job_number(text: str | None) -> int:
    number = _whole(text)
    if number is None:
        raise ValueError(f"{quoted(text or '')} is no job number")
    return number


def _forecast(row: Mapping[str, str | None]) -> Forecast:
    """The forecast of a line. Raises `ValueError`."""
    estimate_s = _seconds(row["estimate"])
    p10_s, p50_s, p90_s = [
        _seconds(row[name]) if row.get(name) else estimate_s for name in ("p10", "p50", "p90")
    ]
    return Forecast(p10_s, p50_s, p90_s, estimate_s)


def _seconds(text: str | None) -> int:
    try:
        seconds = math.ceil(float(text or ""))
    except (ValueError, OverflowError):
        seconds = 0
    if not 0 < seconds < 10**11:
        raise ValueError(f"{quoted(text or '')} is no time in seconds above 0")
    return seconds
