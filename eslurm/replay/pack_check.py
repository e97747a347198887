"""Invariants of packs: a pack that has not begun is one entry of the queue, or in no queue; never some of its members.

Each function names what is wrong; `core.state.invariants` raises it.
"""

from __future__ import annotations

from collections.abc import Iterator

from eslurm.core.model.job import Job
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.state.cluster import State


def problems(state: State) -> Iterator[str]:
    """Contradictions in the packs, one text each."""
    living: dict[int, list[Job]] = {}
    for job_id in sorted(state.jobs):
        job = state.jobs[job_id]
        if job.pack is not None and job.state not in FINAL:
            living.setdefault(job.pack.pack_id, []).append(job)
    index = {pack_id: tuple([job.job_id for job in jobs]) for pack_id, jobs in living.items()}
    if index != state.packs:
        yield f"the index of packs is {state.packs}, by the jobs {index}"
    for pack_id, jobs in living.items():
        yield from _of_members(pack_id, jobs)
        anchored = any(job.pack is not None and job.pack.anchor_us for job in jobs)
        yield from _of_begun(state, pack_id, jobs) if anchored else _of_waiting(state, pack_id, jobs)


def _of_members(pack_id: int, jobs: list[Job]) -> Iterator[str]:
    places = [job.pack for job in jobs if job.pack is not None]
    if len({place.count for place in places}) > 1:
        yield f"pack {pack_id}: its members disagree about their number"
    indices = [place.index for place in places]
    if indices != sorted(set(indices)) or not 0 <= indices[0] <= indices[-1] < places[0].count:
        yield f"pack {pack_id}: its members have the places {indices}"
    if len({place.anchor_us for place in places}) > 1:
        yield f"pack {pack_id}: its members disagree about its start"
    for job, place in zip(jobs, places, strict=True):
        if (place.index == 0) != (job.job_id == pack_id) or (place.index == 0 and place.delay_us):
            yield f"job {job.job_id} has the place {place}"
        if job.is_array:
            yield f"array {job.job_id} is a member of pack {pack_id}"


def _of_waiting(state: State, pack_id: int, jobs: list[Job]) -> Iterator[str]:
    """Of a pack that has not begun: nothing of it runs, and the first member's entry has all others."""
    if len({job.hold for job in jobs}) > 1:
        yield f"pack {pack_id}: some of its members are held"
    for job in jobs:
        if job.state is not JobState.PENDING or job.attempt is not None:
            yield f"job {job.job_id} is {job.state.value}, and pack {pack_id} has not begun"
        if job.job_id != pack_id and (job.job_id in state.queue or job.job_id in state.later):
            yield f"job {job.job_id} is planned alone, and pack {pack_id} has not begun"
    entry = state.queue.find(pack_id) or state.later.find(pack_id)
    if entry is None:
        return
    carried = {one.job.job_id: one.delay_us for one in entry.followers}
    others = {job.job_id: job.pack.delay_us for job in jobs if job.pack is not None and job.pack.index}
    if carried != others or len(jobs) < (jobs[0].pack.count if jobs[0].pack is not None else 0):
        yield f"the entry of pack {pack_id} carries {carried}, and there are {others}"


def _of_begun(state: State, pack_id: int, jobs: list[Job]) -> Iterator[str]:
    """Of a pack that has begun: each member that waits has an entry of its own, at the start that it is owed."""
    count = jobs[0].pack.count if jobs[0].pack is not None else 0
    if len(jobs) == count and all(job.state is JobState.PENDING for job in jobs):
        yield f"pack {pack_id} has begun, and all of it waits"
    for job in jobs:
        entry = state.queue.find(job.job_id) or state.later.find(job.job_id)
        if entry is None or job.pack is None:
            continue
        if entry.followers:
            yield f"job {job.job_id} still carries {entry.followers}"
        owed_us = job.pack.start_us if job.pack.index and not job.pack.includes(job.started_us) else 0
        if entry.is_owed != bool(owed_us) or entry.start_at_us != owed_us:
            yield f"job {job.job_id} is planned for {entry.start_at_us}, and owed {owed_us}"
