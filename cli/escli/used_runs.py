"""Runs of jobs and what they used between two times, for reports: those that have ended from accounting, the others from the
controller.

Invariant: each attempt of a job is one run, a job that crosses a bound counts inside of it only, and no run counts twice.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from escli.api import Api

_PAGE = 10_000
_RUNS = frozenset({"LAUNCHING", "RUNNING", "SUSPENDED", "COMPLETING"})


class UsedRun:
    """A run. `ended_us` is the present of one that goes on; `spans` are (from, until, cores, nodes) in microseconds."""

    __slots__ = (
        "account",
        "attempt",
        "cpus",
        "ended_us",
        "goes_on",
        "job_id",
        "partition",
        "paused_us",
        "spans",
        "started_us",
        "submitted_us",
        "time_limit_s",
        "user",
    )

    def __init__(self, record: Any, attempt: int, ended_us: int, *, goes_on: bool) -> None:
        self.job_id = int(record.job_id)
        self.attempt = attempt
        self.user = str(record.user)
        self.account = str(record.account)
        self.partition = str(record.partition)
        self.cpus = int(record.cpus)
        self.submitted_us = int(record.submitted_us)
        self.started_us = int(record.started_us)
        self.ended_us = ended_us
        self.paused_us = int(record.paused_us)
        self.time_limit_s = int(record.time_limit_s)
        self.goes_on = goes_on
        spans = [(one.from_us, one.until_us, one.cpus, one.nodes) for one in getattr(record, "segments", ())]
        spans = spans or [(self.started_us, ended_us, self.cpus, int(record.nodes))]
        if goes_on:
            # A record of a run that goes on ends when it was written.
            spans[-1] = (spans[-1][0], ended_us, *spans[-1][2:])
        self.spans: list[tuple[int, int, int, int]] = spans

    @property
    def elapsed_us(self) -> int:
        """The time that it ran, without pauses."""
        return max(0, self.ended_us - self.started_us - self.paused_us)

    def core_us(self, since_us: int, until_us: int) -> int:
        """Cores times microseconds between two times."""
        return self._used(since_us, until_us, 2)

    def node_us(self, since_us: int, until_us: int) -> int:
        """Nodes times microseconds between two times."""
        return self._used(since_us, until_us, 3)

    def _used(self, since_us: int, until_us: int, field: int) -> int:
        used = sum(
            span[field] * max(0, min(span[1], until_us) - max(span[0], since_us)) for span in self.spans
        )
        whole_us = self.ended_us - self.started_us
        # When it stood still is not kept, only for how long: a run that crosses a bound has its pauses shared out.
        return (
            used * max(0, whole_us - self.paused_us) // whole_us if self.paused_us and whole_us > 0 else used
        )


def fetch(api: Api, since_us: int, until_us: int) -> tuple[list[UsedRun], int]:
    """The runs that have used something between two times, and the cluster's time."""
    from eslurm.v1 import controller_pb2 as pb

    # Jobs first: a run that ends between the two questions is in both answers, not in none.
    reply = api.call("Jobs", pb.JobsRequest(finished_too=False))
    request = pb.AccountingRequest(since_us=since_us, until_us=until_us, limit=_PAGE)
    attempts: list[Any] = []
    while True:
        page = api.call("Accounting", request)
        attempts += page.attempts
        if not page.next_page:
            break
        request.page = page.next_page
    return runs_of(attempts, reply.jobs, reply.now_us, since_us, until_us), reply.now_us


def runs_of(
    attempts: Iterable[Any], jobs: Iterable[Any], now_us: int, since_us: int, until_us: int
) -> list[UsedRun]:
    """The runs among these records that have used something between two times."""
    ended = {(one.job_id, one.attempt) for one in attempts}
    runs = [
        UsedRun(one, one.attempt, one.ended_us or now_us, goes_on=not one.ended_us)
        for one in attempts
        if one.started_us
    ]
    runs += [
        UsedRun(info, info.attempts, now_us, goes_on=True)
        for info in jobs
        if info.state in _RUNS
        and info.started_us
        and not info.grows
        and (info.job_id, info.attempts) not in ended
    ]
    return [one for one in runs if one.started_us < until_us and one.ended_us > since_us]
