"""A planner's desk: a machine, its kept plan, and one plan operation on it, step by step as the policies do it.

Invariant: what is booked here went through the planner's own search, rules and book; nothing is made up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from benchmarks.plan.workload import PARTITION
from eslurm.core.model.accounts import Policy
from eslurm.core.model.partition import PartitionView
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.plan.cycle.policy import Cycle
from eslurm.core.plan.cycle.queue import Pending, QueueEntry
from eslurm.core.plan.cycle.reasons import Why
from eslurm.core.plan.cycle.reconcile import reconcile
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import NodeView, Running, Snapshot
from eslurm.core.plan.placement.mapping import spans_of
from eslurm.core.plan.profile.search import NoStart, PlacementQuery, Start, first_start

LIMITS = PlanLimits()


class Desk:
    """The jobs wait, nothing runs, and nothing is planned yet."""

    def __init__(
        self, nodes: Sequence[NodeView], jobs: Iterable[Pending], policies: Mapping[str, Mapping[str, Policy]]
    ) -> None:
        snapshot = snapshot_of(nodes, jobs)
        self.snapshot = msgspec.structs.replace(snapshot, policies=policies, policies_changed=1)
        self.schedule = Schedule()
        exhaust(reconcile(self.schedule, self.snapshot, LIMITS.overdue_grace_us))
        self.cycle = Cycle(self.snapshot, self.schedule, LIMITS)
        self.entries: dict[int, QueueEntry] = {entry.job_id: entry for entry in self.snapshot.pending}

    def query(self, job: Pending) -> PlacementQuery:
        """The compiled request of a job. Raises `ValueError` for one that can never run."""
        found = self.cycle.queries.of(self.entries[job.job_id])
        if isinstance(found, Why):
            raise ValueError(f"job {job.job_id}: {found.text}")
        return found

    def search(self, job: Pending) -> tuple[PlacementQuery, Start]:
        """Limits, FreePools and mapping: the first start. Raises `ValueError` when there is none."""
        query = self.query(job)
        found = first_start(self.schedule.book, query, self.snapshot.now_us)
        if isinstance(found, NoStart):
            raise ValueError(f"this machine is too small for {job}")
        return query, found

    def put(self, job: Pending) -> Start:
        """Searches and books."""
        query, found = self.search(job)
        spans = spans_of(self.snapshot.ledger.topology, query.need, found.chosen)
        booking = self.cycle.booking(job, query.need, found.at_us, spans)
        self.schedule.add(self.entries[job.job_id], booking, found.moves)
        return found

    def take_out(self, job: Pending) -> int:
        """Unbooks; when the job would have started, in microseconds."""
        (booking,) = self.schedule.remove(job.job_id)
        return booking.start_us


def snapshot_of(
    nodes: Sequence[NodeView], jobs: Iterable[Pending], running: Iterable[Running] = ()
) -> Snapshot:
    """One partition with all the nodes, at time 0."""
    return Snapshot.build(nodes, (PartitionView(PARTITION),), running, jobs)
