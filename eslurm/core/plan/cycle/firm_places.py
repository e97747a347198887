"""Places of packs' members, firm by limits: what a delay promises does not depend on forecasts (ADR 14).

Plans reserve room for expected runtimes, and a job may run on to its limit. So a member that begins after its pack does is
planned on no node whose jobs may still be there by their limits, and no job that could by its limit run into such a place is
planned before it. A node is closed as a whole. Without forecasts nothing of this is asked. Invariant: closures are never
shorter than the time they stand for; where there are many, those alike are joined and reach a little farther.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from msgspec.structs import replace

from eslurm.core.plan.cycle.schedule import Booking, Schedule
from eslurm.core.plan.placement.protocols import Closure
from eslurm.core.plan.profile.search import PlacementQuery
from eslurm.core.resources.timeline import INFINITY_US

GROUPS_MAX: Final = 256
"""Closures for what may run on to its limit; with more of them their times are rounded more."""
BOOKINGS_PER_SLICE: Final = 256

_Stay = tuple[int, int]


class FirmPlaces:
    """The firm places of a schedule, and the overruns that are possible by limits; one for each cycle."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        # By owner: a waiting job, or the negated number of a running or beginning attempt.
        self._overruns: dict[int, list[tuple[_Stay, int]]] = {}
        self._firm: dict[int, list[tuple[_Stay, int]]] = {}
        self._begun = 0
        self._grain_us = 1
        self._firm_version = self._overruns_version = 0
        # Closures of overruns as of a version.
        self._shut: tuple[int, list[Closure]] = -1, []
        # By identity of the booking, which is kept with it.
        self._masks: dict[int, tuple[Booking, int]] = {}
        # Queries stay alive: caches know them by identity.
        self._queries: dict[tuple[int, ...], tuple[PlacementQuery, PlacementQuery]] = {}

    def prepare(self) -> Generator[None, None, None]:
        """Read what is held and booked, in slices; later changes of plans are followed."""
        schedule = self._schedule
        schedule.noted = set()
        for number, held in enumerate(list(schedule.held.values()), 1):
            self._note(-number, (held.booking,))
            if number % BOOKINGS_PER_SLICE == 0:
                yield
        self._begun = -len(schedule.held)
        for number, job_id in enumerate(list(schedule.bookings), 1):
            self._follow(job_id)
            if number % BOOKINGS_PER_SLICE == 0:
                yield

    def around(self, query: PlacementQuery) -> PlacementQuery:
        """The query of a job that could run on to its limit, without times in which that would reach a firm place."""
        self._catch_up()
        if not self._firm or query.beyond_us <= 0:
            return query
        known = self._queries.get((id(query), 0, self._firm_version))
        if known is not None:
            return known[1]
        by_stay: dict[_Stay, int] = {}
        for places in self._firm.values():
            for stay, mask in places:
                by_stay[stay] = by_stay.get(stay, 0) | mask
        why = "a job whose pack has to keep its delays"
        return self._with(
            query,
            (0, self._firm_version),
            [Closure(stay[0] - query.beyond_us, stay[1], mask, why) for stay, mask in by_stay.items()],
        )

    def clear(self, query: PlacementQuery) -> PlacementQuery:
        """The query of a member that begins at its delay, without nodes whose jobs may by their limits still be there."""
        self._catch_up()
        if not self._overruns:
            return query
        if self._shut[0] != self._overruns_version:
            self._shut = self._overruns_version, self._joined()
        return self._with(query, (1, self._overruns_version), self._shut[1])

    def _with(self, query: PlacementQuery, version: tuple[int, int], shut: list[Closure]) -> PlacementQuery:
        key = (id(query), *version)
        known = self._queries.get(key)
        if known is None:
            closed = sorted((*query.closed, *shut), key=lambda closure: (closure.start_us, closure.stop_us))
            known = self._queries[key] = query, replace(query, closed=tuple(closed))
        return known[1]

    def _joined(self) -> list[Closure]:
        while True:
            groups: dict[_Stay, int] = {}
            grain_us = self._grain_us
            for places in self._overruns.values():
                if len(groups) > GROUPS_MAX:
                    break
                for (start_us, stop_us), mask in places:
                    stay = (
                        start_us - start_us % grain_us,
                        min(-(-stop_us // grain_us) * grain_us, INFINITY_US),
                    )
                    groups[stay] = groups.get(stay, 0) | mask
            if len(groups) <= GROUPS_MAX:
                why = "jobs that may run on to their limits"
                return [Closure(*stay, mask, why) for stay, mask in groups.items()]
            self._grain_us *= 4

    def _catch_up(self) -> None:
        schedule = self._schedule
        if schedule.noted:
            for job_id in schedule.noted:
                self._follow(job_id)
            schedule.noted.clear()
        known = -self._begun - len(schedule.held)
        for _, booking in schedule.starting[known:]:
            self._begun -= 1
            self._note(self._begun, (booking,))

    def _follow(self, job_id: int) -> None:
        """Follow the plan of a waiting job: of a pack, the places of members that begin later are firm."""
        bookings = self._schedule.bookings.get(job_id, ())
        self._note(job_id, bookings)
        entry = self._schedule.entries.get(job_id)
        if entry is None or not (entry.job.followers or entry.job.is_owed):
            if self._firm.pop(job_id, None) is not None:
                self._firm_version += 1
            return
        first_us = 0 if entry.job.is_owed else bookings[0].start_us
        later = [one for one in bookings if one.start_us > first_us]
        self._firm[job_id] = [((one.start_us, one.stop_us), self._mask(one)) for one in later]
        self._firm_version += 1

    def _note(self, owner: int, bookings: tuple[Booking, ...]) -> None:
        found = [
            ((one.stop_us, one.until_us), self._mask(one)) for one in bookings if one.until_us > one.stop_us
        ]
        if found:
            self._overruns[owner] = found
            self._overruns_version += 1
        elif self._overruns.pop(owner, None) is not None:
            self._overruns_version += 1

    def _mask(self, booking: Booking) -> int:
        known = self._masks.get(id(booking))
        if known is None:
            topology = self._schedule.book.topology
            mask = topology.mask_of_numbers(span.node for span in booking.spans)
            known = self._masks[id(booking)] = booking, mask
        return known[1]
