"""`tickets`: late binding with notification (S-19, S-20): a job that finds too few free nodes queues for them in pools.

A search claims as `joint` does. After `TRIES` failures it reads some pools, divides the nodes that it needs among them, free
ones first, and enters a ticket in each, in one transaction. Their lenders keep freed nodes for the tickets in their order;
the search watches these pools, asks nothing, and makes all its tickets claims in one transaction when all are ready. Where
nodes wait for that longer than `READY_US`, the lender sets the ticket aside, at most `PASSES_MAX` times (`patience`).

Progress: while a ticket waits, its pool offers nothing, so no claim passes it, and a ticket of a lower order also gets what
those of higher orders hold. Few have a lower order, since it begins with a revision of the store; a ticket is set aside few
times, and running jobs end. So the ticket of the lowest order is filled in every pool that has enough nodes; then all
tickets of its job are ready and stay so until it has made them claims, and another one is the lowest. A job of which a pool
has lost the ticket, or too many nodes to fill it ever, leaves all queues and chooses anew with its old order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from eslurm.core.federation import pools
from eslurm.core.federation.strategies.interface import (
    MS,
    POOLS_MAX,
    Asking,
    Convert,
    Done,
    Draw,
    Enqueue,
    Later,
    Leave,
    Look,
    Need,
    PoolSeen,
    Search,
    Step,
)
from eslurm.core.federation.strategies.joint import Joint, JointSearch

TRIES: Final = 3
"""Failures before tickets are entered."""
QUEUES: Final = 4
"""Pools among which nodes that are not free yet are divided where they can be."""
RECHECK_US: Final = 10_000 * MS
"""A watch brings each change of a pool; nothing depends on this."""


class Tickets(Joint):
    """Knows every pool as it was last seen."""

    name = "tickets"

    def begin(self, need: Need) -> Search:
        """See `Strategy`."""
        return TicketSearch(need, self)


class TicketSearch(JointSearch):
    """A job that claims all its nodes at once, or queues for them."""

    def __init__(self, need: Need, known: Joint) -> None:
        super().__init__(need, known)
        # Pools that were read for tickets, and those in which tickets are.
        self._read: dict[int, None] = {known.own: None}
        self._queues: tuple[int, ...] = ()

    def choose(self, now_us: int, draw: Draw) -> Step:
        """See `Search`."""
        if self._held:
            return Done()
        if self._queues:
            return self._wait(now_us)
        if self._failures < TRIES:
            return super().choose(now_us, draw)
        if self._must_pause:
            return self._pause(now_us, draw)
        if now_us < self._pause_until_us:
            return Later(self._pause_until_us)
        known = [self._known.pools[cell] for cell in self._read if cell in self._known.pools]
        parts = divide(self._need, known) if len(self._read) > 1 or not self._looks_next else None
        if parts is not None:
            return Enqueue(tuple((self._known.pools[cell], count) for cell, count in parts.items()))
        cells = self._known.random_cells(draw) if self._looks_next else ()
        self._looks_next = not self._looks_next
        if cells:
            return Look(cells)
        self._failures += 1
        return self._pause(now_us, draw)

    def answered(self, step: Asking, done: bool, seen: Sequence[PoolSeen], now_us: int) -> None:
        """See `Search`."""
        super().answered(step, done, seen, now_us)
        match step:
            case Look(cells):
                self._read.update(dict.fromkeys(cells))
            case Enqueue(parts) if done:
                self._queues = tuple(one.cell for one, _ in parts)
            case Enqueue():
                self._failures += 1
                self._must_pause = True
            case Convert() if done:
                self._held = self._need.nodes
            case Leave() if done:
                self._queues = ()

    # ---- within ----

    def _wait(self, now_us: int) -> Step:
        known = [self._known.pools[cell] for cell in self._queues]
        tickets = [pools.find_ticket(one.pool, self._need.order) if one.pool else None for one in known]
        if all(ticket is not None and pools.is_ready(ticket) for ticket in tickets):
            return Convert(tuple(known))
        for one, ticket in zip(known, tickets, strict=True):
            if ticket is None or one.pool is None or pools.room(one.pool, ticket.kind) < ticket.wanted:
                return Leave(tuple(known))
        return Later(now_us + RECHECK_US, wakes=True)


def divide(need: Need, known: Iterable[PoolSeen]) -> dict[int, int] | None:
    """So many nodes of each pool, free ones first, the rest where fewest wait; None: these pools have too few nodes."""
    rooms = {one.cell: pools.room(one.pool, need.kind) for one in known if one.pool is not None}
    seen = [one for one in known if rooms.get(one.cell)]
    seen.sort(key=lambda one: (one.cell != need.own, -one.free(need.kind), one.cell))
    parts: dict[int, int] = {}
    missing = need.nodes
    for one in seen[: POOLS_MAX - QUEUES]:
        parts[one.cell] = min(missing, one.free(need.kind))
        missing -= parts[one.cell]
    parts = {cell: count for cell, count in parts.items() if count}
    if missing:
        share = -(-missing // QUEUES)
        seen.sort(
            key=lambda one: (_waiting(one, need.kind) - rooms[one.cell] + parts.get(one.cell, 0), one.cell)
        )
        for most in (share, missing):
            for one in seen:
                before = parts.get(one.cell, 0)
                more = min(missing, most, rooms[one.cell] - before)
                if more and (before or len(parts) < POOLS_MAX):
                    parts[one.cell] = before + more
                    missing -= more
    return None if missing else parts


def _waiting(seen: PoolSeen, kind: int) -> int:
    """Nodes for which tickets are there."""
    return sum(one.wanted for one in seen.pool.claims if one.kind == kind) if seen.pool is not None else 0
