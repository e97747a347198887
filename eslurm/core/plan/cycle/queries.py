"""Placement queries of one cycle: jobs of the same shape, and packs of the same members, share theirs.

Invariant: a query stays alive, and the same, for the whole cycle: searches are remembered by its identity.
"""

from __future__ import annotations

from collections.abc import Generator

from eslurm.core.plan.cycle import packs, reasons
from eslurm.core.plan.cycle.firm_places import FirmPlaces
from eslurm.core.plan.cycle.late_places import LatePlaces
from eslurm.core.plan.cycle.placement_query import query_of
from eslurm.core.plan.cycle.queue import Pending, QueueEntry
from eslurm.core.plan.cycle.reasons import Why
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import Snapshot
from eslurm.core.plan.profile.search import PlacementQuery


class Queries:
    """Makes the queries of the jobs of one snapshot."""

    __slots__ = ("_firm", "_interns", "_now_us", "_packs", "_queries", "_schedule", "_shield", "_snapshot")

    def __init__(self, snapshot: Snapshot, schedule: Schedule) -> None:
        self._snapshot = snapshot
        self._schedule = schedule
        self._now_us = snapshot.now_us
        self._queries: dict[int, PlacementQuery | Why] = {}
        self._interns: dict[tuple[int, ...], PlacementQuery] = {}
        # Queries of packs by shape, and by their members' queries as searched: without the places of late jobs.
        self._packs: dict[tuple[int, ...], packs.PackQuery | Why] = {}
        self._shield = LatePlaces(schedule)
        self._firm: FirmPlaces | None = None
        # Firm places of an earlier cycle follow its changes no more.
        schedule.noted = None

    def refused(self, job: Pending) -> Why | None:
        """The reason why the job's partition starts no job; None when it does. Of several partitions each has to."""
        partition = self._snapshot.partitions.get(job.partition)
        if partition is not None and partition.up and not job.parts and not job.followers:
            return None
        name = self._snapshot.closed_partition(job)
        return None if name is None else reasons.partition_down(name, name in self._snapshot.partitions)

    def of(self, entry: QueueEntry) -> PlacementQuery | Why:
        """The job's query, shared by all jobs of its shape; or the reason why it is impossible."""
        found = self._queries.get(entry.shape)
        if found is None:
            found = self._queries[entry.shape] = self._interned(self._compiled(entry.job))
        return found

    def startable(self, entry: QueueEntry) -> PlacementQuery | Why:
        """The query, or the reason why the job's partition starts no job."""
        return self.refused(entry.job) or self.of(entry)

    def careful(self, entry: QueueEntry) -> PlacementQuery | Why:
        """The query of a job that is to overtake others: it avoids the places of jobs whose starts have slipped."""
        found = self.of(entry)
        if isinstance(found, Why):
            return found
        return self.firm(self.clear_of_late(entry, found))

    def clear_of_late(self, entry: QueueEntry, query: PlacementQuery) -> PlacementQuery:
        """The query without the places of earlier jobs whose starts have slipped."""
        return self._shield.around(entry, query)

    def firm(self, query: PlacementQuery) -> PlacementQuery:
        """The query without starts that could by their limit run into places of packs' members."""
        return query if self._firm is None else self._firm.around(query)

    def clear_of_overruns(self, query: PlacementQuery) -> PlacementQuery:
        """The query of a member that begins at its delay, without nodes whose jobs may by their limits still be there."""
        return query if self._firm is None else self._firm.clear(query)

    def keep_firm(self) -> Generator[None, None, None]:
        """Keep the places of packs' members by limits from now on, where anything is planned by forecasts."""
        if self._snapshot.has_estimates or any(one.expected_us for one in self._snapshot.running.values()):
            self._firm = FirmPlaces(self._schedule)
            yield from self._firm.prepare()

    def of_pack(self, entry: QueueEntry) -> packs.PackQuery | Why:
        """The query of a pack, shared by all packs of its shape; or the reason why it is impossible."""
        found = self._packs.get((entry.shape,))
        if found is None:
            queries = [self._interned(self._compiled(member)) for member in entry.job.members]
            found = self._shared(packs.query_of_pack(entry.job, queries))
            self._packs[entry.shape,] = found
        return found

    def careful_pack(self, entry: QueueEntry, *, is_first: bool = False) -> packs.PackQuery | Why:
        """The query of a pack for a new place: its members' delays hold whatever others make of their limits.

        It avoids the places of jobs whose starts have slipped, except where it `is_first`: overtakes nothing.
        """
        found = self.of_pack(entry)
        if isinstance(found, Why):
            return found
        queries = [query if is_first else self.clear_of_late(entry, query) for query in found.queries]
        queries = [
            self.clear_of_overruns(query) if delay_us else self.firm(query)
            for query, delay_us in zip(queries, found.delays_us, strict=True)
        ]
        if all(one is other for one, other in zip(queries, found.queries, strict=True)):
            return found
        return self._shared(packs.query_of_pack(entry.job, queries))

    def _shared(self, pack: packs.PackQuery | Why) -> packs.PackQuery | Why:
        """One query for packs whose members' queries are the same: searches of this cycle serve all."""
        if isinstance(pack, Why):
            return pack
        key = (*map(id, pack.queries), *pack.delays_us)
        return self._packs.setdefault(key, pack)

    def _interned(self, query: PlacementQuery | Why) -> PlacementQuery | Why:
        """One query for jobs of different owners that ask for the same under the same rules: searches of this cycle serve
        all.
        """
        if isinstance(query, Why) or query.constraints or query.recount is not None:
            return query
        closed = id(query.closed)
        return self._interns.setdefault(
            (id(query.need), query.duration_us, query.from_us, query.until_us, closed, query.beyond_us), query
        )

    def _compiled(self, job: Pending) -> PlacementQuery | Why:
        return query_of(
            job, self._schedule.need(job, self._snapshot.partitions), self._schedule.rules, self._now_us
        )
