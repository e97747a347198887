"""The resource profile: amounts free on every node from now to infinity (sRS and nRS, C-26), and the search in it.

Running and planned jobs are booked alike; all policies plan on one `Book`. Views of the same bookings are kept in step: a
profile per node (`node_profile`), sets of nodes per slot and exact sums per resource (`slots`). A search (`slot_search`)
costs slots, not jobs (C-32). Invariants: used + free = total on every node at every instant and neither is below zero; a
change that would break this raises `BookError` and leaves the book as it was; `book` and then `revoke` changes nothing
(C-36). Beyond `slots_max` slots ends are rounded up, and starts down, to existing instants or to a grid of a thirty-second
of their distance: a later search may find less, bookings stay true.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from eslurm.core.plan.placement.compiled_request import CompiledRequest
from eslurm.core.plan.placement.mapping import choose
from eslurm.core.plan.placement.protocols import Assignment, Closure, shut
from eslurm.core.plan.profile.availability import ProfileAvailability
from eslurm.core.plan.profile.check import check_views
from eslurm.core.plan.profile.node_profile import (
    Part,
    Profile,
    ProfileError,
    Spans,
    least_free,
    shifted_all,
    taken_us,
)
from eslurm.core.plan.profile.slot_search import Lookup, Search
from eslurm.core.plan.profile.slots import Slots
from eslurm.core.plan.slices import exhaust
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.timeline import INFINITY_US, Timeline
from eslurm.core.resources.usage import Steps
from eslurm.core.resources.vector import Vector

__all__ = ["INFINITY_US", "ProfileError", "ResourceProfile"]

SLOTS_MAX: Final = 1024
NODES_PER_SLICE: Final = 1_024
SLOTS_PER_US: Final = 4
WORK_PER_PROFILE: Final = 4
WORK_PER_PART: Final = 25
MISSES_MAX: Final = 8
"""Instants at which one search maps the parts of a job in every way; at later ones in one order only."""

Pairs: TypeAlias = Iterable[tuple[int, Vector]]
"""(node number, amounts) of one booking."""

Own: TypeAlias = tuple[Iterable[int], int]
"""(node numbers, start) of what is booked for a job."""

_Key: TypeAlias = tuple[int, Spans, Vector]
_Stay: TypeAlias = tuple[int, int]


class ResourceProfile:
    """All bookings on the nodes of a topology and on cluster-wide resources, from `now_us` on."""

    __slots__ = (
        "_lookup",
        "_profiles",
        "_rounded",
        "_slots",
        "_totals",
        "_usable",
        "_wide",
        "slots_max",
        "topology",
        "work",
    )

    def __init__(
        self, topology: Topology, wide_totals: Vector = (), *, now_us: int, slots_max: int = SLOTS_MAX
    ) -> None:
        self.topology = topology
        self.slots_max = slots_max
        shared = {total: ((now_us,), (total,), total) for total in topology.totals}
        self._profiles: list[Profile] = [shared[total] for total in topology.totals]
        width = len(topology.totals[0]) if topology.totals else 0
        self._totals = tuple(sum(total[index] for total in topology.totals) for index in range(width))
        self._slots = Slots(width, now_us)
        self._usable = topology.usable
        self._wide = [Timeline(total) for total in wide_totals]
        self._lookup = Lookup()
        # What has been done so far, in about microseconds: counted, for nothing here reads a clock.
        self.work = 0
        # Asked stop -> booking -> the stays that were booked in its place.
        self._rounded: dict[int, dict[_Key, list[_Stay]]] = {}

    def copy(self) -> ResourceProfile:
        """An independent book for what-if questions; costs copying lists of pointers."""
        other = ResourceProfile.__new__(ResourceProfile)
        other.topology = self.topology
        other.slots_max = self.slots_max
        other._profiles = self._profiles.copy()
        other._totals = self._totals
        other._slots = self._slots.copy()
        other._usable = self._usable
        other._wide = [wide.copy() for wide in self._wide]
        other._lookup = Lookup()
        other.work = self.work
        other._rounded = {
            stop_us: {key: stays.copy() for key, stays in by_key.items()}
            for stop_us, by_key in self._rounded.items()
        }
        return other

    def book(
        self, spans: Pairs, start_us: int, stop_us: int, wide: Vector = (), *, is_held: bool = False
    ) -> None:
        """Book the amounts over [start_us, stop_us), as far as it lies in the future (C-36).

        With `is_held` they are in use already: the total of a cluster-wide resource may have fallen below them. Raises
        `ProfileError` naming node and amounts when one of them is not free throughout.
        """
        exhaust(self.booking(spans, start_us, stop_us, wide, is_held=is_held))

    def booking(
        self, spans: Pairs, start_us: int, stop_us: int, wide: Vector = (), *, is_held: bool = False
    ) -> Generator[None, None, None]:
        """`book` in slices of so many nodes; the profile must not be used before it is complete."""
        spans = tuple(spans)
        slots = self._slots
        begin_us, end_us = max(start_us, slots.at[0]), stop_us
        if stop_us <= begin_us:
            return
        if len(slots.at) >= self.slots_max:
            begin_us, end_us = slots.coarse(begin_us, stop_us)
        if len(spans) <= NODES_PER_SLICE:
            self._take(spans, begin_us, end_us, wide, is_held=is_held)
        else:
            yield from self._taking(spans, begin_us, end_us, wide, is_held=is_held)
        if begin_us != start_us or end_us != stop_us:
            stays = self._rounded.setdefault(stop_us, {}).setdefault((start_us, spans, wide), [])
            stays.append((begin_us, end_us))

    def revoke(self, spans: Pairs, start_us: int, stop_us: int, wide: Vector = ()) -> None:
        """End a booking made with the same arguments; its past part stays.

        Raises `ProfileError` when it was not booked (as far as it shows).
        """
        exhaust(self.revoking(spans, start_us, stop_us, wide))

    def revoking(
        self, spans: Pairs, start_us: int, stop_us: int, wide: Vector = ()
    ) -> Generator[None, None, None]:
        """`revoke` in slices of so many nodes; the profile must not be used before it is complete."""
        spans = tuple(spans)
        key = (start_us, spans, wide)
        begin_us, end_us = start_us, stop_us
        stays = self._rounded[stop_us].get(key) if stop_us in self._rounded else None
        if stays:
            begin_us, end_us = stays[-1]
        if len(spans) <= NODES_PER_SLICE:
            self._give(spans, begin_us, end_us, wide)
        else:
            yield from self._giving(spans, begin_us, end_us, wide)
        if stays:
            stays.pop()
            self._drop_rounded(stop_us, key, stays)

    def mark(self, instants: Iterable[int]) -> None:
        """Let slots begin at these future instants until `unmark`: no end is rounded beyond the next one."""
        for at_us in instants:
            if at_us > self.now_us:
                self._slots.starts[self._slots.begin(at_us)] += 1

    def unmark(self, instants: Iterable[int]) -> None:
        """End the effect of `mark`."""
        for at_us in instants:
            index = self._slots.find(at_us)
            if index:
                self._slots.starts[index] -= 1
                self._slots.release(index)

    def preparing(self, need: CompiledRequest) -> Generator[None, None, None]:
        """Build the rows for this request in slices; without it, the first search builds them at once."""
        asked: list[tuple[int, int]] = []
        if not need.exclusive and not self._lookup.knows(need, self._slots):
            asked = [
                (resource, amount)
                for one in need.members or (need,)
                if not one.exclusive
                for amounts, _ in one.filters
                for resource, amount in enumerate(amounts)
                if amount > 0
            ]
        with_idle = need.exclusive or any(one.exclusive for one in need.members)
        yield from self._slots.preparing(asked, self._profiles, with_idle=with_idle)

    def set_usable(self, node: int, usable: bool) -> None:
        """Allow or forbid plans on the node; its bookings stay."""
        bit = 1 << self._position(node)
        self._usable = self._usable | bit if usable else self._usable & ~bit

    def advance(self, now_us: int) -> None:
        """Let time pass: forget everything before `now_us`. Never goes back."""
        slots = self._slots
        if now_us <= slots.at[0]:
            return
        slots.advance(now_us)
        for wide in self._wide:
            wide.forget(now_us)
        for stop_us in [stop_us for stop_us in self._rounded if stop_us <= now_us]:
            by_key = self._rounded[stop_us]
            for key, stays in list(by_key.items()):
                stays[:] = [stay for stay in stays if stay[1] > now_us]
                self._drop_rounded(stop_us, key, stays)

    # Reading

    @property
    def now_us(self) -> int:
        """The first instant of the profile."""
        return self._slots.at[0]

    @property
    def usable(self) -> int:
        """The positions on which jobs may be planned."""
        return self._usable

    @property
    def slots(self) -> int:
        """The number of slots."""
        return len(self._slots.at)

    def used(self, resource: int) -> Timeline:
        """The use of one resource of the nodes over the whole system (sRS): exact, usable nodes or not."""
        return Timeline.from_changes(self._totals[resource], self._slots.at, self._slots.rises[resource])

    def steps(self, resource: int) -> Steps:
        """The same as instants and the use from each on; read-only, until the profile changes."""
        return self._slots.at, self._slots.used(resource)

    def wide_used(self, index: int) -> Timeline:
        """The use of one cluster-wide resource; a copy."""
        return self._wide[index].copy()

    def free_on(self, node: int, start_us: int, stop_us: int) -> Vector:
        """The amounts free on node number `node` throughout an interval."""
        start_us = max(start_us, self.now_us)
        return least_free(self._profiles[self._position(node)], start_us, max(stop_us, start_us + 1))

    def is_rounded(self, stop_us: int) -> bool:
        """Check whether a booking with that end may have been rounded."""
        return stop_us in self._rounded

    def stay(self, spans: Pairs, start_us: int, stop_us: int, wide: Vector = ()) -> _Stay:
        """The interval in which a booking made with these arguments may be booked, rounding included."""
        stays = self._rounded.get(stop_us, {}).get((start_us, tuple(spans), wide), ())
        return min([start_us, *(stay[0] for stay in stays)]), max([stop_us, *(stay[1] for stay in stays)])

    def next_stop_us(self, from_us: int) -> int:
        """The first instant after this one at which something ends, and so more may be free; `INFINITY_US` without one."""
        at, stops = self._slots.at, self._slots.stops
        for index in range(bisect_right(at, from_us), len(at)):
            if stops[index]:
                return at[index]
        return INFINITY_US

    @property
    def last_stop_us(self) -> int:
        """The last instant at which something ends; from then on all is free that ever becomes free."""
        at, stops = self._slots.at, self._slots.stops
        return next((at[index] for index in range(len(at) - 1, 0, -1) if stops[index]), at[0])

    def free_until_us(self, spans: Pairs, from_us: int, until_us: int) -> int:
        """End, at most `until_us`, of the interval from an instant on in which all amounts are free; that instant: not
        free.
        """
        # Nodes of one past share their future, and are looked at once.
        asked = {
            (id(profile := self._profiles[self._position(node)]), amounts): profile for node, amounts in spans
        }
        for (_, amounts), profile in asked.items():
            until_us = taken_us(profile, amounts, from_us, until_us)
        return until_us

    def room(self, start_us: int, stop_us: int, closed: Sequence[Closure] = ()) -> ProfileAvailability:
        """Amounts free throughout an interval that begins now or later; a view until the profile changes."""
        start_us = max(start_us, self.now_us)
        stop_us = max(stop_us, start_us + 1)
        within = self._usable & ~shut(closed, start_us, stop_us)
        return self._room((start_us, stop_us), self._slots.window(start_us, stop_us), within, {})

    def fits_at(
        self, need: CompiledRequest, start_us: int, duration_us: int, closed: Sequence[Closure] = ()
    ) -> Assignment | None:
        """Nodes for the whole job from exactly `start_us` (or now) on, or None. A duration of `INFINITY_US`: for ever."""
        start_us = max(start_us, self.now_us)
        found = self._search(need, duration_us, (start_us, start_us), INFINITY_US, closed)
        return found[1] if found is not None else None

    def earliest(
        self,
        need: CompiledRequest,
        duration_us: int,
        from_us: int,
        until_us: int = INFINITY_US,
        closed: Sequence[Closure] = (),
    ) -> tuple[int, Assignment] | None:
        """The first start from `from_us` on at which the whole job fits for `duration_us`, and its nodes (C-31, C-33).

        The interval lies before `until_us`; nodes of a closure in `closed` that it meets are left out. None when there is
        no such start.
        """
        latest_us = until_us - duration_us if until_us < INFINITY_US else INFINITY_US - 1
        return self._search(need, duration_us, (max(from_us, self.now_us), latest_us), until_us, closed)

    def sooner_us(
        self,
        need: CompiledRequest,
        duration_us: int,
        from_us: int,
        own: Own,
        closed: Sequence[Closure] = (),
        stay: _Stay | None = None,
    ) -> int | None:
        """Lower bound of an earlier start for a job with a place, as if that were released; None: there is no earlier
        start.

        Nothing is changed, and cluster-wide resources are not examined. With `stay` the nodes are released for that
        interval: the job begins and ends with others, and their places are released too.
        """
        starts_us = (max(from_us, self.now_us), own[1] - 1)
        found = self._search(need, duration_us, starts_us, INFINITY_US, closed, own, stay)
        return found[0] if found is not None else None

    def check(self) -> None:
        """Raise `ProfileError` unless the views agree and every node keeps within its total. Costs time in
        proportion to all.
        """
        check_views(self.topology, self._profiles, self._slots)

    # Inside

    def _position(self, node: int) -> int:
        position = self.topology.positions.get(node)
        if position is None:
            raise ProfileError(f"there is no node number {node}")
        return position

    def _room(
        self, stay: _Stay, window: _Stay, within: int, fitting: dict[Vector, int]
    ) -> ProfileAvailability:
        wide_free = tuple([wide.least_free(*stay) for wide in self._wide])
        return ProfileAvailability(
            self.topology, self._slots, self._profiles, stay, window, within, wide_free, fitting
        )

    def _search(
        self,
        need: CompiledRequest,
        duration_us: int,
        starts_us: _Stay,
        until_us: int,
        closed: Sequence[Closure],
        own: Own | None = None,
        stay: _Stay | None = None,
    ) -> tuple[int, Assignment] | None:
        """The first start in the range; with `own` the first that may be one without that booking, nodes left open."""
        within = need.allowed & self._usable
        conditions = self._lookup.conditions(need, self.topology, self._slots, self._profiles)
        search = Search(conditions, within, self._slots)
        if own is not None and stay is not None:
            at = self._slots.at
            first, last = bisect_right(at, stay[0]) - 1, bisect_left(at, stay[1])
            search.leave_out(self.topology.mask_of_numbers(own[0]), max(first, 0), last)
        found = self._walk(search, need, within, duration_us, starts_us, until_us, closed, own)
        self.work += search.looked // SLOTS_PER_US
        return found

    def _walk(
        self,
        search: Search,
        need: CompiledRequest,
        within: int,
        duration_us: int,
        starts_us: _Stay,
        until_us: int,
        closed: Sequence[Closure],
        own: Own | None,
    ) -> tuple[int, Assignment] | None:
        slots = self._slots
        at, stops = slots.at, slots.stops
        size = len(at)
        start_us, latest_us = starts_us
        misses = 0
        first = bisect_right(at, start_us) - 1
        # The first slot from `first` on in which enough nodes are left, the rest of the stay aside.
        passed = search.passing(first)
        if own is not None:
            if passed >= size or at[passed] >= own[1]:
                return None
            mask = self.topology.mask_of_numbers(own[0])
            search.leave_out(mask, bisect_right(at, own[1]) - 1, bisect_left(at, own[1] + duration_us))
        while start_us <= latest_us:
            if need.wide and own is None:
                moved_us = self._wide_start(need.wide, duration_us, start_us, until_us)
                if moved_us is None or moved_us > latest_us:
                    return None
                if moved_us > start_us:
                    start_us = moved_us
                    first = bisect_right(at, start_us) - 1
            if passed < first:
                passed = search.passing(first)
            if passed > first:
                failed = passed - 1
            else:
                stop_us = start_us + duration_us
                last = bisect_left(at, stop_us, first + 1)
                inside = within & ~shut(closed, start_us, stop_us) if closed else within
                failed = search.failed(inside, first, last)
                if failed < 0:
                    if own is not None:
                        return start_us, []
                    stay = (start_us, min(stop_us, INFINITY_US))
                    room = self._room(stay, (first, last), inside, search.fitting)
                    chosen = choose(room, need, is_brief=misses >= MISSES_MAX)
                    if chosen is not None:
                        return start_us, chosen
                    misses += 1
                    self.work += WORK_PER_PART * len(need.members)
                    failed = first
            # More becomes free only where something ends; stays that still hold the failing slots need no look.
            first = failed + 1
            while first < size and not stops[first]:
                first += 1
            next_us = at[first] if first < size else INFINITY_US
            for closure in closed:
                if start_us < closure.stop_us < next_us:
                    next_us = closure.stop_us
                    first = bisect_right(at, next_us) - 1
            start_us = next_us
        return None

    def _wide_start(self, asked: Vector, duration_us: int, from_us: int, until_us: int) -> int | None:
        """The first instant at which all cluster-wide resources suffice."""
        start_us, moved = from_us, True
        while moved:
            moved = False
            for wide, amount in zip(self._wide, asked, strict=False):
                if amount > 0:
                    found_us = wide.earliest_fit(amount, duration_us, start_us, until_us)
                    if found_us is None:
                        return None
                    if found_us > start_us:
                        start_us, moved = found_us, True
        return start_us

    def _taking(
        self, spans: Spans, start_us: int, stop_us: int, wide: Vector, *, is_held: bool
    ) -> Generator[None, None, None]:
        taken: list[Spans] = []
        for piece in _pieces(spans):
            try:
                self._take(piece, start_us, stop_us, () if taken else wide, is_held=is_held)
            except ProfileError:
                for number, done in enumerate(taken):
                    self._give(done, start_us, stop_us, () if number else wide)
                raise
            taken.append(piece)
            yield

    def _giving(self, spans: Spans, start_us: int, stop_us: int, wide: Vector) -> Generator[None, None, None]:
        given: list[Spans] = []
        for piece in _pieces(spans):
            try:
                self._give(piece, start_us, stop_us, () if given else wide)
            except ProfileError:
                for number, done in enumerate(given):
                    held_us = max(start_us, self.now_us)
                    self._take(done, held_us, stop_us, () if number else wide, is_held=True)
                raise
            given.append(piece)
            yield

    def _take(
        self,
        spans: Spans,
        start_us: int,
        stop_us: int,
        wide: Vector,
        *,
        is_held: bool,
    ) -> None:
        slots = self._slots
        parts, after, total = self._shifted(spans, (start_us, stop_us), -1)
        if any(wide):
            self._take_wide(wide, start_us, stop_us, is_held=is_held)
        first, last = slots.begin(start_us), 0
        if first:
            slots.starts[first] += 1
        if stop_us < INFINITY_US:
            last = slots.begin(stop_us)
            slots.stops[last] += 1
        self._follow(parts, after)
        slots.use(first, last, total)

    def _give(self, spans: Spans, start_us: int, stop_us: int, wide: Vector) -> None:
        slots = self._slots
        begin_us = max(start_us, slots.at[0])
        if stop_us <= begin_us:
            return
        first = slots.find(begin_us)
        last = slots.find(stop_us) if stop_us < INFINITY_US else 0
        if (
            first is None
            or last is None
            or (first and not slots.starts[first])
            or (last and not slots.stops[last])
        ):
            raise ProfileError(f"no booking lasts from {start_us} to {stop_us}")
        parts, after, total = self._shifted(spans, (begin_us, stop_us), 1)
        if any(wide):
            self._give_wide(wide, begin_us, stop_us)
        self._follow(parts, after)
        slots.use(first, last, [-amount for amount in total])
        if last:
            slots.stops[last] -= 1
            slots.release(last)
        if first:
            slots.starts[first] -= 1
            slots.release(first)

    def _take_wide(self, wide: Vector, start_us: int, stop_us: int, *, is_held: bool) -> None:
        for timeline, amount in zip(self._wide, wide, strict=False):
            if amount > timeline.least_free(start_us, stop_us) and not is_held:
                raise ProfileError(
                    f"{amount} of {timeline.available} items that belong to no node are not free"
                )
        for timeline, amount in zip(self._wide, wide, strict=False):
            if amount > 0:
                timeline.hold(start_us, stop_us, amount)

    def _give_wide(self, wide: Vector, start_us: int, stop_us: int) -> None:
        for timeline, amount in zip(self._wide, wide, strict=False):
            if amount > timeline.least_used(start_us, stop_us):
                raise ProfileError(f"{amount} items that belong to no node are not booked")
        for timeline, amount in zip(self._wide, wide, strict=False):
            if amount > 0:
                timeline.decrement(start_us, stop_us, amount)

    def _shifted(
        self, spans: Spans, stay: _Stay, sign: int
    ) -> tuple[list[Part], list[tuple[list[int], Profile]], Vector]:
        return shifted_all(self.topology, self._profiles, spans, stay, sign, self._slots.at[0])

    def _follow(self, parts: list[Part], after: list[tuple[list[int], Profile]]) -> None:
        profiles = self._profiles
        self.work += WORK_PER_PROFILE * len(after)
        for positions, profile in after:
            for position in positions:
                profiles[position] = profile
        self._slots.flip(parts, self.topology.size)

    def _drop_rounded(self, stop_us: int, key: _Key, stays: list[_Stay]) -> None:
        if not stays:
            by_key = self._rounded[stop_us]
            del by_key[key]
            if not by_key:
                del self._rounded[stop_us]


def _pieces(spans: Spans) -> Iterator[Spans]:
    """The pieces of a booking and of its end: each begins and ends by itself."""
    for first in range(0, len(spans), NODES_PER_SLICE):
        yield spans[first : first + NODES_PER_SLICE]
