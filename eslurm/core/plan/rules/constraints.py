"""The rules of policies for one job: limits, FreePools, reservations, licences, as constraints and closures.

`Rules` is made from the policies in force and keeps each consumer's running and planned use (usdRS, C-36). It is rebuilt
when policies, configuration or profile change; `of` is cheap, since equal jobs of the same owner share a `JobRules`.
Invariant: a consumer's use is the sum of its jobs' bookings that were not revoked. A job of several parts counts as a whole,
and for each of its partitions with the parts there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from eslurm.core.model.accounts import Account, FreePool, Limit, Policy, Reservation
from eslurm.core.plan.placement.compiled_request import CompiledRequest
from eslurm.core.plan.placement.protocols import Assignment, Closure, Constraint, JointAssignment
from eslurm.core.plan.rules.job_amounts import JobAmounts, Split, partitions_of
from eslurm.core.plan.rules.limits import (
    NODES,
    Area,
    Ask,
    Consumer,
    Duration,
    Items,
    Level,
    LimitIndex,
    Who,
    effective,
    never_by,
)
from eslurm.core.plan.rules.pools import (
    Inside,
    KeptAmount,
    Licence,
    closures,
    is_let_in,
    is_of_nodes,
    kept_items,
    may_use,
    nodes_of,
)
from eslurm.core.plan.rules.protocols import Booked, Future, Job
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.timeline import INFINITY_US, Timeline
from eslurm.core.resources.usage import Steps, Used, amount_words, steps_of
from eslurm.core.resources.vector import Vector, scale
from eslurm.core.resources.windows import DAY_US, HORIZON_US, Calendar, DatesOnly, Windows, covers_all

Policies: TypeAlias = Mapping[str, Mapping[str, Policy]]
REMEMBERED_MAX: Final = 20_000


class JobRules(msgspec.Struct, frozen=True):
    """The rules for a job and all jobs like it.

    `closed` are nodes that it cannot have for a time, `within` the positions it must keep to (-1: all). It must lie in
    [from_us, until_us); the constraints give the exact time. `never` is the reason why today's rules forbid it altogether,
    "" if they do not. `asked` are its amounts, by column: resources of nodes, number of nodes, cluster-wide ones.

    All of it applies to the expected interval (ADR 14): `until_us` and the begins in `closed` are earlier by the
    difference to the limit, and constraints on the limit add it themselves.
    """

    constraints: tuple[Constraint, ...] = ()
    closed: tuple[Closure, ...] = ()
    within: int = -1
    from_us: int = 0
    until_us: int = INFINITY_US
    never: str = ""
    asked: Vector = ()


_P = TypeVar("_P", bound=Policy)
_Name: TypeAlias = tuple[object, ...]
_Charge: TypeAlias = tuple[int, Used, bool, str]
"""(column, whose use, whether it counts until the latest end, the partition of which it counts the parts, "": all)."""


class Rules:
    """The policies of a cluster, and the use by consumers. `future` is the profile on which they are planned."""

    def __init__(
        self,
        policies: Policies,
        topology: Topology,
        future: Future,
        *,
        now_us: int,
        calendar: Calendar | None = None,
        usable: int | None = None,
    ) -> None:
        self._calendar = calendar if calendar is not None else DatesOnly()
        self._topology = topology
        self._future = future
        self._now_us = now_us
        self._policies = policies
        self._columns = (*topology.resources, NODES, *topology.wide)
        self._index = LimitIndex(_of_kind(policies, "limit", Limit), _named(policies, "account", Account))
        self._pools = tuple(_of_kind(policies, "pool", FreePool))
        self._reservations = _named(policies, "reservation", Reservation)
        self._windows: dict[str, Windows] = {}
        self._used: dict[tuple[Consumer, str, bool], Used] = {}
        self._charges: dict[_Name, tuple[_Charge, ...]] = {}
        self._known: dict[tuple[object, ...], JobRules] = {}
        self._shared: dict[frozenset[str], tuple[Closure, ...]] = {}
        self._shifted: dict[tuple[int, int], tuple[tuple[Closure, ...], tuple[Closure, ...]]] = {}
        # The use of all jobs that a pool of an amount does not let in.
        self._outside = {
            pool.name: Used(now_us)
            for pool in self._pools
            if not is_of_nodes(pool) and pool.resource in self._columns and pool.resource != NODES
        }
        self._renew_us = now_us + DAY_US
        self._best = self._totals(topology.everything)
        self._available = dict(self._best)
        self._lines: dict[int, Timeline] = {}
        self._amounts = JobAmounts(topology)
        self.set_usable(topology.usable if usable is None else usable)

    # ---- asking ----

    def of(self, job: Job, need: CompiledRequest) -> JobRules:
        """The rules for a job, by its expected amounts."""
        amounts = self._amounts
        return self._of(
            job, amounts.expected(need), amounts.expected_split(job, need) if need.members else ()
        )

    def of_tasks(self, job: Job, need: CompiledRequest, tasks: int) -> JobRules:
        """The rules for this many tasks of an array that start together; each counts its node, shared or not."""
        return self._of(job, scale(self._amounts.expected(need), tasks), ())

    def recount(self, job: Job, need: CompiledRequest, chosen: Assignment) -> tuple[Constraint, ...]:
        """The constraints for an assignment; empty when it takes no more than expected.

        The number of nodes, and the amounts of exclusive nodes, are unknown before.
        """
        expected = self._amounts.expected(need)
        asked = self._amounts.assigned(need, chosen, expected)
        if isinstance(chosen, JointAssignment):
            before = self._amounts.expected_split(job, need)
            split = self._amounts.assigned_split(job, need, chosen, before)
            return () if (asked, split) == (expected, before) else self._of(job, asked, split).constraints
        return () if asked == expected else self._of(job, asked, ()).constraints

    def _of(self, job: Job, asked: Vector, split: Split) -> JobRules:
        key = (*_name(job), job.reservation, job.time_limit_us, job.beyond_us, asked, split)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            known = self._known[key] = self._made(job, asked, split)
        return known

    # ---- what changes ----

    def book(self, job: Job, booking: Booked) -> None:
        """Count a booking for the job's consumers (C-36)."""
        for used, items, stop_us in self._uses(job, booking):
            used.book(booking.start_us, stop_us, items)

    def revoke(self, job: Job, booking: Booked) -> None:
        """The inverse of `book`."""
        for used, items, stop_us in self._uses(job, booking):
            used.revoke(booking.start_us, stop_us, items)

    def set_usable(self, usable: int, held: Vector = ()) -> None:
        """Set the positions in service: their amounts are available.

        `held` is in use on the others now: it is in the profile's use, and so must count as available.
        """
        self._available.update(self._totals(usable))
        for column, items in enumerate(held):
            self._available[self._columns[column]] += items

    def advance(self, now_us: int) -> None:
        """Let time pass, and extend the horizon of recurring windows."""
        self._now_us = now_us
        self._lines.clear()
        for used in (*self._used.values(), *self._outside.values()):
            used.advance(now_us)
        if now_us >= self._renew_us:
            self._renew_us = now_us + DAY_US
            for windows in self._windows.values():
                windows.advance(now_us)
            self._known.clear()
            self._shared.clear()
            self._shifted.clear()

    def rest_on(self, future: Future) -> None:
        """Add the total usage of all jobs to what is recorded."""
        self._future = future
        self._lines.clear()

    def copy(self, future: Future) -> Rules:
        """The same rules over a copy of the profile, for what-if questions."""
        other = Rules(self._policies, self._topology, future, now_us=self._now_us, calendar=self._calendar)
        other._available = dict(self._available)
        other._windows = self._windows
        other._shared = self._shared
        other._used = {key: used.copy() for key, used in self._used.items()}
        other._outside = {name: used.copy() for name, used in self._outside.items()}
        return other

    # ---- inside ----

    def _made(self, job: Job, asked: Vector, split: Split) -> JobRules:
        duration_us = job.time_limit_us or INFINITY_US
        found: list[Constraint] = []
        never = self._bind(job, asked, split, duration_us, found)
        within, from_us, until_us = -1, 0, INFINITY_US
        if job.reservation:
            reservation = self._reservations.get(job.reservation)
            problem = self._locked(job, reservation)
            never = never or problem
            if reservation is not None and not problem:
                windows = self._when(reservation)
                found.append(Inside(reservation, windows, job.beyond_us))
                within = self._topology.mask_of_names(reservation.nodes)
                from_us = max(reservation.validity.from_us, 0)
                if reservation.validity.until_us:
                    until_us = reservation.validity.until_us - job.beyond_us
        else:
            never = self._keep_free(job, asked, duration_us, found) or never
        found += [
            Licence(self._columns[column], asked[column], self._line(column))
            for column in range(len(self._topology.resources) + 1, len(self._columns))
            if asked[column]
        ]
        closed = self._closed(job, asked, duration_us)
        if job.beyond_us:
            closed = self._sooner(closed, job.beyond_us)
        return JobRules(tuple(found), closed, within, from_us, until_us, never, asked)

    def _bind(self, job: Job, asked: Vector, split: Split, duration_us: int, found: list[Constraint]) -> str:
        """Add the constraints of limits; returns the reason why one of them can never be kept, or ""."""
        never = ""
        by_partition = dict(split)
        for consumer, partition in self._consumers(job):
            for resource, items in zip(self._columns, by_partition.get(partition, asked), strict=True):
                if not items:
                    continue
                ask = Ask(resource, items, consumer)
                refusing: dict[str, Windows] = {}
                for limit, windows in self._effective(consumer, resource, job):
                    text = never_by(limit, ask, duration_us, self._best)
                    if text:
                        refusing[text] = windows
                    self._constrain(limit, ask, windows, (duration_us, job.beyond_us), found)
                if refusing and not never and covers_all(refusing.values(), self._now_us):
                    # The broadest of them is the one that would let most through.
                    never = list(refusing)[-1]
        return never

    def _constrain(
        self, limit: Limit, ask: Ask, windows: Windows, length_us: tuple[int, int], found: list[Constraint]
    ) -> None:
        duration_us, beyond_us = length_us
        if limit.amount.items >= 0 or limit.amount.percent:
            # Together jobs use what they are expected to; alone none outlives its estimate into a window too small for it.
            found.append(Items(limit, ask, self._use(ask), windows, self._available))
            if beyond_us and not windows.is_always:
                found.append(Items(limit, ask, Used(), windows, self._available, beyond_us))
        if limit.duration_s:
            found.append(Duration(limit, ask, windows, duration_us, beyond_us))
        if limit.area_s:
            # A budget: what may be spent is spent.
            found.append(Area(limit, ask, self._use(ask, at_most=True), windows, beyond_us))

    def _effective(self, consumer: Consumer, resource: str, who: Who) -> list[tuple[Limit, Windows]]:
        levels = self._index.levels(consumer, resource, who)
        windows = {limit.name: self._when(limit) for level in levels for limit in level}
        return effective(levels, windows)

    def _keep_free(self, job: Job, asked: Vector, duration_us: int, found: list[Constraint]) -> str:
        """Add the constraints of pools that exclude the job; returns the reason why one can never be kept, or ""."""
        never = ""
        for pool in self._pools:
            outside = self._outside.get(pool.name)
            if outside is None:
                continue
            column = self._columns.index(pool.resource)
            items = asked[column]
            windows = self._when(pool)
            if not items or windows.is_never or is_let_in(pool.access, job, items, duration_us):
                continue
            best = self._best[pool.resource]
            left = best - kept_items(pool.amount, best)
            if windows.is_always and items > left:
                never = never or (
                    f"pool {pool.name} keeps {amount_words(kept_items(pool.amount, best), pool.resource)} of {best} "
                    f"free for others, {items} {'is' if items == 1 else 'are'} asked for: ask for at most {left}"
                )
            found.append(
                KeptAmount(pool, items, windows, self._steps(column), self._available, outside=outside)
            )
            if job.beyond_us and not windows.is_always:
                found.append(KeptAmount(pool, items, windows, _nothing_used, self._available, job.beyond_us))
        return never

    def _closed(self, job: Job, asked: Vector, duration_us: int) -> tuple[Closure, ...]:
        against = {
            f"reservation {name}"
            for name, reservation in self._reservations.items()
            if reservation.maintenance or name != job.reservation
        }
        # A reservation is a system of its own: what is kept free outside is not its matter.
        for pool in self._pools if not job.reservation else ():
            if is_of_nodes(pool):
                column = self._columns.index(pool.resource) if pool.resource in self._columns else 0
                if not is_let_in(pool.access, job, asked[column], duration_us):
                    against.add(f"pool {pool.name}")
        key = frozenset(against)
        known = self._shared.get(key)
        if known is None:
            known = self._shared[key] = tuple(self._closures(key))
        return known

    def _sooner(self, closed: tuple[Closure, ...], beyond_us: int) -> tuple[Closure, ...]:
        """The same closures for expected intervals that are not as long as the limit; one object for all such jobs.

        A closure that is shorter than what an interval is longer keeps its last instant: no job begins in it.
        """
        key = (id(closed), beyond_us)
        known = self._shifted.get(key)
        if known is None or known[0] is not closed:
            if len(self._shifted) >= REMEMBERED_MAX:
                self._shifted.clear()
            moved = tuple(
                [replace(one, start_us=min(one.start_us - beyond_us, one.stop_us - 1)) for one in closed]
            )
            known = self._shifted[key] = closed, moved
        return known[1]

    def _closures(self, names: frozenset[str]) -> list[Closure]:
        found: list[Closure] = []
        for reservation in self._reservations.values():
            why = f"reservation {reservation.name}"
            if why in names:
                mask = self._topology.mask_of_names(reservation.nodes)
                text = f"{why} (maintenance)" if reservation.maintenance else why
                found += self._told(self._when(reservation), mask, text)
        for pool in self._pools:
            if f"pool {pool.name}" in names:
                mask = nodes_of(pool, self._topology)
                found += self._told(self._when(pool), mask, f"pool {pool.name}")
        return sorted(found, key=lambda closure: (closure.start_us, closure.stop_us))

    def _told(self, windows: Windows, mask: int, why: str) -> list[Closure]:
        """The closures of a rule; renewed before half of the time up to the merged rest has passed."""
        found = closures(windows, mask, why, self._now_us)
        if windows.recurs and found and found[-1].stop_us == INFINITY_US:
            self._renew_us = min(self._renew_us, (self._now_us + found[-1].start_us) // 2)
        return found

    def _locked(self, job: Job, reservation: Reservation | None) -> str:
        """The reason why a job can never run inside its reservation; "" when it can."""
        if reservation is None:
            return f"--reservation: {job.reservation} does not exist (any more): see esctl reservation show"
        if reservation.maintenance:
            return f"--reservation: {reservation.name} is for maintenance: no job runs in it"
        if not may_use(reservation, job):
            return (
                f"--reservation: {reservation.name} is not open to user {job.user}: ask its owner to add you"
            )
        if self._when(reservation).find(self._now_us, self._now_us + HORIZON_US) is None:
            return f"--reservation: {reservation.name} has ended: leave the option out"
        return ""

    def _when(self, policy: Limit | FreePool | Reservation) -> Windows:
        key = f"{type(policy).__name__} {policy.name}"
        known = self._windows.get(key)
        if known is None:
            known = self._windows[key] = Windows.of(self._calendar, policy.validity, self._now_us)
        return known

    def _uses(self, job: Job, booking: Booked) -> list[tuple[Used, int, int]]:
        """The uses that a changed booking affects: (use, items, end); the profile's has changed as well."""
        self._lines.clear()
        charges = self._charged(job)
        if not charges and not self._outside:
            return []
        amounts = self._amounts.booked(booking)
        by_partition = self._amounts.booked_split(job, booking) if job.parts else {}
        found = [
            (used, items, booking.until_us if at_most else booking.stop_us)
            for column, used, at_most, partition in charges
            if (items := (by_partition[partition] if partition else amounts)[column])
        ]
        if self._outside and not job.reservation:
            found += self._used_outside(job, booking, amounts)
        return found

    def _used_outside(self, job: Job, booking: Booked, amounts: Vector) -> Iterator[tuple[Used, int, int]]:
        """The same for the pools that exclude the job."""
        for pool in self._pools:
            outside = self._outside.get(pool.name)
            items = amounts[self._columns.index(pool.resource)] if outside is not None else 0
            each = items // booking.tasks
            duration_us = job.time_limit_us or INFINITY_US
            if outside is not None and items and not is_let_in(pool.access, job, each, duration_us):
                yield outside, items, booking.stop_us

    def _charged(self, job: Job) -> tuple[_Charge, ...]:
        """The uses of a job's bookings: of each consumer, the resources that a limit counts."""
        key = _name(job)
        known = self._charges.get(key)
        if known is None:
            if len(self._charges) >= REMEMBERED_MAX:
                self._charges.clear()
            known = self._charges[key] = tuple(
                (column, self._use(Ask(resource, 0, consumer), at_most=at_most), at_most, partition)
                for consumer, partition in self._consumers(job)
                for column, resource in enumerate(self._columns)
                for at_most in self._counted(self._index.levels(consumer, resource, job))
            )
        return known

    def _consumers(self, job: Job) -> Iterator[tuple[Consumer, str]]:
        """The consumers through which limits bind a job; of several parts, with the partition whose parts it sees."""
        has_parts = bool(job.parts)
        for consumer in self._index.consumers(job, partitions_of(job)):
            yield consumer, consumer[1] if has_parts and consumer[0] == "partition" else ""

    @staticmethod
    def _counted(levels: Sequence[Level]) -> list[bool]:
        """Kinds of use that these limits count: expected (items), up to the limit (areas)."""
        limits = [limit for level in levels for limit in level]
        as_expected = any(limit.amount.items >= 0 or limit.amount.percent for limit in limits)
        return [False] * as_expected + [True] * any(limit.area_s for limit in limits)

    def _use(self, ask: Ask, *, at_most: bool = False) -> Used:
        key = (ask.consumer, ask.resource, at_most)
        known = self._used.get(key)
        if known is None:
            known = self._used[key] = Used(self._now_us)
        return known

    def _steps(self, column: int) -> Callable[[], Steps]:
        """The function that reads the use of one resource by all jobs."""
        if column < len(self._topology.resources):
            return lambda: self._future.steps(column)
        line = self._line(column)
        return lambda: steps_of(line())

    def _line(self, column: int) -> Callable[[], Timeline]:
        """The same for a cluster-wide one, cached, because the profile computes it anew each time."""
        index = column - len(self._topology.resources) - 1

        def line() -> Timeline:
            known = self._lines.get(index)
            if known is None:
                known = self._lines[index] = self._future.wide_used(index)
            return known

        return line

    def _totals(self, positions: int) -> dict[str, int]:
        """The sums of these nodes, and the cluster-wide resources."""
        topology = self._topology
        sums = [0] * len(topology.resources)
        for group in topology.groups.values():
            for total, mask in group.items():
                count = (mask & positions).bit_count()
                for index in range(len(sums)):
                    sums[index] += total[index] * count
        found = dict(zip(topology.resources, sums, strict=True))
        found[NODES] = positions.bit_count()
        found.update(zip(topology.wide, topology.wide_totals, strict=True))
        return found


def _nothing_used() -> Steps:
    return [], []


def _name(job: Job) -> _Name:
    own = (job.user, job.groups, job.account, job.qos, job.partition)
    return (*own, partitions_of(job)) if job.parts else own


def _named(policies: Policies, kind: str, of: type[_P]) -> dict[str, _P]:
    return {name: policy for name, policy in policies.get(kind, {}).items() if isinstance(policy, of)}


def _of_kind(policies: Policies, kind: str, of: type[_P]) -> Iterable[_P]:
    return _named(policies, kind, of).values()
