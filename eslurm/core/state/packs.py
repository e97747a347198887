"""The index of packs, and the queue entries of those that have not begun.

A pack that has not begun is one entry in the queue, its first member's, which carries the others (D-04). Invariant: an entry
carries all of them: a pack of which a member is missing, in the middle of a submission or of a cancellation, is in no queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from eslurm.core.model.job import Job
from eslurm.core.model.job_states import FINAL
from eslurm.core.model.pack import PackPlace
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.queue import Follower, Pending
from eslurm.core.state.queue_entries import pending_of

PackIndex: TypeAlias = dict[int, tuple[int, ...]]
"""By pack the ids of its members that have not ended, in their order; their ids ascend."""


def follow(index: PackIndex, new: Job, place: PackPlace) -> None:
    """Follow the replacement of a member's record."""
    living = index.get(place.pack_id, ())
    is_known = new.job_id in living
    if new.state not in FINAL:
        if not is_known:
            index[place.pack_id] = tuple(sorted((*living, new.job_id)))
    elif is_known:
        left = tuple([job_id for job_id in living if job_id != new.job_id])
        if left:
            index[place.pack_id] = left
        else:
            del index[place.pack_id]


def is_whole(index: PackIndex, place: PackPlace) -> bool:
    """Check whether the pack has begun, or all of its members wait for that."""
    return bool(place.anchor_us) or len(index.get(place.pack_id, ())) == place.count


def phases_of(job: Job, delays_us: Sequence[int], phases_us: int) -> int:
    """The part of `phases_us`, the expected prolog and epilog, that counts for a member beside members with these delays.

    While the pack has not begun it does not reach beyond the start of a member that begins after its time limit: a pack is
    accepted by limits, and one whose jobs follow each other on the same nodes would have no place at all.
    """
    place, limit_us = job.pack, job.spec.time_limit_s * SECOND_US
    if place is None or place.anchor_us or not limit_us:
        return phases_us
    end_us = place.delay_us + limit_us
    return min([phases_us, *[delay_us - end_us for delay_us in delays_us if delay_us >= end_us]])


def delays_of(index: PackIndex, jobs: Mapping[int, Job], pack_id: int) -> list[int]:
    """The delays of a pack's members: of one that has not begun, all have not ended."""
    found = [jobs[job_id].pack for job_id in index.get(pack_id, ())]
    return [place.delay_us for place in found if place is not None]


def with_member(entry: Pending, member: Job, *, counts: bool, phases_us: int) -> Pending:
    """The entry of a pack's first member with another one as it is now; the entry itself when nothing of it has changed.

    `counts`: forecasts count; `phases_us` is what members expect of their prolog and epilog.
    """
    assert member.pack is not None
    phases_us = phases_of(member, entry.delays_us, phases_us)
    now = Follower(member.pack.delay_us, pending_of(member, 1, use_forecasts=counts, phases_us=phases_us))
    if now in entry.followers:
        return entry
    others = [now if one.job.job_id == member.job_id else one for one in entry.followers]
    return replace(entry, followers=tuple(others))


def followers(
    index: PackIndex, jobs: Mapping[int, Job], first: Job, *, counts: bool, phases_us: int
) -> tuple[Follower, ...]:
    """The other members of a pack that has not begun; none of any job but its first. See `with_member`."""
    place = first.pack
    if place is None or place.index or place.anchor_us:
        return ()
    found: list[Follower] = []
    delays_us = delays_of(index, jobs, place.pack_id)
    for job_id in index.get(place.pack_id, ()):
        one = jobs[job_id]
        if one.pack is not None and one.pack.index:
            own_us = phases_of(one, delays_us, phases_us)
            entry = pending_of(one, 1, use_forecasts=counts, phases_us=own_us)
            found.append(Follower(one.pack.delay_us, entry))
    return tuple(found)
