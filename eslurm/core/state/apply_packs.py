"""Consequences of a fact about one member of a pack for the others.

A pack begins with its first member, whose planned start is then the anchor of all. While nothing of it runs and nothing has
ended it waits as a whole, again if need be: one hold, one time before which it does not start.
"""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.model.job import Job
from eslurm.core.model.job_states import HOLDS, JobState
from eslurm.core.model.promise import Promise
from eslurm.core.state.cluster import State


def members(state: State, pack_id: int) -> list[Job]:
    """The members of a pack that have not ended, in their order."""
    return [state.jobs[job_id] for job_id in state.packs.get(pack_id, ())]


def begin(state: State, pack_id: int, anchor_us: int) -> None:
    """Set the anchor of all other members: the first one has been placed."""
    for one in members(state, pack_id):
        if one.pack is not None and not one.pack.anchor_us:
            state.put_job(replace(one, pack=replace(one.pack, anchor_us=anchor_us)))


def note_failure(state: State, job: Job, outcome: JobState) -> None:
    """Note in the first member's place that a member ends with this outcome, unless it ends well or waits again."""
    if job.pack is None or outcome in (JobState.COMPLETED, JobState.PENDING):
        return
    first = state.find_job(job.pack.pack_id)
    if first is not None and first.pack is not None and not first.pack.failed:
        state.put_job(replace(first, pack=replace(first.pack, failed=job.job_id)))


def wait_again(state: State, job: Job) -> None:
    """Let the pack wait as a whole again when nothing of it runs and nothing has ended: its next start begins it anew.

    Holds and pauses of any member are those of all then.
    """
    place = job.pack
    if place is None or not place.anchor_us:
        return
    found = members(state, place.pack_id)
    if len(found) < place.count or any(one.state is not JobState.PENDING for one in found):
        return
    held = max(found, key=lambda one: HOLDS.index(one.hold))
    not_before_us = max(one.not_before_us for one in found)
    # The first one last: until then the others are in no queue, and its entry carries all of them at once.
    for one in reversed(found):
        assert one.pack is not None
        # What was promised to it counts from a start that has come to nothing.
        state.put_promise(Promise(one.job_id))
        state.put_job(
            replace(
                one,
                pack=replace(one.pack, anchor_us=0, wish=None),
                hold=held.hold,
                reason_text=held.reason_text if held.hold else one.reason_text,
                not_before_us=0 if one.pack.index else not_before_us,
            )
        )


def held_with(state: State, job: Job, hold: str) -> list[Job]:
    """The jobs that are held and released as one with this: the members of a pack that has not begun.

    The first one is held first and released last, so that its entry is made once.
    """
    place = job.pack
    if place is None or place.anchor_us:
        return [job]
    found = members(state, place.pack_id)
    return found if hold else found[::-1]
