"""The input of one planning cycle: a fork of the ledger, the running attempts, and the waiting jobs.

A snapshot never changes once taken, so a cycle may be spread over many slices while the cluster goes on; its `generation`
names the state it shows. Taking one copies pointers only: the cluster keeps ledger, queues and running attempts up to
date. Unchanged parts of two snapshots are the same object in both, so differences are cheap to find.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from eslurm.core.model.accounts import Policy
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.promise import Promise
from eslurm.core.plan.cycle.queue import Mark, Pending, PendingQueue, QueueEntry
from eslurm.core.plan.cycle.wishes import Wishes
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import NodeView, Topology
from eslurm.core.resources.vector import Vector
from eslurm.core.resources.windows import Calendar

__all__ = ["NodeView", "Pending", "Policies", "Running", "Snapshot", "build_ledger"]

Policies: TypeAlias = Mapping[str, Mapping[str, Policy]]
"""Kind -> name -> record, as the cluster keeps them."""


class Running(msgspec.Struct, frozen=True):
    """The holdings of one attempt: (node number, amounts) pairs until `until_us` at the latest.

    `expected_us` is its expected end (0: only the limit is known), `since_us` its begin, later by the time of its
    suspensions. `job` is the job as it was while it waited: its owner decides about limits. An attempt that is suspended
    for the job `room_for` has `lent` its cores, and runs for `left_us` when they are free again. `planned_us` is its end
    as planned at placement (0: no limit). `parts` are the (part, node number, amounts) of a job of several parts, of which
    `spans` are the sums; else empty. `lent_parts` are the same of `lent`.
    """

    job_id: int
    spans: tuple[tuple[int, Vector], ...]
    until_us: int
    wide: Vector = ()
    job: Pending | None = None
    array_job_id: int = 0
    lent: tuple[tuple[int, Vector], ...] = ()
    room_for: int = 0
    left_us: int = 0
    expected_us: int = 0
    since_us: int = 0
    planned_us: int = 0
    parts: tuple[tuple[int, int, Vector], ...] = ()
    lent_parts: tuple[tuple[int, int, Vector], ...] = ()


RunningKey: TypeAlias = tuple[int, int]
"""(job id, attempt number)."""


class Lendable(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Cores on one node that a running attempt lends, and that no job has borrowed."""

    owner: RunningKey
    node: int
    cores: int


class Lent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Cores on one node that an attempt has borrowed from another."""

    borrower: RunningKey
    owner: RunningKey
    node: int
    cores: int


class Snapshot(msgspec.Struct, frozen=True):
    """The immutable input of one cycle; `pending` and `later` are in planning order.

    `later` are jobs that wait for a predictable event: another job's end, a begin time. `fixed` are those of both with a
    fixed start, `known` those requested by id. `policies_changed` is the generation of the current policies. `changes` are
    the waiting jobs that may have changed since `since` (None: any), `mark` is the journal's position for that. `lenders`
    are those of `running` that have lent cores. `has_estimates`: some waiting job has an estimate below its limit.
    `promises` are the initial ones of a new schedule. `has_packs`: some waiting job is a pack or of one that has begun.
    `wishes` are to be answered by this cycle. `fillers` are growths that take what is free at its end.
    `wishes` are to be answered by this cycle. `lendable` are cores for jobs that accept borrowed ones, `lent` those that
    running jobs have borrowed.
    """

    ledger: Ledger
    partitions: Mapping[str, PartitionView]
    pending: Sequence[QueueEntry]
    generation: int
    now_us: int
    running: Mapping[RunningKey, Running] = MappingProxyType({})
    later: Sequence[QueueEntry] = ()
    known: Mapping[int, QueueEntry] = MappingProxyType({})
    fixed: Sequence[QueueEntry] = ()
    policies: Policies = MappingProxyType({})
    policies_changed: int = 0
    calendar: Calendar | None = None
    changes: frozenset[int] | None = None
    since: Mark | None = None
    mark: Mark | None = None
    lenders: Sequence[Running] = ()
    has_estimates: bool = False
    promises: Mapping[int, Promise] = MappingProxyType({})
    has_packs: bool = False
    wishes: Wishes | None = None
    fillers: Sequence[QueueEntry] = ()
    lendable: Sequence[Lendable] = ()
    lent: Sequence[Lent] = ()
    is_strict: bool = False
    """Its policy lets no job start before one ahead of it that could use the same nodes."""

    def has_partitions(self, job: Pending) -> bool:
        """Check whether all partitions exist that the job's nodes come from."""
        return all(name in self.partitions for name in job.partitions)

    def closed_partition(self, job: Pending) -> str | None:
        """The first of the job's partitions that starts no jobs or does not exist; None without one."""
        for name in job.partitions:
            partition = self.partitions.get(name)
            if partition is None or not partition.up:
                return name
        return None

    @classmethod
    def take(
        cls,
        ledger: Ledger,
        partitions: Mapping[str, PartitionView],
        queue: PendingQueue,
        *,
        generation: int,
        now_us: int,
        ordered: Sequence[QueueEntry] | None = None,
        running: Mapping[RunningKey, Running] = MappingProxyType({}),
        later: PendingQueue | None = None,
        known: Iterable[int] = (),
        policies: Policies = MappingProxyType({}),
        policies_changed: int = 0,
        calendar: Calendar | None = None,
        since: Mark | None = None,
        lenders: Sequence[Running] = (),
        promises: Mapping[int, Promise] = MappingProxyType({}),
        wishes: Wishes | None = None,
    ) -> Snapshot:
        """Freeze the cluster's living ledger, queues and running attempts for one cycle.

        `known` are the jobs that have bookings or promises, with `since` only those that have changed since that snapshot
        (`changes_since`); `ordered` the waiting jobs in another order than the queue's own.
        """
        entries = {job_id: entry for job_id in known if (entry := _find(job_id, queue, later)) is not None}
        return cls(
            ledger.fork(),
            partitions,
            ordered if ordered is not None else queue.first(len(queue)),
            generation,
            now_us,
            dict(running),
            later.first(len(later)) if later is not None else (),
            entries,
            sorted((*queue.fixed.values(), *(later.fixed.values() if later is not None else ()))),
            policies,
            policies_changed,
            calendar,
            changes_since(since, queue, later),
            since,
            queue.shapes.journal.mark,
            lenders,
            queue.shapes.estimated > 0,
            promises,
            queue.shapes.packs > 0,
            wishes,
        )

    @classmethod
    def build(
        cls,
        nodes: Iterable[NodeView],
        partitions: Iterable[PartitionView],
        running: Iterable[Running],
        pending: Iterable[Pending],
        *,
        generation: int = 0,
        now_us: int = 0,
        later: Iterable[Pending] = (),
        topology: Topology | None = None,
    ) -> Snapshot:
        """Build a snapshot from plain lists: for recovery, what-if questions and tests.

        With the `topology` of an earlier one a schedule can continue; nodes are usable as `nodes` says.
        """
        views = tuple(nodes)
        queue = PendingQueue(pending)
        others = PendingQueue(later, queue.shapes)
        held = {(one.job_id, number): one for number, one in enumerate(running)}
        living = build_ledger(topology or Topology(views), held.values())
        for node in views:
            living.set_usable(node.number, node.usable)
        return cls.take(
            living,
            MappingProxyType({partition.name: partition for partition in partitions}),
            queue,
            generation=generation,
            now_us=now_us,
            running=held,
            later=others,
            known=[*queue.ids(), *others.ids()],
        )


def changes_since(
    mark: Mark | None, queue: PendingQueue, later: PendingQueue | None
) -> frozenset[int] | None:
    """The jobs that came, went or changed in the queues since then; None: unknown."""
    if later is not None and later.shapes is not queue.shapes:
        return None
    return queue.shapes.journal.since(mark)


def _find(job_id: int, queue: PendingQueue, later: PendingQueue | None) -> QueueEntry | None:
    found = queue.entry(job_id)
    return found if found is not None or later is None else later.entry(job_id)


def build_ledger(topology: Topology, running: Iterable[Running]) -> Ledger:
    """A ledger that holds all running attempts."""
    ledger = Ledger(topology)
    for attempt in running:
        for node, amounts in attempt.spans:
            ledger.hold(node, amounts, attempt.until_us)
        ledger.hold_wide(attempt.wide)
    return ledger
