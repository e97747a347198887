"""Short ways to say what a small cluster looks like, for the planning tests."""

from __future__ import annotations

from collections.abc import Iterable

from eslurm.core.model.partition import PartitionView
from eslurm.core.model.placement import Placement
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.queue import Pending
from eslurm.core.plan.cycle.snapshot import NodeView, Running, Snapshot
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology

NOW = 1_000


def nodes(count: int, *, cores: int = 4, memory_mib: int = 0, out: Iterable[int] = ()) -> list[NodeView]:
    """Nodes n0, n1, ... with numbers 0, 1, ... in partition main."""
    gone = set(out)
    return [
        NodeView(number, f"n{number}", (cores, memory_mib), number not in gone, ("main",))
        for number in range(count)
    ]


def ledger(views: Iterable[NodeView]) -> Ledger:
    return Ledger(Topology(views))


def job(
    job_id: int,
    request: Request | None = None,
    *,
    limit_us: int = 100,
    partition: str = "main",
    priority: int = 0,
    startable: int = 1,
) -> Pending:
    """A pending job submitted in the order of its id."""
    return Pending(
        job_id,
        request or Request(),
        partition,
        limit_us,
        priority=priority,
        submitted_us=job_id,
        startable=startable,
    )


def runs(number: int, cores: int, until_us: int, *, memory_mib: int = 0) -> Running:
    """Something that holds cores on one node."""
    return Running(900 + number, ((number, (cores, memory_mib)),), until_us)


def snapshot(
    views: Iterable[NodeView],
    pending: Iterable[Pending],
    running: Iterable[Running] = (),
    *,
    partitions: Iterable[PartitionView] = (PartitionView("main"),),
    now_us: int = NOW,
    generation: int = 7,
) -> Snapshot:
    return Snapshot.build(views, partitions, running, pending, generation=generation, now_us=now_us)


def started(placements: Iterable[Placement]) -> list[int]:
    return [placement.job_id for placement in placements]
