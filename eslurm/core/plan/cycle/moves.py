"""Answers to wishes: earlier starts of a pack's members to come (D-06), and longer limits of running jobs (D-07).

They are the last step of a cycle: each wish finds the plan of all jobs made, and takes only what that leaves free. What a
pack gives up for it stays unused until its grant is committed, which the next cycle sees (`settle`). Invariant: no other
job's planned start gets later, and a grant that is not committed changes none of the pack's own either.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from eslurm.core.model.dates import format_moment
from eslurm.core.model.moves import ExtendGrant, MoveGrant
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle import packs
from eslurm.core.plan.cycle.assignments import assignment_of
from eslurm.core.plan.cycle.placement_query import allows, query_of
from eslurm.core.plan.cycle.plan import Plan
from eslurm.core.plan.cycle.policy import Cycle
from eslurm.core.plan.cycle.queue import Follower, Pending, QueueEntry
from eslurm.core.plan.cycle.reasons import Why
from eslurm.core.plan.cycle.schedule import Booking, Held, Schedule
from eslurm.core.plan.cycle.snapshot import Snapshot
from eslurm.core.plan.cycle.wishes import WantedEnd, WantedStarts
from eslurm.core.plan.profile.profile import ProfileError
from eslurm.core.plan.profile.search import Move, PlacementQuery
from eslurm.core.plan.slices import exhaust

SOON_US: Final = 100_000
"""A granted start lies so far in the future at least: it has to be committed before it is due."""


class Member(msgspec.Struct, frozen=True):
    """A member with its place in the plan."""

    entry: QueueEntry
    place: Booking
    moves: tuple[Move, ...]
    why: Why | None
    query: PlacementQuery


def answered(cycle: Cycle, plan: Plan) -> Generator[None, None, Plan]:
    """The plan with the answers to all wishes of the snapshot."""
    wishes = cycle.snapshot.wishes
    if wishes is None:
        return plan
    schedule = cycle.schedule
    moved: list[MoveGrant] = []
    for wanted in wishes.starts:
        moved.append((yield from move(cycle, wanted)))
        yield
    extended: list[ExtendGrant] = []
    taken: list[Booking] = []
    for end in wishes.ends:
        grant, piece = extend(cycle, end)
        extended.append(grant)
        if piece is not None:
            # The next wish finds it taken; when it is committed, the longer attempt takes it.
            yield from schedule.taking(None, piece)
            taken.append(piece)
        yield
    for piece in reversed(taken):
        yield from schedule.giving(None, piece)
    return replace(
        plan,
        bookings=schedule.bookings.copy(),
        moves=schedule.moves.copy(),
        next_us=min(plan.next_us, schedule.next_start_us()),
        granted=tuple(moved),
        extended=tuple(extended),
    )


def settle(schedule: Schedule, snapshot: Snapshot) -> None:
    """Offer the old places of what was moved in the last cycle to others, once that is committed.

    What was not moved after all has lost its new place by now, and is planned anew at the start that it is still owed, where
    nothing has been planned meanwhile.
    """
    granted, schedule.granted = schedule.granted, {}
    owed = {entry.job_id: entry.job.start_at_us for entry in snapshot.fixed}
    for job_id, (start_us, old) in granted.items():
        if owed.get(job_id, start_us) == start_us:
            schedule.free_early(old.spans)


# ---- earlier starts ----


def move(cycle: Cycle, wanted: WantedStarts) -> Generator[None, None, MoveGrant]:
    """Book the members to come at the earliest time from the wanted one on at which all of them fit."""
    if not wanted.starts:
        return _not_moved(wanted, f"no job of pack {wanted.pack_id} is to come any more")
    first_us = min(start_us for _, start_us in wanted.starts)
    to_us = max(wanted.to_us, cycle.now_us + SOON_US)
    if to_us >= first_us:
        return _not_moved(wanted, "the next of its jobs is as early as that already")
    members = _members(cycle, wanted)
    if isinstance(members, str):
        return _not_moved(wanted, members)
    schedule = cycle.schedule
    # The first of those with a place is that of a pack whose start moves.
    own_us = members[0].place.start_us
    pack = _pack_of(members)
    query = packs.query_of_pack(pack, [member.query for member in members])
    assert not isinstance(query, Why)
    for member in members:
        yield from schedule.removing(member.entry.job_id)
    later_us = own_us - first_us
    found = yield from packs.find(schedule, pack, query, to_us + later_us, own_us)
    if isinstance(found, packs.NoPlaces) or found.bookings[0].start_us >= own_us:
        yield from _put_back(schedule, members)
        blocked = members[found.member].entry.job_id
        return _not_moved(wanted, f"job {blocked} finds no room before")
    earlier_us = own_us - found.bookings[0].start_us
    for member, place in zip(members, found.bookings, strict=True):
        job = replace(member.entry.job, start_at_us=place.start_us)
        # Shapes of the queue count upwards from 0: it has none before the state has moved the job.
        schedule.note(QueueEntry(*member.entry.turn, -job.job_id, job), (place,), ())
        schedule.followers.add(job.job_id)
        if member.why is not None:
            schedule.whys[job.job_id] = replace(member.why, planned_start_us=place.start_us)
        schedule.granted[job.job_id] = place.start_us, member.place
    text = f"{_length(earlier_us)} earlier"
    if found.bookings[0].start_us > to_us + later_us:
        blocked = members[found.member].entry.job_id
        text += f", of {_length(first_us - to_us)}: job {blocked} finds no room before"
    moved = tuple([(job_id, start_us - earlier_us) for job_id, start_us in wanted.starts])
    return MoveGrant(wanted.pack_id, wanted.serial, moved, text)


def _not_moved(wanted: WantedStarts, text: str) -> MoveGrant:
    return MoveGrant(wanted.pack_id, wanted.serial, (), text)


def _members(cycle: Cycle, wanted: WantedStarts) -> list[Member] | str:
    """The members that have the places they are owed; or the reason why none can be moved.

    One that has lost its place starts as early as it can anyway, and holds back none of the others.
    """
    schedule = cycle.schedule
    found: list[Member] = []
    for job_id, start_us in sorted(wanted.starts, key=lambda one: one[1]):
        bookings = schedule.bookings.get(job_id, ())
        if len(bookings) != 1 or bookings[0].start_us != start_us:
            continue
        entry = schedule.entries[job_id]
        query = cycle.queries.refused(entry.job) or cycle.queries.careful(entry)
        if isinstance(query, Why):
            return f"job {job_id} cannot be moved: {query.text}"
        moves, why = schedule.moves.get(job_id, ()), schedule.whys.get(job_id)
        found.append(Member(entry, bookings[0], moves, why, cycle.queries.clear_of_overruns(query)))
    return found or "none of its jobs that are to come has its place in the plan at present"


def _pack_of(members: Sequence[Member]) -> Pending:
    """The members as a pack of their own, which starts with the first of them."""
    first, *others = members
    followers = [Follower(one.place.start_us - first.place.start_us, one.entry.job) for one in others]
    return replace(first.entry.job, followers=tuple(followers))


def _put_back(schedule: Schedule, members: Sequence[Member]) -> Generator[None, None, None]:
    # An end that is rounded up never reaches into what comes behind it.
    marked = [member.place.start_us for member in members]
    schedule.book.mark(marked)
    try:
        for member in members:
            yield from schedule.adding(member.entry, (member.place,), member.moves)
            if member.why is not None:
                schedule.whys[member.entry.job_id] = member.why
    finally:
        schedule.book.unmark(marked)


# ---- longer limits ----


def extend(cycle: Cycle, wanted: WantedEnd) -> tuple[ExtendGrant, Booking | None]:
    """The longest limit up to the wanted one with which no planned job loses its place; and what it takes for that."""
    held = cycle.schedule.held.get((wanted.job_id, wanted.attempt))
    if held is None or held.running.job is None:
        return _not_longer(wanted, "its run has ended"), None
    place = held.booking
    from_us = max(place.stop_us, cycle.now_us)
    # It holds its nodes until its epilog has ended.
    since_us = wanted.since_us + held.running.job.phases_us
    wanted_us = since_us + wanted.time_limit_s * SECOND_US
    free_us = (
        cycle.schedule.book.free_until_us(place.pairs, from_us, wanted_us)
        if from_us < wanted_us
        else wanted_us
    )
    most_s = (free_us - since_us) // SECOND_US
    granted_s = _allowed_s(cycle, held, wanted, most_s) if most_s > wanted.has_s else wanted.has_s
    if granted_s <= wanted.has_s:
        return _not_longer(wanted, _obstacle(cycle, free_us, is_room=most_s <= wanted.has_s)), None
    until_us = since_us + granted_s * SECOND_US
    text = f"time limit {granted_s} s"
    if granted_s < wanted.time_limit_s:
        text += f", of {wanted.time_limit_s} s: {_obstacle(cycle, free_us, is_room=granted_s == most_s)}"
    piece = _piece(held, from_us, until_us)
    return ExtendGrant(wanted.job_id, wanted.attempt, wanted.serial, granted_s, text), piece


def _not_longer(wanted: WantedEnd, text: str) -> ExtendGrant:
    return ExtendGrant(wanted.job_id, wanted.attempt, wanted.serial, 0, text)


def _obstacle(cycle: Cycle, at_us: int, *, is_room: bool) -> str:
    if not is_room:
        return "a limit, a reservation or a pool lets it have no more"
    calendar = cycle.snapshot.calendar
    when = f" from {format_moment(at_us, calendar.offset_s)} on" if calendar is not None else ""
    return f"another job is planned on its nodes{when}"


def _allowed_s(cycle: Cycle, held: Held, wanted: WantedEnd, most_s: int) -> int:
    """The longest limit up to that which the rules allow."""
    low_s, high_s = wanted.has_s, most_s
    schedule, job = cycle.schedule, held.running.job
    schedule.discharge(job, held.booking)
    try:
        if _is_allowed(cycle, held, wanted, high_s):
            return high_s
        while high_s - low_s > 1:
            middle_s = (low_s + high_s) // 2
            if _is_allowed(cycle, held, wanted, middle_s):
                low_s = middle_s
            else:
                high_s = middle_s
    finally:
        schedule.charge(job, held.booking)
    return low_s


def _is_allowed(cycle: Cycle, held: Held, wanted: WantedEnd, limit_s: int) -> bool:
    schedule, now_us = cycle.schedule, cycle.now_us
    until_us = wanted.since_us + limit_s * SECOND_US
    job = held.running.job
    assert job is not None
    # What is left of it, as if it began now: so rules look at the whole rest, up to its limit.
    rest = replace(
        job, time_limit_us=until_us - now_us, estimate_us=0, start_at_us=0, is_owed=False, followers=()
    )
    if not cycle.snapshot.has_partitions(rest):
        return False
    query = query_of(rest, schedule.need(rest, cycle.snapshot.partitions), schedule.rules, now_us)
    if isinstance(query, Why) or not allows(
        query, now_us, assignment_of(held.booking, cycle.ledger.topology, len(rest.parts))
    ):
        return False
    from_us, free_from_us = max(held.booking.stop_us, now_us), until_us + job.phases_us
    if free_from_us <= from_us:
        return True
    piece = _piece(held, from_us, free_from_us)
    assert piece is not None
    try:
        exhaust(schedule.taking(None, piece))
    except ProfileError:
        # Its cluster-wide resources are planned for other jobs.
        return False
    exhaust(schedule.giving(None, piece))
    return True


def _piece(held: Held, from_us: int, until_us: int) -> Booking | None:
    """Amounts of the attempt beyond its expected end; None: it ends before."""
    if until_us <= from_us:
        return None
    return replace(held.booking, start_us=from_us, stop_us=until_us, until_us=until_us)


def _length(us: int) -> str:
    """A length of time in whole seconds, or in the milliseconds that a short one has."""
    return f"{us // SECOND_US} s" if us >= SECOND_US else f"{us // 1_000} ms"
