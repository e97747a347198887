"""Starts of packs: which placements of one plan begin together.

Invariant: a pack begins with its first member and with each member without a delay, or not at all; members that are placed
in one plan are placed together or not at all; none is placed before its time.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from eslurm.core.control.jobs.pack_ends import is_cancelled
from eslurm.core.control.jobs.stopping import stop
from eslurm.core.model import facts
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import AttemptPhase, JobState, StopCause
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
        free = not _begins_anew(state, pack_id) and all(
            waits(job) and _start_us(job) <= now_us and not is_cancelled(state, job) for job, _ in found
        )
        return [(job, replace(placement, anchor_us=0)) for job, placement in found] if free else []
    is_begun = job.job_id == pack_id and placement.anchor_us and is_whole(state.packs, job.pack)
    if not is_begun or [job.job_id for job, _ in found] != _first_members(state, pack_id):
        return []
    if any(job.state is not JobState.PENDING or not is_free(job) for job, _ in found):
        return []
    return found


def _begins_anew(state: State, pack_id: int) -> bool:
    """Check whether the pack is about to wait as a whole: its first member has not begun and comes back, or waits already
    and others, of which nothing has ended, come back.
    """
    first = state.find_job(pack_id)
    if first is None or first.pack is None:
        return False
    if _comes_back(first):
        return not first.pack.includes(first.started_us)
    members = [state.jobs[job_id] for job_id in state.packs.get(pack_id, ())]
    comes_back = [_comes_back(one) for one in members]
    waits_too = [one.state is JobState.PENDING for one in members]
    return first.state is JobState.PENDING and (
        len(members) == first.pack.count
        and any(comes_back)
        and all(back or waiting for back, waiting in zip(comes_back, waits_too, strict=True))
    )


def _comes_back(job: Job) -> bool:
    """Check whether an attempt of it ends and the job will wait again."""
    return job.state is JobState.COMPLETING and job.outcome is JobState.PENDING


def without_first(state: State, fact: facts.AttemptEnded) -> list[int]:
    """The members that are being launched beside a first one that could not be, if none has started: they wait with it."""
    first = state.find_job(fact.job_id)
    if first is None or first.pack is None or first.pack.index or fact.outcome is not JobState.PENDING:
        return []
    others = [state.jobs[job_id] for job_id in state.packs.get(first.job_id, ()) if job_id != first.job_id]
    has_started = any(first.pack.includes(one.started_us) for one in (first, *others))
    is_early = len(others) + 1 == first.pack.count and not has_started
    return [one.job_id for one in others if is_early and one.state is JobState.LAUNCHING]


def taken_back(state: State, job: Job) -> list[facts.Fact]:
    """Let a member that is being launched wait again, as its pack's first one does; not one that may only run once."""
    first = state.find_job(job.pack.pack_id) if job.pack is not None else None
    attempt = job.attempt
    if first is None or first.pack is None or attempt is None or first.pack.includes(first.started_us):
        return []
    if first.state is not JobState.PENDING and first.outcome is not JobState.PENDING:
        return []
    is_preparing = attempt.phase is AttemptPhase.PREPARING and attempt.prepares_first
    cannot_run = is_preparing or attempt.awaits_prolog
    if attempt.stop is not None or not (job.spec.requeue or cannot_run):
        return []
    return stop(state, job, StopCause.REQUEUE, state.now_us, f"its pack: job {first.job_id} could not start")


def _start_us(job: Job) -> int:
    return job.pack.start_us if job.pack is not None else 0


def _first_members(state: State, pack_id: int) -> list[int]:
    """The members that begin with the pack."""
    members = [state.get_job(job_id) for job_id in state.packs.get(pack_id, ())]
    return [one.job_id for one in members if one.pack is not None and not one.pack.delay_us]
