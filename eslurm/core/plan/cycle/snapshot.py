"""What one planning cycle looks at: a fork of the ledger, what runs, and the jobs that wait.

A snapshot never changes once taken, so a cycle may be spread over many slices while the
cluster goes on; its `generation` says which state it shows. Taking one copies pointers only:
the cluster keeps ledger, queues and running work up to date instead of rebuilding them. What has
not changed between two snapshots is the same object in both, so differences are cheap to find.
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
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import NodeView, Topology
from eslurm.core.resources.vector import Vector
from eslurm.core.resources.windows import Calendar

__all__ = ["NodeView", "Pending", "Policies", "Running", "Snapshot", "build_ledger"]

Policies: TypeAlias = Mapping[str, Mapping[str, Policy]]
"""Kind -> name -> record, as the cluster keeps them."""


class Running(msgspec.Struct, frozen=True):
    """What one attempt holds: (node number, amounts) pairs until `until_us` at the latest.

    It was expected to end at `expected_us` (0: nobody said more than its limit), and began at `since_us`, later by as long
    as it stood still.
    `job` is the job as it was while it waited: whose it is decides about limits. What stands still to make room for the
    job `room_for` has `lent` its cores, and goes on for `left_us` when they are free again. When it was placed it was
    planned to end by `planned_us` (0: no limit).
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


RunningKey: TypeAlias = tuple[int, int]
"""(job id, attempt number)."""


class Snapshot(msgspec.Struct, frozen=True):
    """The immutable input of one cycle; `pending` and `later` are in planning order.

    `later` are the jobs that wait for something else than resources, but for something that is expected to come:
    another job's end, a begin time. `fixed` are those of both with a fixed start, `known` those that were asked for by id.
    `policies_changed` is the generation since which the policies are as they are. `changes` are the waiting jobs that may
    differ from what they were at `since` (None: any), `mark` says when this was. `lenders` are those of `running` that have
    lent something. `has_estimates`: some waiting job is expected to take less than its limit. `promises` are those that a
    new schedule is to begin with.
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
    ) -> Snapshot:
        """Freezes the cluster's living ledger, queues and running work for one cycle.

        `known` are the jobs that have bookings or promises, with `since` only those of them that have changed since that
        snapshot (`changes_since`); `ordered` the waiting jobs in another order than the queue's own.
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
        """Builds a snapshot from plain lists: for recovery, what-if questions and tests.

        With the `topology` of an earlier one a schedule may go on where it was; nodes are usable as `nodes` says.
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
    """The jobs that came, went or changed in the queues since then; None: that is not known."""
    if later is not None and later.shapes is not queue.shapes:
        return None
    return queue.shapes.journal.since(mark)


def _find(job_id: int, queue: PendingQueue, later: PendingQueue | None) -> QueueEntry | None:
    found = queue.entry(job_id)
    return found if found is not None or later is None else later.entry(job_id)


def build_ledger(topology: Topology, running: Iterable[Running]) -> Ledger:
    """A ledger with everything that runs held on it."""
    ledger = Ledger(topology)
    for attempt in running:
        for node, amounts in attempt.spans:
            ledger.hold(node, amounts, attempt.until_us)
        ledger.hold_wide(attempt.wide)
    return ledger
