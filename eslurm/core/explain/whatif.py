"""A copy of the plan for what-if questions: when would this job start with that request?

It uses the planner's own parts (`Cycle`, `first_start`), so an answer is what a cycle would find. Invariant: nothing here
changes the original schedule; the job in question is never in the copy's profile itself.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from eslurm.core.plan.cycle import packs
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.plan.cycle.policy import Cycle
from eslurm.core.plan.cycle.queue import Pending, QueueEntry
from eslurm.core.plan.cycle.reasons import Why
from eslurm.core.plan.cycle.reconcile import reconcile
from eslurm.core.plan.cycle.schedule import Booking, Schedule
from eslurm.core.plan.cycle.snapshot import Snapshot
from eslurm.core.plan.placement.mapping import spans_of
from eslurm.core.plan.profile.search import NoStart, PlacementQuery, Start, first_start, start_exactly
from eslurm.core.resources.timeline import INFINITY_US

AHEAD_MAX: Final = 100
"""Jobs without a booking that are planned before the one asked about; behind more of them nothing can be foretold."""


class WhatIf:
    """The profile, the rules and the bookings, without one job's own: `was` are those."""

    def __init__(self, snapshot: Snapshot, schedule: Schedule, job_id: int = 0) -> None:
        self.now_us = snapshot.now_us
        self.snapshot = snapshot
        self.schedule = _copied(snapshot, schedule)
        self.was: tuple[Booking, ...] = self.schedule.remove(job_id)
        self.cycle = Cycle(snapshot, self.schedule, PlanLimits())
        # No later job starts before this instant, where starts keep the queue's order.
        self.floor_us = self.now_us
        self._shape = 0
        self._turns: dict[int, tuple[int, int, int]] | None = None

    def query(self, job: Pending) -> PlacementQuery | Why:
        """The query for a job of any shape; or the reason why it is impossible."""
        refused = self.cycle.queries.refused(job)
        if refused is not None:
            return refused
        # Shapes of the queue count upwards from 0: each question has one of its own.
        self._shape -= 1
        return self.cycle.queries.of(QueueEntry(0, 0, job.job_id, self._shape, job))

    def start(self, job: Pending, from_us: int) -> Generator[None, None, Start | None]:
        """The first start of such a job from `from_us` on beside all plans, in slices; None: there is none."""
        query = self.query(job)
        if isinstance(query, Why):
            return None
        yield from self.preparing(query)
        return self.find(query, job, from_us)

    def preparing(self, query: PlacementQuery) -> Generator[None, None, None]:
        """Build the rows for the search in slices: for a new amount that reads all nodes."""
        yield from self.schedule.book.preparing(query.need)

    def find(self, query: PlacementQuery, job: Pending, from_us: int) -> Start | None:
        """The same for a query that is known already."""
        query = self._clear_of_late(query, job)
        from_us = max(from_us, self.floor_us)
        if job.start_at_us and not job.is_owed:
            at_us = max(job.start_at_us, self.now_us)
            found = start_exactly(self.schedule.book, query, at_us) if at_us >= from_us else NoStart(())
        else:
            found = first_start(self.schedule.book, query, max(from_us, job.start_at_us))
        return None if isinstance(found, NoStart) else found

    def _clear_of_late(self, query: PlacementQuery, job: Pending) -> PlacementQuery:
        """The query without the places of late jobs ahead; a job that is not queued comes behind its equals."""
        if not self.schedule.slack.late:
            return query
        if self._turns is None:
            self._turns = {entry.job_id: entry.turn for entry in self.snapshot.pending}
        turn = self._turns.get(job.job_id, (-job.priority, self.now_us, INFINITY_US))
        self._shape -= 1
        return self.cycle.queries.clear_of_late(QueueEntry(*turn, self._shape, job), query)

    def pack(self, job: Pending) -> packs.PackQuery | Why:
        """The query for a pack that has not begun; or the reason why it is impossible."""
        refused = self.cycle.queries.refused(job)
        if refused is not None:
            return refused
        self._shape -= 1
        return self.cycle.queries.of_pack(QueueEntry(0, 0, job.job_id, self._shape, job))

    def find_pack(
        self, job: Pending, pack: packs.PackQuery, from_us: int
    ) -> Generator[None, None, packs.Places | packs.NoPlaces]:
        """Take the first places of all members of a pack."""
        return (yield from packs.find(self.schedule, job, pack, max(from_us, self.floor_us)))

    def plan_ahead(self, entries: Sequence[QueueEntry], *, strict: bool) -> Generator[None, None, bool]:
        """Book the waiting jobs ahead that have no booking yet, each as early as it fits.

        `strict`: no job starts before those ahead. False when there are more than `AHEAD_MAX`.
        """
        todo = [entry for entry in entries if entry.job_id not in self.schedule.bookings]
        if sum(entry.job.startable for entry in todo) > AHEAD_MAX:
            return False
        for entry in todo:
            if entry.job.followers:
                yield from self._take_pack(entry, strict=strict)
                continue
            query = self.query(entry.job)
            yield
            if isinstance(query, Why):
                continue
            yield from self.preparing(query)
            for _ in range(entry.job.startable):
                found = self.find(query, entry.job, self.now_us)
                if found is None:
                    break
                self._take(entry, query, found)
                if strict:
                    self.floor_us = max(self.floor_us, found.at_us)
                yield
        return True

    def _take_pack(self, entry: QueueEntry, *, strict: bool) -> Generator[None, None, None]:
        pack = self.pack(entry.job)
        if isinstance(pack, Why):
            return
        found = yield from self.find_pack(entry.job, pack, self.now_us)
        if isinstance(found, packs.Places):
            self.schedule.note(entry, found.bookings, found.moves)
            if strict:
                self.floor_us = max(self.floor_us, found.bookings[0].start_us)

    def _take(self, entry: QueueEntry, query: PlacementQuery, found: Start) -> None:
        job = entry.job
        spans = spans_of(self.schedule.book.topology, query.need, found.chosen)
        booking = self.cycle.booking(job, query.need, found.at_us, spans)
        self.schedule.add(entry, booking)


def _copied(snapshot: Snapshot, schedule: Schedule) -> Schedule:
    """An independent schedule as of the snapshot's time; made of the running attempts where nothing is planned for these
    nodes yet.
    """
    other = Schedule(slots_max=schedule.slots_max)
    if schedule.book.topology is not snapshot.ledger.topology:
        exhaust(reconcile(other, snapshot, PlanLimits().overdue_grace_us))
        return other
    other.book = schedule.book.copy()
    other.rules = schedule.rules.copy(other.book) if schedule.rules is not None else None
    other.bookings = schedule.bookings.copy()
    other.entries = schedule.entries.copy()
    other.moves = schedule.moves.copy()
    other.stuck = schedule.stuck.copy()
    other.slack = schedule.slack.copy()
    other.needs = schedule.needs
    other.older = snapshot.ledger.older
    other.book.advance(snapshot.now_us)
    if other.rules is not None:
        other.rules.advance(snapshot.now_us)
    return other
