"""Why the jobs of a pack wait: the member that decides the start of all, and for the others the start of the first (D-04).

Invariant: nothing here changes state or the planner's schedule.
"""

from __future__ import annotations

from collections.abc import Generator

from msgspec.structs import replace

from eslurm.core.explain.whatif import WhatIf
from eslurm.core.explain.why import Reason, Sources, known_us, plan_reasons
from eslurm.core.model.option_text import clock
from eslurm.core.model.pack import PackPlace
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.assignments import assignment_of
from eslurm.core.plan.cycle.packs import NoPlaces, PackQuery, Places
from eslurm.core.plan.cycle.queue import Pending
from eslurm.core.plan.cycle.reasons import Why
from eslurm.core.plan.cycle.schedule import Booking, Schedule
from eslurm.core.plan.profile.search import PlacementQuery, Start

PACK = "pack"
"""The kind of the reason of a job that starts with its pack."""


def of_follower(schedule: Schedule, place: PackPlace, job_id: int) -> tuple[Reason, Booking | None]:
    """The reason of a job whose pack has not begun, and its booking in the plan of the first."""
    booking = booking_of(schedule, place, job_id)
    text = starts_after(place)
    if booking is None:
        text += f"; that one has no planned start: eswhy {place.pack_id} says why"
    return Reason(PACK, text, known_us(booking.start_us) if booking is not None else 0), booking


def starts_after(place: PackPlace) -> str:
    """The reason of a job whose pack has not begun."""
    return f"starts {delay_words(place.delay_us)} after job {place.pack_id}, the first of its pack"


def booking_of(schedule: Schedule, place: PackPlace, job_id: int) -> Booking | None:
    """The booking of a job whose pack has not begun."""
    return next((one for one in schedule.bookings.get(place.pack_id, ()) if one.job_id == job_id), None)


def of_draft(place: PackPlace) -> Reason:
    """The reason of a job of a pack that is not submitted."""
    return Reason(PACK, f"starts {delay_words(place.delay_us)} after the first job of the pack")


def words_of(job: Pending, member: int) -> str:
    """`part 1 (job 18, 00:30:00 after the first)`."""
    delay_us = job.delays_us[member]
    job_id = job.members[member].job_id
    # A pack that is not submitted has no ids.
    words = [f"job {job_id}"] if job_id > 0 else []
    words += [f"{delay_words(delay_us)} after the first"] if delay_us else []
    return f"part {member} ({', '.join(words)})" if words else f"part {member}"


def delay_words(delay_us: int) -> str:
    """`00:30:00`, `1-0:30:00`."""
    return clock(delay_us // SECOND_US).zfill(len("00:00:00"))


def with_member(job: Pending, member: int, changed: Pending) -> Pending:
    """The entry of a pack that has not begun, with another request of one of its members."""
    if not member:
        return replace(changed, followers=job.followers)
    followers = list(job.followers)
    followers[member - 1] = replace(followers[member - 1], job=changed)
    return replace(job, followers=tuple(followers))


def first_start(
    whatif: WhatIf, job: Pending, member: int, from_us: int
) -> Generator[None, None, Start | None]:
    """The first start of such a pack beside all plans, with the nodes of one of its members; None: there is none."""
    pack = whatif.pack(job)
    if isinstance(pack, Why):
        return None
    found = yield from first_places(whatif, job, pack, from_us)
    if isinstance(found, NoPlaces):
        return None
    topology = whatif.schedule.book.topology
    return Start(found.bookings[0].start_us, assignment_of(found.bookings[member], topology))


def reasons_of(
    whatif: WhatIf, job: Pending, pack: PackQuery | Why, member: int, sources: Sources
) -> Generator[None, None, list[Reason]]:
    """The reasons of a pack that has not begun: those of the member that decides. Empty: the plan knows none."""
    if member < 0:
        return [Reason(pack.kind.value, pack.text)] if isinstance(pack, Why) else []
    query: PlacementQuery | Why = (
        replace(pack, text=own_text(pack)) if isinstance(pack, Why) else pack.queries[member]
    )
    alone = replace(job.members[member], followers=())
    found = yield from plan_reasons(whatif, alone, query, sources)
    words = words_of(job, member)
    return [one if one.nodes_of else replace(one, text=f"{words}: {one.text}") for one in found]


def own_text(why: Why) -> str:
    """The reason of the member that decides, without its number."""
    return why.text.removeprefix(f"part {why.member}: ")


def first_places(
    whatif: WhatIf, job: Pending, pack: PackQuery, from_us: int
) -> Generator[None, None, Places | NoPlaces]:
    """The first places of all members beside all plans, as if the pack were planned now; they are given back."""
    found = yield from whatif.find_pack(job, pack, from_us)
    if isinstance(found, Places):
        for member, booking in zip(job.members, found.bookings, strict=True):
            yield from whatif.schedule.giving(member, booking)
    return found
