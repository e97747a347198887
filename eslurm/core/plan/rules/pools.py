"""FreePools (C-15) and reservations (C-41): resources kept for some jobs and so closed to the others.

An amount that is kept free stays free beside all running jobs, privileged ones included: for a job that is not let in and
searches a place, the pool counts as used (uRS = sRS + FreePool, C-31). Its promised place is kept beside the others that
are not let in: a job that is let in later never delays it (C-59). Pools of nodes and reservations close these nodes while
they are in force. A job inside a reservation sees only its nodes and windows; pools of amounts do not apply to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from eslurm.core.model.accounts import UNLIMITED, Access, Amount, FreePool, Reservation
from eslurm.core.model.hostlist import unfold
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.placement.protocols import Closure
from eslurm.core.plan.rules.limits import Who, at_the_latest, earliest_below
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.timeline import INFINITY_US, Timeline
from eslurm.core.resources.usage import Steps, Used, amount_words
from eslurm.core.resources.windows import HORIZON_US, Windows, find_stay

CLOSURES_MAX = 64
"""Of one rule that recurs."""


def kept_items(amount: Amount, available: int) -> int:
    """Number of items that a pool keeps: the larger of the number and the share of the available ones, rounded up."""
    if amount.items == UNLIMITED and not amount.percent:
        return available
    return max(amount.items, math.ceil(available * amount.percent / 100 - 1e-7))


def is_let_in(ways: Iterable[Access], who: Who, items: int, duration_us: int) -> bool:
    """Check whether a job that asks for `items` of the pool's resource for `duration_us` may use it."""
    return any(_passes(way, who, items, duration_us) for way in ways)


def _passes(way: Access, who: Who, items: int, duration_us: int) -> bool:
    return (
        (not way.users or who.user in way.users)
        and (not way.groups or not set(way.groups).isdisjoint(who.groups))
        and (not way.accounts or who.account in way.accounts)
        and (not way.qos or who.qos in way.qos)
        and (not way.items_below or items < way.items_below)
        and (not way.time_below_s or duration_us < way.time_below_s * SECOND_US)
        and (not way.time_max_s or duration_us <= way.time_max_s * SECOND_US)
    )


def nodes_of(pool: FreePool, topology: Topology) -> int:
    """The positions of a pool of whole nodes; 0 for one that keeps an amount."""
    named = topology.mask_of_names(unfold(pool.nodes)) if pool.nodes else 0
    return named | (topology.mask_of_feature(pool.feature) if pool.feature else 0)


def is_of_nodes(pool: FreePool) -> bool:
    """Check whether the pool keeps whole nodes rather than an amount."""
    return bool(pool.nodes or pool.feature)


def may_use(reservation: Reservation, who: Who) -> bool:
    """Check whether a reservation admits a job: by user, group or account; open to all when none is named."""
    if not (reservation.users or reservation.groups or reservation.accounts):
        return True
    return (
        who.user in reservation.users
        or who.account in reservation.accounts
        or not set(reservation.groups).isdisjoint(who.groups)
    )


class KeptAmount:
    """A pool's amount, for a job that is not let in. `outside` is the use of all such jobs."""

    __slots__ = ("_available", "_beyond_us", "_outside", "_used", "_windows", "items", "pool")
    kind = "pool"

    def __init__(
        self,
        pool: FreePool,
        items: int,
        windows: Windows,
        used: Callable[[], Steps],
        available: Mapping[str, int],
        beyond_us: int = 0,
        outside: Used | None = None,
    ) -> None:
        self.pool = pool
        self._outside = outside
        self._beyond_us = beyond_us
        self.items = items
        self._windows = windows
        self._used = used
        self._available = available

    def earliest(self, duration_us: int, from_us: int, until_us: int) -> int | None:
        """See `Constraint`."""
        duration_us, until_us = at_the_latest(duration_us, until_us, self._beyond_us)
        available = self._available.get(self.pool.resource, 0)
        most = available - kept_items(self.pool.amount, available) - self.items
        return earliest_below(self._used(), self._windows, most, duration_us, from_us, until_us)

    def as_promised(self) -> KeptAmount:
        """The same for a promised place: jobs that were let in since use the pool's amount (C-59)."""
        outside = self._outside
        if outside is None:
            return self
        return KeptAmount(
            self.pool, self.items, self._windows, lambda: outside.steps, self._available, self._beyond_us
        )

    def why(self) -> str:
        """See `Constraint`."""
        resource = self.pool.resource
        available = self._available.get(resource, 0)
        kept = kept_items(self.pool.amount, available)
        return (
            f"pool {self.pool.name} keeps {amount_words(kept, resource)} of {available} free for others; "
            f"the rest is in use or too little for the {amount_words(self.items, resource)} asked for"
        )


class Inside:
    """The windows of the job's reservation: it runs within one of them."""

    __slots__ = ("_beyond_us", "_windows", "reservation")
    kind = "reservation"

    def __init__(self, reservation: Reservation, windows: Windows, beyond_us: int = 0) -> None:
        self.reservation = reservation
        self._windows = windows
        self._beyond_us = beyond_us

    def earliest(self, duration_us: int, from_us: int, until_us: int) -> int | None:
        """See `Constraint`."""
        duration_us, until_us = at_the_latest(duration_us, until_us, self._beyond_us)
        return find_stay(self._windows, duration_us, from_us, until_us)

    def end_us(self, at_us: int) -> int:
        """End of the window that is open at that instant; the instant itself where none is open."""
        window = self._windows.find(at_us, at_us + 1)
        return window[1] if window is not None else at_us

    def why(self) -> str:
        """See `Constraint`."""
        return f"reservation {self.reservation.name}: the job runs inside it, from its beginning to its end at most"


class Licence:
    """A cluster-wide resource."""

    __slots__ = ("_used", "items", "name")
    kind = "licence"

    def __init__(self, name: str, items: int, used: Callable[[], Timeline]) -> None:
        self.name = name
        self.items = items
        self._used = used

    def earliest(self, duration_us: int, from_us: int, until_us: int) -> int | None:
        """See `Constraint`."""
        return self._used().earliest_fit(self.items, duration_us, from_us, until_us)

    def why(self) -> str:
        """See `Constraint`."""
        total = self._used().available
        return f"{self.name}: {self.items} of {total} {'is' if self.items == 1 else 'are'} asked for, the rest is in use"


def closures(windows: Windows, mask: int, why: str, now_us: int) -> list[Closure]:
    """The closures of some positions. Beyond `CLOSURES_MAX` the last one stands for all later ones, so that no job is
    planned into an unknown one.
    """
    found: list[Closure] = []
    at_us = now_us
    while at_us < now_us + HORIZON_US:
        window = windows.find(at_us, now_us + HORIZON_US)
        if window is None:
            break
        if len(found) == CLOSURES_MAX:
            found[-1] = Closure(found[-1].start_us, INFINITY_US, mask, why)
            break
        found.append(Closure(max(window[0], now_us), window[1], mask, why))
        at_us = window[1]
    return found
