"""Beginnings of packs: members that begin together are placed together, the others get entries of their own (D-04).

The planned start of the first member is the anchor, from which the delays of all others count. Invariant: after a beginning
each member is placed, or booked under its own id with the start that it is owed.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from eslurm.core.model.job import Span
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle import packs
from eslurm.core.plan.cycle.placement_query import allows, is_open
from eslurm.core.plan.cycle.queries import Queries
from eslurm.core.plan.cycle.queue import Pending, QueueEntry
from eslurm.core.plan.cycle.reasons import Why, WhyKind, kind_of, nodes_unavailable
from eslurm.core.plan.cycle.schedule import Booking, Schedule, ends_of
from eslurm.core.plan.cycle.shortage import Reasons
from eslurm.core.plan.placement.compiled_request import CompiledRequest, joined
from eslurm.core.plan.placement.mapping import choose, spans_of
from eslurm.core.plan.placement.protocols import Assignment, Constraint
from eslurm.core.plan.profile.profile import ProfileError
from eslurm.core.plan.profile.search import RESOURCES, NoStart, PlacementQuery, first_start
from eslurm.core.plan.rules.limits import Area
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.vector import add, sum_per_node

TOGETHER_MAX: Final = 16
"""Members of a pack of which those that run at the same time are looked at together: a wait is explained in each plan."""


class Cycle(Protocol):
    """The planning cycle as the beginning of a pack uses it (`policy.Cycle`, which begins packs by this module)."""

    now_us: int
    ledger: Ledger
    schedule: Schedule
    reasons: Reasons
    queries: Queries

    def chosen(self, booking: Booking) -> Assignment | None:
        """The booking's nodes; None when one of them is out of service."""

    def booking(
        self, job: Pending, need: CompiledRequest, start_us: int, spans: tuple[Span, ...], tasks: int = 1
    ) -> Booking:
        """A booking of the job at that time on these nodes."""

    def late_us(self, planned: Booking) -> int:
        """Delay of a planned start, if short; else 0."""

    def place(self, booking: Booking, late_us: int = 0, anchor_us: int = 0) -> Generator[None, None, None]:
        """Note a start that the schedule has booked already."""


def start_now(cycle: Cycle, entry: QueueEntry, kept: Sequence[Booking]) -> Generator[None, None, Why | None]:
    """Begin the pack now, without delaying a booking; the reason when it cannot. `kept` was promised to it."""
    job = entry.job
    pack = cycle.queries.careful_pack(entry)
    if isinstance(pack, Why):
        return pack
    if kept and cycle.late_us(kept[0]) and (yield from _take_kept(cycle, job, pack, kept)):
        yield from begin(cycle, entry, kept)
        return None
    found = yield from packs.take_at(cycle.schedule, job, pack, cycle.now_us, spares=True)
    if isinstance(found, packs.NoPlaces):
        return why_not(cycle, pack, found, cycle.now_us)
    yield from begin(cycle, entry, found.bookings)
    return None


def promise(cycle: Cycle, entry: QueueEntry) -> Generator[None, None, bool]:
    """Book the first possible start of the pack, all members or none."""
    job = entry.job
    pack = cycle.queries.careful_pack(entry, is_first=True)
    if isinstance(pack, Why):
        return False
    found = yield from packs.find(cycle.schedule, job, pack, cycle.now_us)
    if isinstance(found, packs.NoPlaces):
        return False
    cycle.schedule.note(entry, found.bookings, found.moves)
    return True


def renew(cycle: Cycle, entry: QueueEntry, kept: Sequence[Booking]) -> Generator[None, None, bool]:
    """Book a withdrawn promise of the pack again, as it was."""
    pack = cycle.queries.of_pack(entry)
    if kept[0].start_us <= cycle.now_us or isinstance(pack, Why):
        return False
    if not (yield from _take_kept(cycle, entry.job, pack, kept)):
        return False
    cycle.schedule.note(entry, kept, cycle.schedule.moves.get(entry.job_id, ()))
    return True


def may_begin(
    cycle: Cycle,
    entry: QueueEntry,
    pack: packs.PackQuery,
    places: Sequence[Booking],
    *,
    with_areas: bool = True,
) -> Generator[None, None, bool]:
    """Check whether the pack, whose places are booked, may begin: what begins now is free, and the rules let all begin.

    An attempt may have outlived its expected end. `with_areas`: areas are checked again, member by member. Their answer
    depends on which member is booked first, so that a pack on time, whose order is the planner's, does without.
    """
    if not _fit_now(cycle, pack, places):
        return False
    if not any(query.constraints for query in pack.queries):
        return _are_open(cycle, pack, places)
    schedule, job = cycle.schedule, entry.job
    for member, place in zip(job.members, places, strict=True):
        yield from schedule.giving(member, place)
    is_allowed = yield from _take_kept(cycle, job, pack, places, without=() if with_areas else (Area,))
    if not is_allowed:
        for member, place in zip(job.members, places, strict=True):
            yield from schedule.taking(member, place)
    return is_allowed


def begin(cycle: Cycle, entry: QueueEntry, places: Sequence[Booking]) -> Generator[None, None, None]:
    """Place the members that begin with the first, and book the others under their own ids.

    The places are in the profile, and no longer in the pack's name.
    """
    schedule, job = cycle.schedule, entry.job
    anchor_us, late_us = places[0].start_us, cycle.late_us(places[0])
    now: list[tuple[Pending, Booking]] = []
    others: list[QueueEntry] = []
    for member, delay_us, place in zip(job.members, job.delays_us, places, strict=True):
        schedule.moved.add(member.job_id)
        schedule.changed_ends.add(member.job_id)
        if delay_us:
            others.append(_follow(cycle, job, member, place))
        else:
            now.append((member, place))
    for member, place in now:
        begun = place
        if late_us:
            # It moves as a whole: the plans in its way give way, perhaps those of its own pack.
            stop_us, until_us = ends_of(member, cycle.now_us)
            begun = replace(place, start_us=cycle.now_us, stop_us=stop_us, until_us=until_us)
            yield from schedule.giving(member, place)
            schedule.start(member, begun, must=True)
        else:
            schedule.starting.append((member, begun))
        schedule.slack.forget(member.job_id)
        schedule.whys.pop(member.job_id, None)
        yield from cycle.place(begun, late_us, anchor_us if member is job else 0)
    for other in others:
        if other.job_id not in schedule.bookings:
            schedule.displaced.pop(other.job_id, None)
            yield from _as_early_as_possible(cycle, other)


def why_not(cycle: Cycle, pack: packs.PackQuery, missing: packs.NoPlaces, from_us: int) -> Why:
    """The reason of a pack that cannot begin then."""
    member = missing.member
    if missing.why is not None:
        return packs.of_member(missing.why, member)
    query, delay_us = pack.queries[member], pack.delays_us[member]
    last = missing.moves[-1] if missing.moves else None
    if last is not None and last.kind != RESOURCES:
        return packs.of_member(Why(kind_of(last.kind), last.text), member)
    missing_nodes = _out_of_service(cycle, pack)
    if missing_nodes is not None:
        return missing_nodes
    if not delay_us and from_us == cycle.now_us:
        return packs.of_member(cycle.reasons.why_not_now(query, missing.moves), member)
    return packs.of_member(_too_little(cycle, query, delay_us), member)


def why_waiting(cycle: Cycle, pack: packs.PackQuery, places: packs.Places) -> Why:
    """The reason of a pack with a planned start: that of the member that decided it."""
    member, start_us = places.member, places.bookings[0].start_us
    is_ruled = bool(places.moves) and places.moves[-1].kind != RESOURCES
    if is_ruled or not pack.delays_us[member]:
        why = cycle.reasons.why_waiting(pack.queries[member], places.moves, start_us)
    else:
        why = _too_little(cycle, pack.queries[member], pack.delays_us[member])
        why = replace(why, planned_start_us=start_us)
    return packs.of_member(why, member)


def _out_of_service(cycle: Cycle, pack: packs.PackQuery) -> Why | None:
    """The reason of a pack for which the nodes in service are too few, whatever ends: it holds up nothing behind it."""
    ledger, needs = cycle.ledger, [query.need for query in pack.queries]
    if not any(need.allowed & ~ledger.usable for need in needs):
        return None
    empty = cycle.reasons.emptied()
    for member, need in enumerate(needs):
        if choose(empty, need) is None:
            return packs.of_member(nodes_unavailable(need, ledger), member)
    for group in _groups(pack) if len(needs) <= TOGETHER_MAX else ():
        parts = [part for member in group for part in needs[member].members or (needs[member],)]
        if choose(empty, joined(parts)) is None:
            named = ", ".join(map(str, group[:-1]))
            text = (
                f"parts {named} and {group[-1]} run at the same time, and the nodes in service are too few "
                "for them together"
            )
            return Why(WhyKind.NODES_UNAVAILABLE, text, member=group[0])
    return None


def _groups(pack: packs.PackQuery) -> list[tuple[int, ...]]:
    """The members that run at the same time, at each instant at which one begins; without those that run alone."""
    found: dict[tuple[int, ...], None] = {}
    for at_us in pack.delays_us:
        stays = zip(pack.delays_us, pack.queries, strict=True)
        group = [member for member, (us, query) in enumerate(stays) if us <= at_us < us + query.duration_us]
        if len(group) > 1:
            found[tuple(group)] = None
    return list(found)


def _too_little(cycle: Cycle, query: PlacementQuery, delay_us: int) -> Why:
    """The reason of a member for which there is too little at its delay, or with the nodes in service at all."""
    if choose(cycle.reasons.emptied(), query.need) is None:
        return nodes_unavailable(query.need, cycle.ledger)
    return Why(WhyKind.RESOURCES, f"too little is free for it {_clock(delay_us)} after the start of the pack")


def _follow(cycle: Cycle, job: Pending, member: Pending, place: Booking) -> QueueEntry:
    """Book the place of a member that begins later under its own id, as the state will have it once the pack has begun."""
    schedule = cycle.schedule
    owed = replace(
        member,
        start_at_us=place.start_us,
        is_owed=True,
        after=(),
        after_any=False,
        not_before_us=0,
        followers=(),
    )
    # Shapes of the queue count upwards from 0: it has none before the state has placed the first member.
    entry = QueueEntry(-owed.priority, owed.submitted_us, owed.job_id, -owed.job_id, owed)
    schedule.note(entry, (place,), ())
    schedule.followers.add(owed.job_id)
    text = (
        f"starts {_clock(place.start_us - cycle.now_us)} from now: its pack has begun with job {job.job_id}"
    )
    schedule.whys[owed.job_id] = Why(WhyKind.BEGIN_TIME, text, place.start_us)
    return entry


def _as_early_as_possible(cycle: Cycle, entry: QueueEntry) -> Generator[None, None, None]:
    """Book a follower that the late beginning of its pack has displaced, from its own start on."""
    schedule, job = cycle.schedule, entry.job
    query = cycle.queries.of(entry)
    if isinstance(query, Why):
        return
    found = first_start(schedule.book, query, job.start_at_us)
    if isinstance(found, NoStart):
        return
    spans = spans_of(schedule.book.topology, query.need, found.chosen)
    booking = cycle.booking(job, query.need, found.at_us, spans)
    yield from schedule.adding(entry, (booking,), found.moves)


def _take_kept(
    cycle: Cycle,
    job: Pending,
    pack: packs.PackQuery,
    kept: Sequence[Booking],
    *,
    without: tuple[type[Constraint], ...] = (),
) -> Generator[None, None, bool]:
    """Take these places if all are free and the rules let all members begin then; none is taken otherwise.

    Constraints of the kinds in `without` are left out.
    """
    schedule = cycle.schedule
    members = job.members
    if len(kept) != len(members) or not _are_open(cycle, pack, kept):
        return False
    taken = 0
    for member, query, place in zip(members, pack.queries, kept, strict=True):
        chosen = cycle.chosen(place)
        at_us = max(place.start_us, cycle.now_us)
        if chosen is None or (query.constraints and not allows(query, at_us, chosen, without=without)):
            break
        try:
            yield from schedule.taking(member, place)
        except ProfileError:
            break
        taken += 1
    if taken == len(members):
        return True
    for member, place in zip(members[:taken], kept, strict=False):
        yield from schedule.giving(member, place)
    return False


def _are_open(cycle: Cycle, pack: packs.PackQuery, places: Sequence[Booking]) -> bool:
    """Check whether the interval of each member and the nodes that are kept for others let it begin then."""
    for query, place in zip(pack.queries, places, strict=True):
        chosen = cycle.chosen(place)
        if chosen is None:
            return False
        at_us = place.start_us
        if at_us < cycle.now_us:
            # The moment that passes until a planned start is noticed costs no job a window that it just fits.
            query = replace(query, from_us=at_us)
            if not is_open(_at_once(cycle, query), cycle.now_us, chosen):
                return False
        if not is_open(query, at_us, chosen):
            return False
    return True


def _at_once(cycle: Cycle, query: PlacementQuery) -> PlacementQuery:
    return replace(query, from_us=cycle.now_us, duration_us=1)


def _fit_now(cycle: Cycle, pack: packs.PackQuery, places: Sequence[Booking]) -> bool:
    """Check whether all that begins with the first member is free now, together."""
    ledger = cycle.ledger
    now = [place for place, delay_us in zip(places, pack.delays_us, strict=True) if not delay_us]
    wide = now[0].wide
    for place in now[1:]:
        wide = add(wide, place.wide)
    if any(asked > free for asked, free in zip(wide, ledger.wide_free, strict=False)):
        return False
    pairs = sum_per_node([pair for place in now for pair in place.pairs])
    return all(ledger.fits_on(node, amounts) for node, amounts in pairs)


def _clock(us: int) -> str:
    """A duration as H:MM:SS."""
    minutes, seconds = divmod(max(us, 0) // SECOND_US, 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
