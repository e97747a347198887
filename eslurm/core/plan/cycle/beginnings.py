"""Beginnings of planned starts: a booking whose time has come is checked once more and becomes a placement.

Invariant: what begins fits the free resources now, and its rules allow it; otherwise it is displaced and planned anew.
"""

from __future__ import annotations

from collections.abc import Generator

import msgspec

from eslurm.core.plan.cycle import pack_starts
from eslurm.core.plan.cycle.array_tasks import allowed_together, merged, split
from eslurm.core.plan.cycle.assignments import assignment_of
from eslurm.core.plan.cycle.earliest import is_ready
from eslurm.core.plan.cycle.placement_query import allows, is_open
from eslurm.core.plan.cycle.policy import Cycle
from eslurm.core.plan.cycle.queue import QueueEntry
from eslurm.core.plan.cycle.reasons import Why
from eslurm.core.plan.cycle.schedule import Booking, ends_of
from eslurm.core.plan.profile.search import PlacementQuery
from eslurm.core.plan.rules.limits import Area


class Beginnings:
    """Begins what is planned for now; a late start displaces the plans in its way."""

    __slots__ = ("_is_late", "cycle", "schedule")

    def __init__(self, cycle: Cycle) -> None:
        self.cycle = cycle
        self.schedule = cycle.schedule
        # Whether a start of this cycle comes so late that others, planned after it, would overlap more of it.
        self._is_late = False

    def start_if_now(self, entry: QueueEntry) -> Generator[None, None, None]:
        """Start the tasks whose planned start is now, if the job waits for resources only."""
        if is_ready(entry.job) and entry.job_id in self.schedule.bookings:
            yield from self.start_due_tasks(self.schedule.entries[entry.job_id])

    def start_due_tasks(self, entry: QueueEntry) -> Generator[None, None, None]:
        """Start a job's tasks that are due; a late one may displace later tasks of the same job."""
        if entry.job.followers:
            yield from self._begin_pack(entry)
            return
        for booking in self.schedule.bookings[entry.job_id]:
            if booking.start_us > self.cycle.now_us or self.cycle.is_full:
                continue
            if any(one is booking for one in self.schedule.bookings.get(entry.job_id, ())):
                yield from self._begin(entry, booking)

    def _begin(self, entry: QueueEntry, booking: Booking) -> Generator[None, None, None]:
        """Begin a planned start; a late one moves as a whole and displaces the plans in its way."""
        cycle, schedule = self.cycle, self.schedule
        job = entry.job
        stop_us, until_us = ends_of(job, cycle.now_us)
        on_time = booking.start_us == cycle.now_us
        parts = split(booking) if booking.tasks > 1 else [booking]
        room = cycle.limits.placements_max - len(cycle.placements)
        now, rest = parts[:room], parts[room:]
        ends = {"start_us": cycle.now_us, "stop_us": stop_us, "until_us": until_us}
        now = [msgspec.structs.replace(part, **ends) for part in now]
        if not self._fits(booking) or not self._is_allowed(entry, booking):
            schedule.displace(job.job_id)
            return
        why = schedule.whys.get(job.job_id)
        if on_time and not rest:
            schedule.begin(job, booking, now)
        else:
            schedule.drop(job.job_id, booking)
            for part in now:
                schedule.start(job, part, must=True)
            if rest:
                schedule.add(entry, merged(rest))
        if why is not None and job.job_id in schedule.bookings:
            next_us = min(one.start_us for one in schedule.bookings[job.job_id])
            schedule.whys[job.job_id] = Why(why.kind, why.text, next_us)
        # Later than that is no start as planned: those planned behind it are held against it as it is.
        late_us = cycle.late_us(booking)
        for part in now:
            yield from cycle.place(part, late_us)

    def _begin_pack(self, entry: QueueEntry) -> Generator[None, None, None]:
        """Begin a pack whose planned start has come; one that is too late is planned anew, as a whole."""
        cycle, schedule, job_id = self.cycle, self.schedule, entry.job_id
        places = schedule.bookings[job_id]
        if places[0].start_us > cycle.now_us or not cycle.has_room(entry.job):
            return
        pack = cycle.queries.refused(entry.job) or cycle.queries.of_pack(entry)
        is_late = places[0].start_us < cycle.now_us and not cycle.late_us(places[0])
        may_begin = not is_late and not isinstance(pack, Why)
        if may_begin and not isinstance(pack, Why):
            may_begin = yield from pack_starts.may_begin(cycle, entry, pack, places, with_areas=self._is_late)
        if not may_begin:
            schedule.displace(job_id)
            return
        schedule.hand_out(job_id)
        yield from pack_starts.begin(cycle, entry, places)

    def _fits(self, booking: Booking) -> bool:
        """Check whether all of it is free now: an attempt may have outlived its expected end."""
        ledger = self.cycle.ledger
        if any(asked > free for asked, free in zip(booking.wide, ledger.wide_free, strict=False)):
            return False
        return all(ledger.fits_on(node, amounts) for node, amounts in booking.pairs)

    def _is_allowed(self, entry: QueueEntry, booking: Booking) -> bool:
        """Check whether the rules allow the start now: an attempt past its expected end may still count against a limit."""
        cycle, schedule = self.cycle, self.schedule
        query = cycle.queries.startable(entry)
        if isinstance(query, Why):
            return False
        # The moment that passes until a planned start is noticed costs no job a window that it just fits. Where its whole
        # place has passed, others may have been planned where it is now.
        at_us = cycle.now_us - cycle.late_us(booking)
        query = msgspec.structs.replace(query, from_us=at_us)
        chosen = assignment_of(booking, cycle.ledger.topology)
        if not is_open(query, at_us, chosen) or not is_open(self._at_once(query), cycle.now_us, chosen):
            return False
        if not query.constraints:
            return True
        moves, why = schedule.moves.get(entry.job_id, ()), schedule.whys.get(entry.job_id)
        schedule.drop(entry.job_id, booking)
        # What was planned behind it counts against an area, and was planned with it in mind.
        with_areas = self._is_late
        self._is_late |= at_us != booking.start_us
        if booking.tasks > 1:
            together = allowed_together(
                schedule, entry.job, query, at_us, booking.tasks, is_promised=True, with_areas=with_areas
            )
            is_allowed = together == booking.tasks
        else:
            is_allowed = allows(query, at_us, chosen, without=() if with_areas else (Area,))
        schedule.add(entry, booking, moves)
        if why is not None:
            schedule.whys[entry.job_id] = why
        return is_allowed

    def _at_once(self, query: PlacementQuery) -> PlacementQuery:
        """The query restricted to this instant: a job shorter than its delay must not begin on nodes kept for others."""
        return msgspec.structs.replace(query, from_us=self.cycle.now_us, duration_us=1)
