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

STEPS_MAX: Final = 2_000
"""Mappings of one request in one search, of some 10 microseconds each on a few nodes."""
CHUNKS_STEPS_MAX: Final = 100
"""Steps for which a vain search for chunks of several kinds counts at most: it is a search of its own (`packing`)."""
STEPS_PER_SLICE: Final = 32
ORDERS_MAX: Final = 8
"""Orders in which the requests are tried before single nodes are withheld from them."""
JOINED_MAX: Final = 64
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
    room_of: RoomOf, stays: Sequence[Stay], steps_max: int = STEPS_MAX
) -> Generator[None, None, Found]:
    """Places for all stays; those that can share no node at any instant are searched apart."""
    chosen: _Places = {}
    steps = 0
    for group in _groups(stays):
        searching = _Search(room_of, {index: stays[index] for index in group}, steps_max - steps)
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


class _Search:
    """One search for stays that meet."""

    def __init__(self, room_of: RoomOf, stays: Mapping[int, Stay], steps_max: int) -> None:
        self._room_of = room_of
        self._stays = stays
        self._left = steps_max
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
            places = yield from self._in_some_order()
            if places is None and not self.is_proved:
                places = self._together()
            if places is None and not self.is_proved:
                places = yield from self._withholding()
        except _SpentError:
            return None
        return places

    def _rank(self, index: int) -> tuple[object, ...]:
        need = self._stays[index].need
        # Jobs without a device leave the cores that are kept for the others, which those may take in any case (C-44).
        return (not any(part.kept for part in need.parts), *most_demanding_first(need, index))

    def _room(self, index: int) -> Availability:
        stay = self._stays[index]
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

    def _choose(self, index: int, before: Sequence[int], places: _Places, caps: _Caps) -> Assignment | None:
        """Nodes for one stay on what those `before` it leave, within its caps."""
        self._spend()
        need, room = self._stays[index].need, self._room(index)
        own = {position: cap for (one, position), cap in caps.items() if one == index}
        used = self._used(index, before, places)
        if used or own:
            left = Remaining(room)
            left.take(
                [(position, least(amounts, room.free_on(position)), 0) for position, amounts in used.items()]
            )
            for position, cap in own.items():
                if cap.most is None:
                    need = _without(need, position)
                    continue
                free = left.free_on(position)
                left.take([(position, subtract(free, least(free, cap.most)), 0)])
            room = left
        chosen = choose(room, need)
        if chosen is None:
            if len(need.parts) > 1:
                self._spend(min(need.allowed.bit_count() * len(need.parts), CHUNKS_STEPS_MAX))
                self._is_exact &= chunks.is_impossible(room, need, need.allowed & room.usable)
            return None
        if need.exclusive:
            totals = room.topology.totals
            chosen = [(position, totals[position], tasks) for position, _, tasks in chosen]
        return chosen

    def _used(self, index: int, before: Sequence[int], places: _Places) -> dict[int, Vector]:
        """The most that these stays take of each node at any instant of this one."""
        stay = self._stays[index]
        on: dict[int, list[tuple[Stay, Vector]]] = {}
        for other in before:
            for position, amounts, _ in places[other]:
                if stay.need.allowed >> position & 1:
                    on.setdefault(position, []).append((self._stays[other], amounts))
        return {position: _peak(taken, stay.start_us) for position, taken in on.items()}

    def _in_some_order(self) -> Generator[None, None, _Places | None]:
        """All stays one after another, the one that found nothing first the next time."""
        order = self._order
        tried: set[tuple[int, ...]] = set()
        while tuple(order) not in tried and len(tried) < ORDERS_MAX:
            tried.add(tuple(order))
            places: _Places = {}
            for at, index in enumerate(order):
                before = [other for other in order[:at] if self._stays[other].meets(self._stays[index])]
                chosen = self._choose(index, before, places, {})
                yield from self._pause()
                if chosen is None:
                    if not before:
                        self.is_proved = self._is_exact
                        return None
                    order = [index, *[other for other in order if other != index]]
                    break
                places[index] = chosen
            else:
                return places
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
        for _ in group:
            self._spend()
        from_us = min(stays[index].start_us for index in group)
        until_us = max(stays[index].stop_us for index in group)
        needs = [stays[index].need for index in group]
        room = self._room_of(from_us, until_us)
        chosen = choose(room, joined(needs))
        if chosen is None:
            is_single = len(group) == len(stays) and all(single_nodes.is_single(need) for need in needs)
            if is_single and {(stay.start_us, stay.stop_us) for stay in stays.values()} == {
                (from_us, until_us)
            }:
                self.is_proved = single_nodes.search(room, needs).is_proved
            return None
        assert isinstance(chosen, JointAssignment)
        places: _Places = dict(zip(group, chosen.members, strict=True))
        order = [*group, *[index for index in self._order if index not in places]]
        for at, index in enumerate(order):
            if index in places:
                continue
            before = [other for other in order[:at] if stays[other].meets(stays[index])]
            found = self._choose(index, before, places, {})
            if found is None:
                return None
            places[index] = found
        return places

    def _withholding(self) -> Generator[None, None, _Places | None]:
        """All ways to take less of a node than the stays took in vain, those that placed the most first."""
        waiting: list[tuple[int, int, int]] = []
        entries: list[tuple[_Caps, _Places, int]] = [({}, {}, 0)]
        seen: set[frozenset[tuple[tuple[int, int], _Cap]]] = set()
        heappush(waiting, (0, 0, 0))
        while waiting:
            _, _, number = heappop(waiting)
            caps, places, at = entries[number]
            while at < len(self._order):
                index = self._order[at]
                chosen = self._choose(index, self._before[index], places, caps)
                yield from self._pause()
                if chosen is None:
                    break
                places = {**places, index: chosen}
                at += 1
            else:
                return places
            index = self._order[at]
            if not self._before[index] or self._choose(index, (), {}, caps) is None:
                # Its caps alone leave it nothing.
                continue
            for key, cap in self._ways(index, places):
                narrower = {**caps, key: cap}
                state = frozenset(narrower.items())
                if state in seen:
                    continue
                seen.add(state)
                # Those before the one that is to take less stay where they are.
                changed = self._order.index(key[0])
                kept = {other: places[other] for other in self._order[:changed]}
                heappush(waiting, (-at, len(narrower), len(entries)))
                entries.append((narrower, kept, changed))
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
        totals = self._room(index).topology.totals[position]
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
