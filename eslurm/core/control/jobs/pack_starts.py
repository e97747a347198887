"""Starts of packs: which placements of one plan begin together.

Invariant: a pack begins with its first member and with each member without a delay, or not at all; members that are placed
in one plan are placed together or not at all; none is placed before its time.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from eslurm.core.model.job import Job
from eslurm.core.model.job_states import JobState
from eslurm.core.model.placement import Placement
from eslurm.core.state.cluster import State, waits
from eslurm.core.state.job_indexes import is_free
from eslurm.core.state.packs import is_whole


def together(
    state: State, pack_id: int, placements: Sequence[Placement], now_us: int
) -> list[tuple[Job, Placement]]:
    """The members to place, the first one first, each with its placement; empty when one of them may not start now."""
    found = sorted([(state.get_job(one.job_id), one) for one in placements], key=lambda pair: pair[0].job_id)
    if any(placement.until_us <= now_us for _, placement in found):
        return []
    job, placement = found[0]
    assert job.pack is not None
    if job.pack.anchor_us:
        free = all(waits(job) and _start_us(job) <= now_us for job, _ in found)
        return [(job, replace(placement, anchor_us=0)) for job, placement in found] if free else []
    is_begun = job.job_id == pack_id and placement.anchor_us and is_whole(state.packs, job.pack)
    if not is_begun or [job.job_id for job, _ in found] != _first_members(state, pack_id):
        return []
    if any(job.state is not JobState.PENDING or not is_free(job) for job, _ in found):
        return []
    return found


def _start_us(job: Job) -> int:
    return job.pack.start_us if job.pack is not None else 0


def _first_members(state: State, pack_id: int) -> list[int]:
    """The members that begin with the pack."""
    members = [state.get_job(job_id) for job_id in state.packs.get(pack_id, ())]
    return [one.job_id for one in members if one.pack is not None and not one.pack.delay_us]
