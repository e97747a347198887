"""The waiting jobs in planning order: highest priority first, then oldest, then lowest job id.

The cluster keeps one `PendingQueue` and changes it as jobs come and go; nothing is sorted per
cycle. Jobs that ask for exactly the same and are expected to take as long share a *shape* number,
so a planner that failed to place one knows about all of them. Invariant: each job id is in the queue at most once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from eslurm.core.model.request import Request
from eslurm.core.resources.timeline import INFINITY_US

CHANGES_MAX: Final = 20_000


class PendingPart(msgspec.Struct, frozen=True, gc=False):
    """One part of a job of several parts (D-02): its request, and the partition that gives its nodes."""

    request: Request
    partition: str


class Follower(msgspec.Struct, frozen=True, gc=False):
    """Another member of a pack, which starts so many microseconds after the first."""

    delay_us: int
    job: Pending


class Pending(msgspec.Struct, frozen=True, gc=False):
    """One job that waits for resources.

    `time_limit_us == 0` means no limit. `avoid` holds node numbers it must not get (a launch just failed there).
    `startable` is the number of array tasks that may start now: the record is planned as up to that many placements.
    `groups` are gid numbers in decimal. `after` are its unfinished dependencies and `not_before_us` its begin time: such
    jobs are planned ahead (by policies that do) but start only once nothing of that is left; with `after_any` the end of one
    of those jobs is enough. `estimate_us` is the expected
    runtime (0: not known): plans use it, no job ends by it. `start_at_us` is a fixed start, `deadline_us` the latest end;
    0: none (C-30). `eligible_us` is its begin time at submission: its wait for resources counts from then on. `parts` are
    those of a job of several parts, else empty; `request` and `partition` are then the first part's. `followers` are the
    other members of a pack that has not begun, whose first member this is: they are planned with it, or it is not (D-04).
    `is_owed`: `start_at_us` is no user's fixed start but the one that its pack, which has begun, owes it: a job that misses
    it starts as early as possible afterwards, and never before. `phases_us` is how much longer than its script it holds its
    nodes, for their prolog and epilog; time limits, estimates and rules do not count it. `apart` holds node numbers that are
    never its: those of the running job whose growth it is.
    """

    job_id: int
    request: Request
    partition: str
    time_limit_us: int
    priority: int = 0
    submitted_us: int = 0
    avoid: frozenset[int] = frozenset()
    startable: int = 1
    user: str = ""
    uid: int = 0
    groups: tuple[str, ...] = ()
    account: str = ""
    qos: str = ""
    reservation: str = ""
    start_at_us: int = 0
    deadline_us: int = 0
    nice: int = 0
    after: tuple[int, ...] = ()
    not_before_us: int = 0
    estimate_us: int = 0
    eligible_us: int = 0
    parts: tuple[PendingPart, ...] = ()
    after_any: bool = False
    followers: tuple[Follower, ...] = ()
    is_owed: bool = False
    phases_us: int = 0
    apart: frozenset[int] = frozenset()
    borrows: bool = False
    """It accepts cores that running jobs lend."""

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that its nodes come from, each once; for a pack, those of all members."""
        if not self.parts and not self.followers:
            return (self.partition,)
        own = [part.partition for part in self.parts] or [self.partition]
        others = [name for follower in self.followers for name in follower.job.partitions]
        return tuple(dict.fromkeys([*own, *others]))

    @property
    def members(self) -> tuple[Pending, ...]:
        """The members of the pack, this first one included; the job alone without followers."""
        return (self, *[follower.job for follower in self.followers])

    @property
    def delays_us(self) -> tuple[int, ...]:
        """The delay of each member."""
        return (0, *[follower.delay_us for follower in self.followers])

    @property
    def since_us(self) -> int:
        """Begin of its wait for resources, as far as is known."""
        return max(self.submitted_us, self.eligible_us) if self.eligible_us else self.submitted_us

    @property
    def stay_us(self) -> int:
        """Time for which plans reserve resources: the estimate up to the limit, and phases; `INFINITY_US` without either."""
        limit_us = self.time_limit_us or INFINITY_US
        run_us = min(self.estimate_us, limit_us) if self.estimate_us else limit_us
        return min(run_us + self.phases_us, INFINITY_US) if self.phases_us else run_us

    @property
    def beyond_us(self) -> int:
        """Difference between the time limit and `stay_us`; below 0: the phases alone are beyond the limit."""
        return (self.time_limit_us or INFINITY_US) - self.stay_us


class QueueEntry(msgspec.Struct, frozen=True, order=True, gc=False):
    """A waiting job and its place in the planning order: entries compare by their first three fields.

    The garbage collector skips it: a queue has many thousands of entries.
    """

    rank: int
    """The negated priority."""
    submitted_us: int
    job_id: int
    shape: int
    job: Pending

    @property
    def turn(self) -> tuple[int, int, int]:
        """The sort key of the planning order."""
        return self.rank, self.submitted_us, self.job_id


_Shape: TypeAlias = tuple[object, ...]


class Journal:
    """Jobs that came, went or changed, the latest last; bounded."""

    __slots__ = ("_first", "_ids")

    def __init__(self) -> None:
        self._ids: list[int] = []
        # The number of the first of them, counted from the first there ever was.
        self._first = 0

    def note(self, job_id: int) -> None:
        """Record a change of this job."""
        self._ids.append(job_id)
        if len(self._ids) >= 2 * CHANGES_MAX:
            del self._ids[:CHANGES_MAX]
            self._first += CHANGES_MAX

    @property
    def mark(self) -> Mark:
        """The current position."""
        return self, self._first + len(self._ids)

    def since(self, mark: Mark | None) -> frozenset[int] | None:
        """The jobs that may have changed since `mark`; None: any may have."""
        if mark is None or mark[0] is not self or mark[1] < self._first:
            return None
        return frozenset(self._ids[mark[1] - self._first :])


Mark: TypeAlias = tuple[Journal, int]
"""A moment of a journal."""


class Shapes:
    """Numbers of requests: equal jobs share one, and a number is never reused.

    Several queues may share the numbers, so that a job that moves between them keeps its own; `journal` records changes in
    any of them, `estimated` counts jobs with an estimate below their limit, and `packs` those that are or were of a pack.
    """

    __slots__ = ("_known", "_next", "estimated", "journal", "packs")

    def __init__(self) -> None:
        self.journal = Journal()
        self.estimated = 0
        self.packs = 0
        # shape -> [number, how many jobs have it]; forgotten with its last job.
        self._known: dict[_Shape, list[int]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._known)

    def take(self, job: Pending) -> int:
        """The number of the job's shape; counts one more job."""
        known = self._known.setdefault(_shape_of(job), [self._next, 0])
        if known[1] == 0:
            self._next += 1
        known[1] += 1
        self.estimated += job.estimate_us > 0
        self.packs += bool(job.followers) or job.is_owed
        return known[0]

    def give_back(self, job: Pending) -> None:
        """Count one job less of this shape."""
        shape = _shape_of(job)
        known = self._known[shape]
        known[1] -= 1
        self.estimated -= job.estimate_us > 0
        self.packs -= bool(job.followers) or job.is_owed
        if known[1] == 0:
            del self._known[shape]


class PendingQueue:
    """An ordered set of `Pending`, indexed by job id. `fixed` are those with a fixed start."""

    __slots__ = ("_by_id", "_entries", "fixed", "shapes")

    def __init__(self, jobs: Iterable[Pending] = (), shapes: Shapes | None = None) -> None:
        self._entries: list[QueueEntry] = []
        self._by_id: dict[int, QueueEntry] = {}
        self.fixed: dict[int, QueueEntry] = {}
        self.shapes = shapes if shapes is not None else Shapes()
        for job in jobs:
            entry = self._admit(job)
            self._entries.append(entry)
        self._entries.sort()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._by_id

    def add(self, job: Pending) -> None:
        """Add a job. Raises `ValueError` when its id is already waiting."""
        insort(self._entries, self._admit(job))

    def remove(self, job_id: int) -> Pending:
        """Remove a job and return it. Raises `KeyError` when it does not wait."""
        entry = self._by_id.pop(job_id)
        del self._entries[bisect_left(self._entries, entry)]
        job = entry.job
        self.shapes.journal.note(job_id)
        self.fixed.pop(job_id, None)
        self.shapes.give_back(job)
        return job

    def replace(self, job: Pending) -> None:
        """Replace the record with the same id."""
        old = self._by_id[job.job_id]
        if (old.rank, old.submitted_us) == (-job.priority, job.submitted_us) and _shape_of(
            old.job
        ) == _shape_of(job):
            entry = QueueEntry(*old.turn, old.shape, job)
            self._entries[bisect_left(self._entries, old)] = entry
            self._by_id[job.job_id] = entry
            self.shapes.journal.note(job.job_id)
            if job.start_at_us:
                self.fixed[job.job_id] = entry
            return
        # Without a user in between, its shape would get another number and its plan would be lost.
        self.shapes.take(old.job)
        self.remove(job.job_id)
        self.add(job)
        self.shapes.give_back(old.job)

    def find(self, job_id: int) -> Pending | None:
        """The waiting job with this id."""
        entry = self._by_id.get(job_id)
        return entry.job if entry is not None else None

    def entry(self, job_id: int) -> QueueEntry | None:
        """The entry of the waiting job with this id."""
        return self._by_id.get(job_id)

    def ids(self) -> list[int]:
        """All job ids, in no order."""
        return list(self._by_id)

    def first(self, count: int) -> list[QueueEntry]:
        """The first `count` entries in planning order, as a copy."""
        return self._entries[:count]

    def _admit(self, job: Pending) -> QueueEntry:
        if job.job_id in self._by_id:
            raise ValueError(f"job {job.job_id} waits already")
        entry = QueueEntry(-job.priority, job.submitted_us, job.job_id, self.shapes.take(job), job)
        self._by_id[job.job_id] = entry
        self.shapes.journal.note(job.job_id)
        if job.start_at_us:
            self.fixed[job.job_id] = entry
        return entry


def asks_alike(one: Pending, other: Pending) -> bool:
    """Check whether two jobs ask for the same and are expected to take as long: they would share a shape."""
    return _shape_of(one) == _shape_of(other)


def differs_in_estimate(one: Pending, other: Pending) -> bool:
    """Check whether two jobs differ only in how long they are expected to stay."""
    is_other = one.estimate_us != other.estimate_us or one.phases_us != other.phases_us
    return is_other and _shape_of(one)[:-1] == _shape_of(other)[:-1]


def _shape_of(job: Pending) -> _Shape:
    shape: _Shape = (
        job.partition,
        job.request,
        job.time_limit_us,
        job.avoid,
        job.user,
        job.uid,
        job.groups,
        job.account,
        job.qos,
        job.reservation,
        job.start_at_us,
        job.deadline_us,
        # What has no place for long may have one for shorter: what is known of a shape holds for this length only.
        (job.estimate_us, job.phases_us) if job.phases_us else job.estimate_us,
    )
    if job.parts:
        shape = (job.parts, *shape)
    if job.apart:
        shape = (job.apart, *shape)
    if job.followers:
        # Their ids and ages are no part of it, as its own are not.
        members = tuple([(follower.delay_us, _shape_of(follower.job)) for follower in job.followers])
        shape = (members, *shape)
    return shape
