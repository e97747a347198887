"""Search for the places of requests beside each other, each over a stay of its own: the members of a pack (D-04).

One search serves two callers: it decides if a pack is accepted, on the empty nodes, and it places the pack (`pack_mapping`).
So a pack that is accepted has a place whenever its nodes are idle. Requests are mapped one after another, each on what those
before it leave during its stay; where one finds nothing, at least one of those before it must take less on a node that
they share, and each such way is tried, the most promising first. Invariant: the places never take more than is free at any
instant. `is_proved` is true only when all ways were tried and each mapping was exact.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Final, TypeAlias

import msgspec

from eslurm.core.plan.placement import chunks, single_nodes
from eslurm.core.plan.placement.compiled_request import CompiledRequest, joined
from eslurm.core.plan.placement.joint import most_demanding_first
from eslurm.core.plan.placement.mapping import choose
from eslurm.core.plan.placement.protocols import Assignment, Availability, JointAssignment
from eslurm.core.plan.placement.remaining import Remaining
from eslurm.core.resources.vector import CORES, Vector, add, least, subtract

STEPS_MAX: Final = 1_000
"""Mappings of one request in one search, of some 10 microseconds each on a few nodes. One of many nodes counts for more."""
FIRST_MAX: Final = 5_000
"""Steps of a search that tries nothing twice."""
NODES_PER_STEP: Final = 8
CHUNKS_STEPS_MAX: Final = 100
"""Steps for which a vain search for chunks of several kinds counts at most: it is a search of its own (`packing`)."""
STEPS_PER_SLICE: Final = 32
ORDERS_MAX: Final = 8
"""Orders in which the requests are tried before single nodes are withheld from them."""
JOINED_MAX: Final = 128
"""Requests that run at one instant and are mapped by `mapping.choose` together: in one go."""

RoomOf: TypeAlias = Callable[[int, int], Availability]
"""The amounts free throughout an interval."""


class Stay(msgspec.Struct, frozen=True, gc=False):
    """A request of one part and its interval (us)."""

    need: CompiledRequest
    start_us: int
    stop_us: int

    def meets(self, other: Stay) -> bool:
        """Check whether they may share a node at some instant."""
        is_beside = self.start_us < other.stop_us and other.start_us < self.stop_us
        return is_beside and bool(self.need.allowed & other.need.allowed)


class Found(msgspec.Struct, frozen=True):
    """An assignment for each stay; without `chosen`, `is_proved` means that there is none. `steps`: the work done."""

    chosen: list[Assignment] | None
    is_proved: bool = False
    steps: int = 0


class _Cap(msgspec.Struct, frozen=True, gc=False):
    """The most that a request may take of its node's amounts; None: nothing."""

    most: Vector | None


_Caps: TypeAlias = Mapping[tuple[int, int], _Cap]
"""By request and position."""
_Places: TypeAlias = dict[int, Assignment]


class _SpentError(Exception):
    """The work bound is exhausted."""


def search(
    room_of: RoomOf, stays: Sequence[Stay], steps_max: int = STEPS_MAX, first_max: int = 0
) -> Generator[None, None, Found]:
    """Places for all stays; those that can share no node at any instant are searched apart.

    Stays that need no search, but one mapping each, may take `first_max` steps.
    """
    chosen: _Places = {}
    steps = 0
    for group in _groups(stays):
        part = {index: stays[index] for index in group}
        searching = _Search(room_of, part, steps_max - steps, first_max - steps)
        places = yield from searching.run()
        steps += searching.steps
        if places is None:
            return Found(None, searching.is_proved, steps)
        chosen |= places
    return Found([chosen[index] for index in range(len(stays))], steps=steps)


def parts_of(need: CompiledRequest) -> Sequence[CompiledRequest]:
    """The requests of one part that a job consists of."""
    return need.members or (need,)


def of_job(need: CompiledRequest, parts: Iterator[Assignment]) -> Assignment:
    """The assignment of a job from those of its parts, which come next in `parts`."""
    return JointAssignment([next(parts) for _ in need.members]) if need.members else next(parts)


def _groups(stays: Sequence[Stay]) -> list[list[int]]:
    """The stays by number, in groups that have no node in common at any instant."""
    found: list[list[int]] = []
    for index, stay in enumerate(stays):
        meeting = [group for group in found if any(stay.meets(stays[other]) for other in group)]
        found = [group for group in found if group not in meeting]
        found.append([index for group in meeting for index in group] + [index])
    return sorted([sorted(group) for group in found])


class _Taken:
    """The amounts that placed stays take, as each other one sees it: the most at any instant of its own."""

    def __init__(self, stays: Mapping[int, Stay], room: Callable[[Stay], Availability]) -> None:
        self._stays = stays
        self._room = room
        self._placed: list[tuple[Stay, Assignment]] = []
        self._views: dict[tuple[int, int], _View] = {}
        self.work = 0
        """Nodes that were looked at so far."""

    def add(self, index: int, chosen: Assignment) -> None:
        """A stay has got these nodes."""
        self._placed.append((self._stays[index], chosen))

    def left(self, index: int) -> Availability:
        """The amounts left for a stay."""
        stay = self._stays[index]
        key = stay.start_us, stay.stop_us
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = _View(Remaining(self._room(stay)))
        for other, chosen in self._placed[view.seen :]:
            if other.start_us < stay.stop_us and stay.start_us < other.stop_us:
                self.work += len(chosen)
                view.take(other, chosen, stay.start_us)
        view.seen = len(self._placed)
        return view.room if view.on else self._room(stay)


class _View:
    """Amounts that are left over one stay."""

    def __init__(self, room: Remaining) -> None:
        self.room = room
        self.seen = 0
        self.on: dict[int, list[tuple[Stay, Vector]]] = {}
        self._peaks: dict[int, Vector] = {}

    def take(self, other: Stay, chosen: Assignment, start_us: int) -> None:
        """Another stay takes these nodes at the same time."""
        for position, amounts, _ in chosen:
            taken = self.on.setdefault(position, [])
            taken.append((other, amounts))
            before = self._peaks.get(position)
            peak = self._peaks[position] = amounts if before is None else _peak(taken, start_us)
            more = peak if before is None else subtract(peak, before)
            self.room.take([(position, least(more, self.room.free_on(position)), 0)])


class _Search:
    """One search for stays that meet."""

    def __init__(self, room_of: RoomOf, stays: Mapping[int, Stay], steps_max: int, first_max: int) -> None:
        """The first pass, in one order, may take `first_max` steps."""
        self._room_of = room_of
        self._stays = stays
        self._steps_max = steps_max
        self._left = max(steps_max, first_max)
        self._rooms: dict[tuple[int, int], Availability] = {}
        self._slice = 0
        self.is_proved = False
        self._is_exact = True
        self._order = sorted(stays, key=self._rank)
        self._before = {
            index: [other for other in self._order[:at] if stays[other].meets(stays[index])]
            for at, index in enumerate(self._order)
        }
        self.steps = 0

    def run(self) -> Generator[None, None, _Places | None]:
        try:
            places = self._together()
            if places is None and not self.is_proved:
                places = yield from self._in_some_order()
            if places is None and not self.is_proved:
                places = yield from self._withholding()
        except _SpentError:
            return None
        return places

    def _rank(self, index: int) -> tuple[object, ...]:
        need = self._stays[index].need
        # Jobs without a device leave the cores that are kept for the others, which those may take in any case (C-44).
        return (not any(part.kept for part in need.parts), *most_demanding_first(need, index))

    def _room(self, stay: Stay) -> Availability:
        key = stay.start_us, stay.stop_us
        room = self._rooms.get(key)
        if room is None:
            room = self._rooms[key] = self._room_of(*key)
        return room

    def _spend(self, steps: int = 1) -> None:
        if self._left < steps:
            self.steps += self._left
            self._left = 0
            raise _SpentError
        self._left -= steps
        self.steps += steps

    def _choose(self, index: int, taken: _Taken, caps: _Caps) -> Assignment | None:
        """Nodes for one stay on what those placed before leave it, within its caps."""
        need, before = self._stays[index].need, taken.work
        room = taken.left(index)
        own = {position: cap for (one, position), cap in caps.items() if one == index}
        if own:
            room = Remaining(room)
            for position, cap in own.items():
                if cap.most is None:
                    need = _without(need, position)
                    continue
                free = room.free_on(position)
                room.take([(position, subtract(free, least(free, cap.most)), 0)])
        chosen = choose(room, need)
        self._spend(1 + (taken.work - before + len(chosen or ())) // NODES_PER_STEP)
        if chosen is None:
            if len(need.parts) > 1:
                self._spend(min(need.allowed.bit_count() * len(need.parts), CHUNKS_STEPS_MAX))
                self._is_exact &= chunks.is_impossible(room, need, need.allowed & room.usable)
            return None
        if need.exclusive:
            totals = room.topology.totals
            chosen = [(position, totals[position], tasks) for position, _, tasks in chosen]
        return chosen

    def _in_some_order(self) -> Generator[None, None, _Places | None]:
        """All stays one after another, the one that found nothing first the next time."""
        order = self._order
        tried: set[tuple[int, ...]] = set()
        while tuple(order) not in tried and len(tried) < ORDERS_MAX:
            tried.add(tuple(order))
            places: _Places = {}
            taken = _Taken(self._stays, self._room)
            for index in order:
                chosen = self._choose(index, taken, {})
                yield from self._pause()
                if chosen is None:
                    if not any(self._stays[other].meets(self._stays[index]) for other in places):
                        self.is_proved = self._is_exact
                        return None
                    order = [index, *[other for other in order if other != index]]
                    break
                places[index] = chosen
                taken.add(index, chosen)
            else:
                return places
            self._left = min(self._left, self._steps_max)
        return None

    def _pause(self) -> Generator[None, None, None]:
        if self.steps - self._slice >= STEPS_PER_SLICE:
            self._slice = self.steps
            yield

    def _together(self) -> _Places | None:
        """The largest group that runs at one instant mapped as the parts of one job, then the others in order."""
        stays = self._stays
        groups = [
            [index for index, stay in stays.items() if stay.start_us <= at_us < stay.stop_us]
            for at_us in sorted({stay.start_us for stay in stays.values()})
        ]
        group = max(groups, key=len)
        if not 1 < len(group) <= JOINED_MAX:
            return None
        from_us = min(stays[index].start_us for index in group)
        until_us = max(stays[index].stop_us for index in group)
        needs = [stays[index].need for index in group]
        room = self._room_of(from_us, until_us)
        chosen = choose(room, joined(needs), is_brief=True)
        if chosen is None:
            self._spend(len(group))
            is_same = {(stay.start_us, stay.stop_us) for stay in stays.values()} == {(from_us, until_us)}
            if is_same and all(single_nodes.is_single(need) for need in needs):
                self._spend(CHUNKS_STEPS_MAX)
                together = single_nodes.search(room, needs)
                self.is_proved = together.is_proved
                if together.chosen is not None:
                    return dict(zip(group, together.chosen, strict=True))
            return None
        assert isinstance(chosen, JointAssignment)
        self._spend(len(group) + sum(map(len, chosen.members)) // NODES_PER_STEP)
        places: _Places = dict(zip(group, chosen.members, strict=True))
        taken = _Taken(stays, self._room)
        for index, own in places.items():
            taken.add(index, own)
        for index in self._order:
            if index not in places:
                found = self._choose(index, taken, {})
                if found is None:
                    return None
                places[index] = found
                taken.add(index, found)
        return places

    def _withholding(self) -> Generator[None, None, _Places | None]:
        """All ways to take less of a node than the stays took in vain, those that placed the most first."""
        waiting: list[tuple[int, int, int]] = []
        entries: list[tuple[_Caps, _Places, int]] = [({}, {}, 0)]
        seen: set[frozenset[tuple[tuple[int, int], _Cap]]] = set()
        heappush(waiting, (0, 0, 0))
        while waiting:
            _, _, number = heappop(waiting)
            caps, parent, at = entries[number]
            # Those before the one that is to take less stay where they are.
            places = {index: parent[index] for index in self._order[:at]}
            taken = _Taken(self._stays, self._room)
            for index, chosen in places.items():
                taken.add(index, chosen)
            while at < len(self._order):
                index = self._order[at]
                found = self._choose(index, taken, caps)
                yield from self._pause()
                if found is None:
                    break
                places[index] = found
                taken.add(index, found)
                at += 1
            else:
                return places
            index = self._order[at]
            if not self._before[index] or self._choose(index, _Taken(self._stays, self._room), caps) is None:
                # Its caps alone leave it nothing.
                continue
            for key, cap in self._ways(index, places):
                narrower = {**caps, key: cap}
                state = frozenset(narrower.items())
                if state in seen:
                    continue
                seen.add(state)
                if len(waiting) >= self._left:
                    # Each of them costs a step at least.
                    self._is_exact = False
                    break
                heappush(waiting, (-at, len(narrower), len(entries)))
                entries.append((narrower, places, self._order.index(key[0])))
        self.is_proved = self._is_exact
        return None

    def _ways(self, index: int, places: _Places) -> Iterator[tuple[tuple[int, int], _Cap]]:
        """The ways in which one of those before this one takes less of a node that it may use."""
        allowed = self._stays[index].need.allowed
        for other in reversed(self._before[index]):
            for position, amounts, tasks in places[other]:
                if allowed >> position & 1:
                    for cap in self._less(other, position, amounts, tasks):
                        yield (other, position), cap

    def _less(self, index: int, position: int, amounts: Vector, tasks: int) -> Iterator[_Cap]:
        """The caps that together allow all that is not as much as this or more."""
        need = self._stays[index].need
        if need.exclusive or need.pack or (len(need.parts) == 1 and tasks < 2):
            yield _Cap(None)
            return
        kept = [
            max([cores for cores, mask in part.kept if mask >> position & 1], default=0)
            for part in need.parts
        ]
        if len(need.parts) == 1:
            yield _Cap(add(need.parts[0].amounts(tasks - 1), (kept[0],)))
            return
        # Chunks of several kinds: less of any resource. Of kinds with and without devices each counts the cores otherwise.
        self._is_exact &= len(set(kept)) == 1
        totals = self._room(self._stays[index]).topology.totals[position]
        for resource, amount in enumerate(amounts):
            if amount:
                most = amount - 1 + (max(kept) if resource == CORES else 0)
                yield _Cap((*totals[:resource], most, *totals[resource + 1 :]))


def _without(need: CompiledRequest, position: int) -> CompiledRequest:
    """The same request without this node."""
    replace, mask = msgspec.structs.replace, ~(1 << position)
    parts = tuple([replace(part, allowed=part.allowed & mask) for part in need.parts])
    return replace(need, parts=parts, allowed=need.allowed & mask)


def _peak(taken: Sequence[tuple[Stay, Vector]], start_us: int) -> Vector:
    """The componentwise most that these take at any instant from `start_us` on."""
    most: list[int] = []
    for instant_us in {max(stay.start_us, start_us) for stay, _ in taken}:
        amounts: Vector = ()
        for stay, own in taken:
            if stay.start_us <= instant_us < stay.stop_us:
                amounts = add(amounts, own) if amounts else own
        most = [max(a, b) for a, b in zip(most, amounts, strict=True)] if most else list(amounts)
    return tuple(most)
