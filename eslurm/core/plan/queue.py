"""The waiting jobs in planning order: highest priority first, then oldest, then lowest job id.

The cluster keeps one `PendingQueue` and changes it as jobs come and go; nothing is sorted per
cycle. Jobs that ask for exactly the same share a *shape* number, so a planner that failed to
place one knows about all of them. Invariant: each job id is in the queue at most once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from eslurm.core.job.request import Request


class Pending(msgspec.Struct, frozen=True, gc=False):
    """One job that waits for resources.

    `time_limit_us == 0` means no limit. `avoid` holds node numbers it must not get (a launch
    just failed there). `startable` is the number of array tasks that may start now: the record
    is planned as up to that many placements.
    """

    job_id: int
    request: Request
    partition: str
    time_limit_us: int
    priority: int = 0
    submitted_us: int = 0
    avoid: frozenset[int] = frozenset()
    startable: int = 1


Entry: TypeAlias = tuple[int, int, int, int, Pending]
"""(-priority, submitted_us, job_id, shape, the job); the first three are the order."""

_Shape: TypeAlias = tuple[str, Request, int, frozenset[int]]


class PendingQueue:
    """An ordered set of `Pending`, indexed by job id."""

    __slots__ = ("_by_id", "_entries", "_next_shape", "_shapes")

    def __init__(self, jobs: Iterable[Pending] = ()) -> None:
        self._entries: list[Entry] = []
        self._by_id: dict[int, Entry] = {}
        # shape -> [number, how many jobs have it]; forgotten with its last job.
        self._shapes: dict[_Shape, list[int]] = {}
        self._next_shape = 0
        for job in jobs:
            entry = self._admit(job)
            self._entries.append(entry)
        self._entries.sort()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._by_id

    def add(self, job: Pending) -> None:
        """Adds a job. Raises `ValueError` when its id is already waiting."""
        insort(self._entries, self._admit(job))

    def remove(self, job_id: int) -> Pending:
        """Takes a job out and returns it. Raises `KeyError` when it does not wait."""
        entry = self._by_id.pop(job_id)
        del self._entries[bisect_left(self._entries, entry)]
        job = entry[4]
        shape = _shape_of(job)
        known = self._shapes[shape]
        known[1] -= 1
        if known[1] == 0:
            del self._shapes[shape]
        return job

    def replace(self, job: Pending) -> None:
        """Puts a changed record in the place of the one with the same id."""
        old = self._by_id[job.job_id]
        if (old[0], old[1]) == (-job.priority, job.submitted_us) and _shape_of(old[4]) == _shape_of(job):
            entry = (*old[:4], job)
            self._entries[bisect_left(self._entries, old)] = entry
            self._by_id[job.job_id] = entry
            return
        self.remove(job.job_id)
        self.add(job)

    def find(self, job_id: int) -> Pending | None:
        """The waiting job with this id."""
        entry = self._by_id.get(job_id)
        return entry[4] if entry is not None else None

    def first(self, count: int) -> list[Entry]:
        """The first `count` entries in planning order, as a copy."""
        return self._entries[:count]

    def _admit(self, job: Pending) -> Entry:
        if job.job_id in self._by_id:
            raise ValueError(f"job {job.job_id} waits already")
        known = self._shapes.setdefault(_shape_of(job), [self._next_shape, 0])
        if known[1] == 0:
            self._next_shape += 1
        known[1] += 1
        entry = (-job.priority, job.submitted_us, job.job_id, known[0], job)
        self._by_id[job.job_id] = entry
        return entry


def _shape_of(job: Pending) -> _Shape:
    return (job.partition, job.request, job.time_limit_us, job.avoid)
