"""The rules once more, as plainly as they can be written: what may not be true of jobs that run.

Nothing here is shared with the planner but the records. Only what is certain is asked: limits on items that are in force
now, and nodes that are closed at some time of a stay. Invariant: `held` is what runs, as the loop has started it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from eslurm.core.model.accounts import EVERYONE, Account, Limit, Policy, Reservation, Validity
from eslurm.core.model.placement import Placement
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import CORES
from eslurm.core.resources.windows import Calendar
from eslurm.lab.workloads.machine import Machine

NODES = "nodes"
LOOKOUT_US = 400 * 86_400 * 1_000_000
"""So far ahead a stay without an end is held against reservations."""


class Who(msgspec.Struct, frozen=True, gc=False):
    """A job's owner; the primary group first."""

    user: str
    groups: tuple[str, ...]
    account: str
    qos: str
    partition: str


class Held(msgspec.Struct, gc=False):
    """One job's holdings. A suspended job may exceed a limit when it resumes: others took its place."""

    who: Who
    placement: Placement
    safe_us: int
    """Time until which plans rely on it."""
    is_paused: bool = False
    was_paused: bool = False


class Watch:
    """Told of all that starts and ends; says what is wrong, "" if nothing is."""

    def __init__(
        self, machine: Machine, policies: Mapping[str, Mapping[str, Policy]], calendar: Calendar
    ) -> None:
        self._calendar = calendar
        self._limits = [one for one in policies["limit"].values() if isinstance(one, Limit)]
        self._accounts = {name: one for name, one in policies["account"].items() if isinstance(one, Account)}
        self._reservations = [one for one in policies["reservation"].values() if isinstance(one, Reservation)]
        topology = machine.topology
        self._names = dict(zip(topology.numbers, topology.names, strict=True))
        self._own, self._wide = tuple(topology.resources), tuple(topology.wide)
        self._there = {
            name: sum(total[at] for total in topology.totals if at < len(total))
            for at, name in enumerate(self._own)
        }
        self._there[NODES] = len(topology.totals)
        self._there.update(zip(topology.wide, topology.wide_totals, strict=True))
        self._recurring = [one for one in self._limits if one.validity != Validity()]
        # Which of them were in force when they were asked last.
        self._open: list[bool] = []
        self._held: dict[int, Held] = {}

    def start(self, who: Who, placement: Placement, now_us: int, expected_us: int) -> str:
        """A job begins; it is thought to have ended at `expected_us`."""
        self._held[placement.job_id] = Held(who, placement, expected_us)
        return self._closed(placement, now_us) or self._over(
            who, set(self._columns_of(placement)), list(self._held.values()), now_us
        )

    def leave(self, job_id: int) -> None:
        """It has ended."""
        del self._held[job_id]

    def pause(self, job_id: int, *, resumed: bool = False) -> None:
        """It stands still, or goes on."""
        held = self._held[job_id]
        held.is_paused, held.was_paused = not resumed, True

    def at(self, now_us: int) -> str:
        """Check limits that may have come into force: running jobs are within them, but for unexpected ones."""
        before, self._open = self._open, [self._is_open(one, now_us) for one in self._recurring]
        if self._open == before:
            return ""
        sure = [one for one in self._held.values() if one.safe_us > now_us and not one.was_paused]
        for who in dict.fromkeys(one.who for one in sure):
            wrong = self._over(who, set(self._there), sure, now_us)
            if wrong:
                return wrong
        return ""

    # ---- limits ----

    def _over(self, who: Who, resources: set[str], held: list[Held], now_us: int) -> str:
        for kind, name, is_own in self._memberships(who):
            for resource in sorted(resources):
                for limit in self._in_force(kind, name, resource, is_own=is_own, now_us=now_us):
                    most = self._most(limit, resource)
                    if most is None:
                        continue
                    # A limit for each account, or group, looks at what is that one's own.
                    theirs = [
                        one
                        for one in held
                        if any(
                            (k, n) == (kind, name) and (own or limit.consumer != EVERYONE)
                            for k, n, own in self._memberships(one.who)
                        )
                    ]
                    used = sum(self._used(one, resource) for one in theirs)
                    if used > most:
                        return f"limit {limit.name}: {kind} {name} uses {used} {resource}, {most} are allowed"
        return ""

    def _memberships(self, who: Who) -> Iterator[tuple[str, str, bool]]:
        """(kind, name, whether limits for "each" count): a primary group, an own account."""
        yield "user", who.user, True
        for at, group in enumerate(who.groups):
            yield "group", group, at == 0
        name, is_own = who.account, True
        while name:
            yield "account", name, is_own
            above = self._accounts.get(name)
            name, is_own = above.parent if above is not None else "", False
        if who.qos:
            yield "qos", who.qos, True
        yield "partition", who.partition, True

    def _in_force(self, kind: str, name: str, resource: str, *, is_own: bool, now_us: int) -> list[Limit]:
        """Of the limits in force now the most specific: a name before each, a resource before all (C-12)."""
        words = (resource,) if resource == NODES else (resource, EVERYONE)
        for consumer in (name, EVERYONE) if is_own else (name,):
            for word in words:
                found = [
                    limit
                    for limit in self._limits
                    if (limit.kind, limit.consumer, limit.resource) == (kind, consumer, word)
                    and self._is_open(limit, now_us)
                ]
                if found:
                    return found
        return []

    def _is_open(self, limit: Limit, now_us: int) -> bool:
        return bool(self._calendar.windows(limit.validity, now_us, now_us + 1))

    def _most(self, limit: Limit, resource: str) -> int | None:
        amount = limit.amount
        if amount.percent:
            # The tenth of a millionth forgives what a share loses in binary.
            return max(amount.items, int(self._there[resource] * amount.percent / 100 + 1e-7))
        return None if amount.items < 0 else amount.items

    def _columns_of(self, placement: Placement) -> Iterator[str]:
        return (name for name in self._there if self._items(placement, name))

    def _used(self, one: Held, resource: str) -> int:
        """The job's use of a resource; a suspended one lends its cores."""
        lends = one.is_paused and resource == self._own[CORES]
        return 0 if lends else self._items(one.placement, resource)

    def _items(self, placement: Placement, resource: str) -> int:
        if resource == NODES:
            return len(placement.spans)
        if resource in self._wide:
            at = self._wide.index(resource)
            return placement.wide[at] if at < len(placement.wide) else 0
        at = self._own.index(resource)
        return sum(span.amounts[at] for span in placement.spans if at < len(span.amounts))

    # ---- nodes that are closed ----

    def _closed(self, placement: Placement, now_us: int) -> str:
        names = {self._names[span.node] for span in placement.spans}
        until_us = min(placement.until_us, now_us + LOOKOUT_US, INFINITY_US)
        for reservation in self._reservations:
            if names.isdisjoint(reservation.nodes):
                continue
            windows = self._calendar.windows(reservation.validity, now_us, until_us)
            if windows:
                return f"reservation {reservation.name} has one of its nodes from {windows[0][0]} us on"
        return ""
