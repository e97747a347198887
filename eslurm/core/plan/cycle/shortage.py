"""Reasons why a job does not start in this cycle: missing resources, jobs in the way, late jobs.

Invariant: queries change neither the schedule nor the ledger. A shortage is determined once per cycle for all equal
requests, since free resources only shrink.
"""

from __future__ import annotations

from typing import Final

from eslurm.core.plan.cycle import reasons
from eslurm.core.plan.cycle.reasons import Why
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.placement.compiled_request import CompiledRequest
from eslurm.core.plan.placement.mapping import choose
from eslurm.core.plan.profile.search import RESOURCES, Move, PlacementQuery
from eslurm.core.resources.ledger import Ledger

NAMED_MAX: Final = 64
"""Number of planned jobs that are searched for the blocking one."""


class Reasons:
    """Belongs to one cycle; `ledger` and `schedule` are the cycle's own, and change with it."""

    __slots__ = ("_emptied", "_ledger", "_now_us", "_schedule", "_short")

    def __init__(self, ledger: Ledger, schedule: Schedule, now_us: int) -> None:
        self._ledger = ledger
        self._schedule = schedule
        self._now_us = now_us
        self._short: dict[tuple[int, int, int], Why] = {}
        self._emptied: Ledger | None = None

    def with_late(self, job_id: int, text: str) -> str:
        """The reason, with the job whose overrun moved the planned start, if any."""
        late_id = self._schedule.slack.by.get(job_id)
        return text if late_id is None else f"{text}; job {late_id} runs longer than expected"

    def why_waiting(self, query: PlacementQuery, moves: tuple[Move, ...], start_us: int | None) -> Why:
        """Reason of a job with a plan: the rule that moved it last, or missing resources."""
        last = moves[-1] if moves else None
        if last is not None and last.kind != RESOURCES:
            return Why(reasons.kind_of(last.kind), last.text, start_us)
        key = (id(query.need), id(query.closed), query.duration_us if query.closed else 0)
        known = self._short.get(key)
        if known is None:
            known = self._short[key] = self.short_now(query)
        return Why(known.kind, known.text, start_us)

    def why_not_now(self, query: PlacementQuery, moves: tuple[Move, ...]) -> Why:
        """Reason against a start at this instant: the first rule that moved it, or missing resources."""
        for move in moves:
            if move.kind != RESOURCES:
                return Why(reasons.kind_of(move.kind), move.text)
        if not moves:
            return reasons.too_late(query, self._now_us)
        return self.short_now(query)

    def short_now(self, query: PlacementQuery) -> Why:
        """Nodes are closed to the job, promised to others, out of service, or have too little free."""
        need = query.need
        book = self._schedule.book
        if query.closed and book.fits_at(need, self._now_us, query.duration_us) is not None:
            return reasons.closed(query, self._now_us)
        if choose(self._ledger, need) is not None:
            return reasons.would_delay(self._in_the_way(need))
        if choose(self.emptied(), need) is None:
            return reasons.nodes_unavailable(need, self._ledger)
        return reasons.short_of_resources(need, self._ledger)

    def emptied(self) -> Ledger:
        """The usable nodes with nothing held: the upper bound of free resources."""
        if self._emptied is None:
            self._emptied = self._ledger.emptied()
        return self._emptied

    def _in_the_way(self, need: CompiledRequest) -> int:
        """The job with the next planned start on these nodes; 0: too many to tell."""
        if len(self._schedule.bookings) > NAMED_MAX:
            return 0
        positions = self._ledger.topology.positions
        planned = [booking for bookings in self._schedule.bookings.values() for booking in bookings]
        for booking in sorted(planned, key=lambda one: (one.start_us, one.job_id)):
            if any(need.allowed >> positions[span.node] & 1 for span in booking.spans):
                return booking.job_id
        return 0
