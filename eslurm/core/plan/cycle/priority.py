"""Multifactor priority: age, fair share, size, partition and QOS (C-38).

A priority is derived, never a fact: `Ranking` keeps those of the waiting jobs, follows the queue's changes, and recomputes
all of them from time to time, in slices. A priority that was set stays as it is; all others are the sum of weighted
factors, each within 0..1, less the job's nice value. Invariant: a ranked entry differs from the queue's only in its first
element, and the entries are sorted as tuples.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Generator, Mapping, Sequence, Set
from itertools import islice
from operator import attrgetter
from typing import Final

import msgspec

from eslurm.core.model.config import PriorityWeights
from eslurm.core.model.request import Request
from eslurm.core.model.request_limits import PRIORITY_MAX
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.queue import Pending, PendingQueue, QueueEntry
from eslurm.core.plan.slices import SORTED_PER_SLICE, sorting

PRIORITY_DEFAULT: Final = 1000
"""The number of a job without a given one: it is computed if the site weighs anything."""
COMPUTED_PER_SLICE: Final = 1_500
FEW: Final = 256
"""Up to this number of changes are sorted in one by one; beyond, all at once."""


class PriorityInputs(msgspec.Struct, frozen=True):
    """Inputs of the factors, as of one instant.

    `fair` gives each (account, user) a factor, `newcomers` by account that of a user who is not in it; `partitions` and
    `qos` their factors by name; `nodes` and `cores` are the whole cluster's.
    """

    weights: PriorityWeights = PriorityWeights()
    fair: Mapping[tuple[str, str], float] = {}
    newcomers: Mapping[str, float] = {}
    partitions: Mapping[str, float] = {}
    qos: Mapping[str, float] = {}
    nodes: int = 1
    cores: int = 1


class Priority(msgspec.Struct, frozen=True):
    """The parts of one job's priority, in points. `given`: the number was set, and the points do not count."""

    value: int
    given: bool = False
    age: float = 0.0
    fairshare: float = 0.0
    size: float = 0.0
    partition: float = 0.0
    qos: float = 0.0
    nice: int = 0

    def __str__(self) -> str:
        if self.given:
            return f"{self.value} as given"
        parts = (
            ("age", self.age),
            ("fair share", self.fairshare),
            ("size", self.size),
            ("partition", self.partition),
            ("QOS", self.qos),
        )
        text = " + ".join(f"{points:.0f} {name}" for name, points in parts if points >= 0.5) or "0"
        if self.nice:
            text += f" {'-' if self.nice > 0 else '+'} {abs(self.nice)} nice"
        return f"{self.value} = {text}"


def weighs(weights: PriorityWeights) -> bool:
    """Check whether priorities are computed at all; if not, jobs are ordered by submission."""
    return bool(weights.age or weights.fairshare or weights.size or weights.partition or weights.qos)


def size_share(request: Request, nodes: int, cores: int) -> float:
    """The part of the cluster that a request asks for, by nodes or by cores, the larger one; at most 1."""
    if request.chunks:
        asked = sum(chunk.count * chunk.cores for chunk in request.chunks)
    else:
        asked = request.tasks * request.cpus_per_task
    return min(1.0, max(max(request.nodes_min, 1) / max(nodes, 1), asked / max(cores, 1)))


def normalised(priorities: Mapping[str, int]) -> dict[str, float]:
    """Each name's factor: its priority over the highest; 0 for all where none is above 0."""
    highest = max(priorities.values(), default=0)
    return {name: max(0, one) / highest if highest > 0 else 0.0 for name, one in priorities.items()}


class Ranking:
    """The waiting jobs by computed priority. Belongs to a planner, which calls `sync` before it reads `first`."""

    def __init__(self) -> None:
        self._standing = PriorityInputs()
        self._computed_us = 0
        self._known: dict[int, QueueEntry] = {}
        self._ranked: dict[int, QueueEntry] = {}
        self._order: list[QueueEntry] = []
        # By shape: the points for all but age, which jobs of one shape share (they are of one user, too).
        self._shapes: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._order)

    def is_due(self, weights: PriorityWeights, now_us: int) -> bool:
        """Check whether all priorities must be recomputed: they have aged, or the weights have changed."""
        grown_us = now_us - self._computed_us
        return weights != self._standing.weights or grown_us >= weights.recompute_s * SECOND_US

    def first(self, count: int, within: PendingQueue | Set[int] | None = None) -> list[QueueEntry]:
        """The first `count` entries (of the jobs `within`), in planning order, as a copy, with `-priority` as computed."""
        if within is None:
            return self._order[:count]
        return list(islice((entry for entry in self._order if entry.job_id in within), count))

    def ordered(self) -> list[QueueEntry]:
        """All entries in planning order, as a copy."""
        return self._order.copy()

    def priority(self, job_id: int) -> int | None:
        """The priority with which a job is planned; None for one that is not ranked."""
        entry = self._ranked.get(job_id)
        return -entry.rank if entry is not None else None

    def priority_then(self, job: Pending, started_us: int) -> int:
        """The priority that the job will have at that time, by the inputs of the last computation."""
        return explained(self._standing, job, started_us).value

    def factors(self, job_id: int) -> Priority | None:
        """The parts of a job's priority; None for one that is not ranked."""
        ranked = self._ranked.get(job_id)
        if ranked is None:
            return None
        return explained(self._standing, ranked.job, self._computed_us)

    # ---- changes ----

    def add(self, entry: QueueEntry) -> None:
        """Rank a new waiting job of the queue."""
        self._known[entry.job_id] = entry
        ranked = self._ranked[entry.job_id] = self._ranked_as(entry)
        insort(self._order, ranked)

    def remove(self, job_id: int) -> None:
        """Remove a job that waits no longer. Raises `KeyError` for one that is not ranked."""
        del self._known[job_id]
        entry = self._ranked.pop(job_id)
        del self._order[bisect_left(self._order, entry)]

    def clear(self) -> None:
        """Forget all jobs."""
        if self._known or self._computed_us:
            self._take_over(Ranking())

    def sync(self, entries: Sequence[QueueEntry]) -> Generator[None, None, bool]:
        """Follow every difference from the queue's `entries`, in time proportional to the differences.

        True when it paused, so that the queue may have changed meanwhile.
        """
        known = self._known
        new = [entry for entry in entries if known.get(entry.job_id) is not entry]
        old = [entry.job_id for entry in new if entry.job_id in known]
        if len(known) + len(new) - len(old) > len(entries):
            old += known.keys() - {entry.job_id for entry in entries}
        if len(new) + len(old) <= FEW:
            for job_id in old:
                self.remove(job_id)
            for entry in new:
                self.add(entry)
            return False
        yield
        for job_id in old:
            del known[job_id], self._ranked[job_id]
        added: list[QueueEntry] = []
        for start in range(0, len(new), COMPUTED_PER_SLICE):
            for entry in new[start : start + COMPUTED_PER_SLICE]:
                known[entry.job_id] = entry
                ranked = self._ranked[entry.job_id] = self._ranked_as(entry)
                added.append(ranked)
            yield
        still = self._ranked
        kept = [entry for entry in self._order if still.get(entry.job_id) is entry]
        self._order = yield from sorted_entries(kept + added)
        return True

    def refresh(self, standing: PriorityInputs, now_us: int) -> Generator[None, None, None]:
        """Recompute every priority. Until it is complete, `first` and `priority` give the old ones."""
        fresh = Ranking()
        fresh._standing, fresh._computed_us = standing, now_us
        yield from fresh.sync(list(self._known.values()))
        ranked, order = self._ranked, self._order
        self._take_over(fresh)
        # To let go of so much at once would hold up others as well.
        while order:
            del order[-COMPUTED_PER_SLICE:]
            for _ in range(min(COMPUTED_PER_SLICE, len(ranked))):
                ranked.popitem()
            yield

    def _take_over(self, fresh: Ranking) -> None:
        self._standing, self._computed_us, self._shapes = fresh._standing, fresh._computed_us, fresh._shapes
        self._known, self._ranked, self._order = fresh._known, fresh._ranked, fresh._order

    def _ranked_as(self, entry: QueueEntry) -> QueueEntry:
        """The entry with its computed priority."""
        return QueueEntry(-self._value(entry), entry.submitted_us, entry.job_id, entry.shape, entry.job)

    def _value(self, entry: QueueEntry) -> int:
        job = entry.job
        if job.priority != PRIORITY_DEFAULT:
            return job.priority
        points = self._shapes.get(entry.shape)
        if points is None:
            points = self._shapes[entry.shape] = sum(_lasting_points(self._standing, job))
        weights = self._standing.weights
        if weights.age:
            points += _age_points(weights, entry.submitted_us, self._computed_us)
        return min(PRIORITY_MAX, max(0, round(points) - job.nice))


def explained(standing: PriorityInputs, job: Pending, now_us: int) -> Priority:
    """One job's priority with its parts."""
    weights = standing.weights
    given = job.priority != PRIORITY_DEFAULT or not weighs(weights)
    age = _age_points(weights, job.submitted_us, now_us) if weights.age else 0.0
    fairshare, size, partition, qos = lasting = _lasting_points(standing, job)
    value = job.priority if given else min(PRIORITY_MAX, max(0, round(sum(lasting) + age) - job.nice))
    return Priority(value, given, age, fairshare, size, partition, qos, job.nice)


def _age_points(weights: PriorityWeights, submitted_us: int, now_us: int) -> float:
    waited_s = max(0, now_us - submitted_us) / SECOND_US
    return weights.age * (min(1.0, waited_s / weights.age_max_s) if weights.age_max_s else 1.0)


def _lasting_points(standing: PriorityInputs, job: Pending) -> tuple[float, float, float, float]:
    """The points that waiting does not change: for fair share, size, partition and QOS."""
    weights = standing.weights
    fair = standing.fair.get((job.account, job.user))
    if fair is None:
        fair = standing.newcomers.get(job.account, 1.0)
    shares = [size_share(one.request, standing.nodes, standing.cores) for one in job.parts or (job,)]
    share = shares[0] if len(shares) == 1 else min(1.0, sum(shares))
    return (
        weights.fairshare * fair,
        weights.size * (1.0 - share if weights.favor_small else share),
        weights.partition * standing.partitions.get(job.partition, 0.0),
        weights.qos * standing.qos.get(job.qos, 0.0),
    )


def sorted_entries(entries: list[QueueEntry]) -> Generator[None, None, list[QueueEntry]]:
    """The entries sorted as tuples, in slices.

    Sorting by the one number compares small integers only. Equal ones then lie together, in their old order: if that was
    not the order of submission, the remaining fields sort them.
    """
    came_in_order = yield from _is_by_submission(entries)
    order = yield from sorting(entries, _PRIORITY)
    start = len(order) if came_in_order else 0
    while start < len(order):
        stop = min(start + SORTED_PER_SLICE, len(order))
        while stop < len(order) and order[stop].rank == order[stop - 1].rank:
            stop += 1
        order[start:stop] = sorted(order[start:stop])
        start = stop
        yield
    return order


def _is_by_submission(entries: Sequence[QueueEntry]) -> Generator[None, None, bool]:
    """Check whether times of submission and job ids never fall, as in most queues."""
    for start in range(0, len(entries), SORTED_PER_SLICE):
        part = entries[start : start + SORTED_PER_SLICE + 1]
        for column in (_SUBMITTED, _JOB_ID):
            values = list(map(column, part))
            # That what is in order already is in order takes `sorted` one look at each.
            if values != sorted(values):
                return False
        yield
    return True


_PRIORITY, _SUBMITTED, _JOB_ID = attrgetter("rank"), attrgetter("submitted_us"), attrgetter("job_id")
