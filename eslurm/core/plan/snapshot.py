"""What one planning cycle looks at: a fork of the ledger and the head of the queue.

A snapshot never changes once taken, so a cycle may be spread over many slices while the
cluster goes on; its `generation` says which state it shows. Taking one copies pointers only:
the cluster keeps ledger and queue up to date instead of rebuilding them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from eslurm.core.plan.queue import Entry, Pending, PendingQueue
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import NodeView, Topology
from eslurm.core.resources.vector import Vector

__all__ = ["NodeView", "PartitionView", "Pending", "Running", "Snapshot", "build_ledger"]

EXAMINED_MAX: Final = 10_000


class PartitionView(msgspec.Struct, frozen=True):
    """A partition: whether it starts jobs, and the memory a job gets that asked for none (0: unlimited)."""

    name: str
    up: bool = True
    memory_per_node_mib: int = 0
    memory_per_cpu_mib: int = 0


class Running(msgspec.Struct, frozen=True):
    """What one attempt holds: (node number, amounts) pairs until `until_us` at the latest."""

    job_id: int
    spans: tuple[tuple[int, Vector], ...]
    until_us: int


class Snapshot(msgspec.Struct, frozen=True):
    """The immutable input of one cycle; `pending` is in planning order."""

    ledger: Ledger
    partitions: Mapping[str, PartitionView]
    pending: Sequence[Entry]
    generation: int
    now_us: int

    @classmethod
    def take(
        cls,
        ledger: Ledger,
        partitions: Mapping[str, PartitionView],
        queue: PendingQueue,
        *,
        generation: int,
        now_us: int,
        examined_max: int = EXAMINED_MAX,
    ) -> Snapshot:
        """Freezes the cluster's living ledger and queue for one cycle."""
        return cls(ledger.fork(), partitions, queue.first(examined_max), generation, now_us)

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
    ) -> Snapshot:
        """Builds a snapshot from plain lists: for recovery, what-if questions and tests."""
        queue = PendingQueue(pending)
        return cls(
            build_ledger(Topology(nodes), running),
            MappingProxyType({partition.name: partition for partition in partitions}),
            queue.first(len(queue)),
            generation,
            now_us,
        )


def build_ledger(topology: Topology, running: Iterable[Running]) -> Ledger:
    """A ledger with everything that runs held on it."""
    ledger = Ledger(topology)
    for attempt in running:
        for node, amounts in attempt.spans:
            ledger.hold(node, amounts, attempt.until_us)
    return ledger
