"""Packs in the plan: all members have places, exactly at their delays from each other, or none has (D-04).

Until the pack begins, the bookings of all members are those of its first member's entry, in the order of the members. When
the first member begins, each other member's booking becomes that of an entry of its own, with a start that it is owed.
Invariants: the profile holds all places of a pack or none; no step here delays another job's planned start.

The start of a pack is found by asking the members in turn: each moves the common start until none moves it any more (ADR 12,
with delays). Then the members are booked one after another, because they may need the same nodes at the same time; where
that fails, the next instants at which something ends are tried. A pack that could begin now, or would never begin, is also
mapped as a whole (`pack_mapping`). A miss only delays the pack.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from eslurm.core.plan.cycle.pack_mapping import starts_together
from eslurm.core.plan.cycle.queue import Pending
from eslurm.core.plan.cycle.reasons import Why
from eslurm.core.plan.cycle.schedule import Booking, Schedule, ends_of
from eslurm.core.plan.placement.joint import most_demanding_first
from eslurm.core.plan.placement.mapping import spans_of
from eslurm.core.plan.profile.profile import ProfileError
from eslurm.core.plan.profile.search import (
    RESOURCES,
    Move,
    NoStart,
    PlacementQuery,
    Start,
    first_start,
    start_exactly,
    start_with,
)
from eslurm.core.resources.timeline import INFINITY_US

NEAR_TRIES: Final = 48
"""Instants in a row at which the members of one pack are booked one after another."""
FAR_TRIES: Final = 16
"""Further such instants, farther and farther apart; the last of them lies behind all plans."""
BOOKED_MAX: Final = 256
"""Members booked in all these tries of either kind: a pack of many members has fewer tries."""
MEMBERS_PER_SLICE: Final = 16
MOVES_MAX: Final = 64
"""Times that rules move the common start: they may let each of two members begin again and again, and never both."""
ASKED_MAX: Final = 4_096
"""Times that anything moves it, for packs of many members in a full machine."""
ORDERS_MAX: Final = 8
"""Orders in which the members are booked at one instant."""
SPARED_MAX: Final = 24
"""Nodes that members leave to the others, one after another, where no order gives all of them a place."""


class PackQuery(msgspec.Struct, frozen=True, gc=False):
    """The queries of a pack's members, in their order, and their delays.

    `order` is that of booking: the most demanding member first. `span_us` is the time from the start of the first member to
    the last end.
    """

    queries: tuple[PlacementQuery, ...]
    delays_us: tuple[int, ...]
    order: tuple[int, ...]
    span_us: int


class Places(msgspec.Struct, frozen=True, gc=False):
    """Places of all members, in their order; `member` is the one that decided the start, by `moves`."""

    bookings: tuple[Booking, ...]
    member: int
    moves: tuple[Move, ...]


class NoPlaces(msgspec.Struct, frozen=True, gc=False):
    """The pack has no place, because of this member: for `why`, or the last of `moves`.

    `again_us` is a later start at which its rules would let it begin beside the others; `INFINITY_US`: none is known.
    """

    member: int
    moves: tuple[Move, ...] = ()
    why: Why | None = None
    again_us: int = INFINITY_US


class _Agreed(msgspec.Struct, frozen=True, gc=False):
    """A start at which each member alone has a place, and these; the member that moved it there, and by what."""

    at_us: int
    member: int
    moves: tuple[Move, ...]
    starts: dict[int, Start]


NO_STARTS: Final[Mapping[int, Start]] = MappingProxyType({})
First: TypeAlias = Callable[[PlacementQuery, int], Start | NoStart | Why]
"""The first start of one member from an instant on."""


def query_of_pack(job: Pending, queries: Sequence[PlacementQuery | Why]) -> PackQuery | Why:
    """The query of a pack from those of its members; or the reason why one of them is impossible."""
    found: list[PlacementQuery] = []
    for member, query in enumerate(queries):
        if isinstance(query, Why):
            return of_member(query, member)
        found.append(query)
    delays_us = job.delays_us
    order = sorted(range(len(found)), key=lambda index: most_demanding_first(found[index].need, index))
    ends = [delay + query.duration_us for delay, query in zip(delays_us, found, strict=True)]
    return PackQuery(tuple(found), delays_us, tuple(order), min(max(ends), INFINITY_US))


def of_member(why: Why, member: int) -> Why:
    """The waiting reason of a pack, which one of its members decides."""
    return Why(why.kind, f"part {member}: {why.text}", why.planned_start_us, member)


def find(
    schedule: Schedule,
    job: Pending,
    pack: PackQuery,
    from_us: int,
    until_us: int = INFINITY_US,
    first: First | None = None,
) -> Generator[None, None, Places | NoPlaces]:
    """Take the first places of all members from `from_us` on, the pack's start before `until_us`; not noted as its plan."""
    for query in pack.queries:
        yield from schedule.book.preparing(query.need)
    ask = first or (lambda query, at_us: first_start(schedule.book, query, at_us))
    at_us = from_us
    places: Places | NoPlaces
    missing: NoPlaces | None = None
    tried: list[_Agreed] = []
    for steps in _tries(len(pack.queries)):
        agreed = yield from _agreed(pack, at_us, until_us, ask)
        if isinstance(agreed, NoPlaces):
            return agreed
        # The first and the last instant at which each member alone has a place.
        tried, at_us = [*tried[:1], agreed], agreed.at_us
        places = yield from take_at(schedule, job, pack, at_us, agreed.starts)
        if isinstance(places, Places):
            # One that has no place beside the others decides, unless another one has none at all before.
            member, moves = agreed.member, agreed.moves
            if missing is not None and not moves:
                member, moves = missing.member, missing.moves
            return msgspec.structs.replace(places, member=member, moves=moves)
        missing = places
        yield
        next_us = _next_us(schedule, pack, at_us, steps)
        at_us = min(next_us, max(places.again_us, at_us + 1))
        if at_us >= until_us:
            break
    if missing is not None and until_us >= INFINITY_US:
        # What finds no place here, the last time behind all plans, would never begin.
        for agreed in tried:
            places = yield from take_at(schedule, job, pack, agreed.at_us, agreed.starts, spares=True)
            if isinstance(places, Places):
                return msgspec.structs.replace(places, member=missing.member, moves=missing.moves)
    return missing or NoPlaces(0)


def _tries(members: int) -> list[int]:
    """For each instant tried, how many of those at which something ends lie between it and the next."""
    near = min(NEAR_TRIES, max(4, BOOKED_MAX // members))
    far = min(FAR_TRIES, max(2, BOOKED_MAX // members))
    return [*[1] * near, *[1 << (number * FAR_TRIES // far) for number in range(1, far + 1)]]


def sooner_us(
    schedule: Schedule, pack: PackQuery, places: Sequence[Booking], from_us: int
) -> Generator[None, None, int | None]:
    """Lower bound of an earlier start for a pack with these places, as if they were released; None: there is none.

    Nothing is changed, and most packs have none: the members are asked one by one.
    """
    start_us = places[0].start_us
    nodes = {span.node for one in places for span in one.spans}
    stay = start_us, max([one.stop_us for one in places])
    for index in pack.order:
        query, delay_us = pack.queries[index], pack.delays_us[index]
        own = nodes, start_us + delay_us
        found_us = schedule.book.sooner_us(
            query.need, query.duration_us, from_us + delay_us, own, query.closed, stay
        )
        if found_us is None:
            return None
        from_us = max(from_us, found_us - delay_us)
        if index % MEMBERS_PER_SLICE == MEMBERS_PER_SLICE - 1:
            yield
    return from_us


def take_at(
    schedule: Schedule,
    job: Pending,
    pack: PackQuery,
    at_us: int,
    starts: Mapping[int, Start] = NO_STARTS,
    *,
    spares: bool = False,
) -> Generator[None, None, Places | NoPlaces]:
    """Take places such that the pack starts at exactly this instant; none is taken when one is missing.

    `starts` are those of the single members at that instant, as far as they are known. With `spares` members that fit alone,
    and beside the others in no order, leave them a node, and at last are mapped together.
    """
    order = list(pack.order)
    orders_max = min(ORDERS_MAX, max(2, BOOKED_MAX // len(order)))
    tried: dict[tuple[int, ...], dict[int, Booking]] = {}
    missing = NoPlaces(0)
    # An end that is rounded up never reaches into what comes behind it.
    marked = [at_us + delay_us for delay_us in pack.delays_us]
    schedule.book.mark(marked)
    try:
        while tuple(order) not in tried and len(tried) < orders_max:
            taken, failed = yield from _take_in(order, schedule, job, pack, at_us, starts)
            if failed is None:
                return _places(taken)
            missing = failed
            if not taken:
                return missing
            tried[tuple(order)] = taken
            # The others took what this one needs: it goes first.
            order.remove(missing.member)
            order.insert(0, missing.member)
        for tried_order, without in _spared(schedule, pack, tried) if spares else ():
            taken, failed = yield from _take_in(tried_order, schedule, job, without, at_us, NO_STARTS)
            if failed is None:
                return _places(taken)
        together = (yield from starts_together(schedule.book, pack.queries, marked)) if spares else {}
        if together:
            taken, failed = yield from _take_in(order, schedule, job, pack, at_us, NO_STARTS, together)
            if failed is None:
                return _places(taken)
    finally:
        schedule.book.unmark(marked)
    return missing


def _take_in(
    order: Sequence[int],
    schedule: Schedule,
    job: Pending,
    pack: PackQuery,
    at_us: int,
    starts: Mapping[int, Start],
    together: Mapping[int, Start] = NO_STARTS,
) -> Generator[None, None, tuple[dict[int, Booking], NoPlaces | None]]:
    """Take the places of the members in this order. Where one has none: what the others had, given back, and the lack.

    `starts` are those of single members alone, `together` those of members beside each other.
    """
    members = job.members
    taken: dict[int, Booking] = {}
    for index in order:
        known = together.get(index)
        if known is None:
            known = _beside(schedule, members[index], pack.queries[index], starts.get(index), taken)
        found = yield from _take(schedule, members[index], pack, index, at_us, known)
        if isinstance(found, NoPlaces):
            for other, booking in reversed(taken.items()):
                yield from schedule.giving(members[other], booking)
            return taken, found
        taken[index] = found
        if len(taken) % MEMBERS_PER_SLICE == 0:
            yield
    return taken, None


def _places(taken: Mapping[int, Booking]) -> Places:
    return Places(tuple([taken[index] for index in range(len(taken))]), 0, ())


def _spared(
    schedule: Schedule, pack: PackQuery, tried: Mapping[tuple[int, ...], dict[int, Booking]]
) -> Generator[tuple[tuple[int, ...], PackQuery]]:
    """The orders that came farthest, each with one node left out for one member: it may serve the others better."""
    positions = schedule.book.topology.positions
    left = min(SPARED_MAX, max(2, BOOKED_MAX // len(pack.queries)))
    for order, taken in sorted(tried.items(), key=lambda entry: -len(entry[1])):
        for index in reversed(taken):
            need = pack.queries[index].need
            nodes = dict.fromkeys([span.node for span in taken[index].spans]) if not need.members else ()
            for node in nodes:
                left -= 1
                if left < 0:
                    return
                elsewhere = msgspec.structs.replace(need, allowed=need.allowed & ~(1 << positions[node]))
                queries = list(pack.queries)
                queries[index] = msgspec.structs.replace(queries[index], need=elsewhere)
                yield order, msgspec.structs.replace(pack, queries=tuple(queries))


def _beside(
    schedule: Schedule,
    member: Pending,
    query: PlacementQuery,
    start: Start | None,
    taken: Mapping[int, Booking],
) -> Start | None:
    """The start that was found for the member alone, if it shares nothing with the members that have their places."""
    if start is None or query.constraints or any(query.need.wide):
        return None
    numbers = schedule.book.topology.numbers
    nodes = {numbers[position] for position, _, _ in start.chosen}
    stop_us, _ = ends_of(member, start.at_us)
    for other in taken.values():
        meets = other.start_us < stop_us and start.at_us < other.stop_us
        if meets and not nodes.isdisjoint([span.node for span in other.spans]):
            return None
    return start


def _take(
    schedule: Schedule, member: Pending, pack: PackQuery, index: int, at_us: int, known: Start | None
) -> Generator[None, None, Booking | NoPlaces]:
    """Take one member's place at its delay from the pack's start, beside those that are taken already."""
    query, start_us = pack.queries[index], at_us + pack.delays_us[index]
    if known is not None:
        found = start_with(query, start_us, known.chosen)
    else:
        found = start_exactly(schedule.book, query, start_us)
    if isinstance(found, NoStart):
        again_us = INFINITY_US
        if query.constraints:
            later = first_start(schedule.book, query, start_us)
            again_us = later.at_us - pack.delays_us[index] if isinstance(later, Start) else INFINITY_US
        return NoPlaces(index, found.moves, again_us=again_us)
    spans = spans_of(schedule.book.topology, query.need, found.chosen)
    stop_us, until_us = ends_of(member, start_us)
    now_us = schedule.book.now_us
    booking = Booking(member.job_id, start_us, stop_us, spans, query.need.wide, now_us, 1, until_us)
    try:
        yield from schedule.taking(member, booking)
    except ProfileError:
        return NoPlaces(index)
    return booking


def _agreed(
    pack: PackQuery, from_us: int, until_us: int, first: First
) -> Generator[None, None, _Agreed | NoPlaces]:
    """The first start of the pack at which each member alone has a place."""
    queries, delays_us = pack.queries, pack.delays_us
    starts: dict[int, Start] = {}
    at_us, member = from_us, 0
    moves: tuple[Move, ...] = ()
    content = index = moved = ruled = 0
    while content < len(queries):
        found = first(queries[index], at_us + delays_us[index])
        if isinstance(found, Why):
            return NoPlaces(index, why=found)
        if isinstance(found, NoStart):
            return NoPlaces(index, found.moves)
        starts[index] = found
        start_us = found.at_us - delays_us[index]
        if start_us > at_us:
            at_us, member, moves, content = start_us, index, found.moves, 0
            moved += 1
            ruled += bool(moves) and moves[-1].kind != RESOURCES
            if at_us >= until_us or ruled > MOVES_MAX or moved > ASKED_MAX:
                return NoPlaces(index, moves)
            yield
        elif index % MEMBERS_PER_SLICE == MEMBERS_PER_SLICE - 1:
            yield
        content += 1
        index = (index + 1) % len(queries)
    return _Agreed(at_us, member, moves, starts)


def _next_us(schedule: Schedule, pack: PackQuery, at_us: int, steps: int) -> int:
    """The start of the pack so many instants later at which something ends for one of its members, or the last such start;
    `INFINITY_US` when nothing ends any more.
    """
    found_us = INFINITY_US
    if steps > schedule.book.slots:
        last_us = schedule.book.last_stop_us
        return last_us if last_us > at_us else INFINITY_US
    for _ in range(steps):
        next_us = INFINITY_US
        for query, delay_us in zip(pack.queries, pack.delays_us, strict=True):
            stop_us = schedule.book.next_stop_us(at_us + delay_us)
            for closure in query.closed:
                if at_us + delay_us < closure.stop_us < stop_us:
                    stop_us = closure.stop_us
            if stop_us < INFINITY_US:
                next_us = min(next_us, stop_us - delay_us)
        if next_us >= INFINITY_US:
            break
        at_us = found_us = next_us
    return found_us
