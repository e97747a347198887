"""Places of late jobs, closed to the jobs behind them, so that these do not add to the delay.

A late job's planned place is closed to others up to their limits (ADR 14); under a policy that makes few promises, the
place of a job that has waited for long is closed from the beginning.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import Final

from msgspec.structs import replace

from eslurm.core.plan.cycle.queue import QueueEntry
from eslurm.core.plan.cycle.schedule import Booking, Schedule
from eslurm.core.plan.placement.protocols import Closure
from eslurm.core.plan.profile.search import PlacementQuery

SHIELDED_MAX: Final = 16
"""Late jobs whose places are shut to others at a time: those that come first."""

_Place = tuple[QueueEntry, Booking, int]


class LatePlaces:
    """Places of late jobs as closures for the jobs behind them; one for each cycle.

    A node is closed as a whole, whatever the late job uses of it: it is one of the few places where that job can still
    begin.
    """

    __slots__ = ("_masks", "_places", "_queries", "_schedule", "_version")

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._version = -1
        self._places: list[_Place] = []
        # By identity of the booking, which is kept with it.
        self._masks: dict[int, _Place] = {}
        # Queries stay alive: caches know them by identity.
        self._queries: dict[tuple[int, int, int], PlacementQuery] = {}

    def around(self, entry: QueueEntry, query: PlacementQuery) -> PlacementQuery:
        """The query without intervals that would, by the limit, run into places of late jobs ahead."""
        slack = self._schedule.slack
        if not slack.late or query.beyond_us <= 0:
            return query
        if self._version != slack.version:
            self._version, self._places = slack.version, self._found()
        before = [place for place in self._places if place[0].turn < entry.turn]
        if not before:
            return query
        # The places are in the order of the entries: how many of them come before says which.
        key = (id(query), self._version, len(before))
        known = self._queries.get(key)
        if known is None:
            shut = [
                Closure(one.start_us - query.beyond_us, one.stop_us, mask, f"job {one.job_id}")
                for _, one, mask in before
            ]
            closed = sorted((*query.closed, *shut), key=lambda closure: (closure.start_us, closure.stop_us))
            known = self._queries[key] = replace(query, closed=tuple(closed))
        return known

    def _found(self) -> list[_Place]:
        schedule = self._schedule
        topology = schedule.book.topology
        found: list[_Place] = []
        for entry in nsmallest(SHIELDED_MAX, schedule.slack.late.values()):
            for booking in schedule.bookings.get(entry.job_id, ()):
                known = self._masks.get(id(booking))
                if known is None:
                    mask = topology.mask_of_numbers(span.node for span in booking.spans)
                    known = self._masks[id(booking)] = entry, booking, mask
                found.append((entry, *known[1:]))
        return found
