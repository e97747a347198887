"""Application of facts about wishes: a pack's for earlier starts, a running job's for more time.

Invariant: an answer only changes what it names, and only while the wish of its serial is the latest.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from eslurm.core.model import facts
from eslurm.core.model.job import AttemptMore, Job
from eslurm.core.model.pack import MoveWish, PackPlace
from eslurm.core.state.cluster import State
from eslurm.core.state.job_indexes import waits_for_start


def apply_asked(state: State, fact: facts.MoveAsked) -> None:
    for job, place in _members(state, fact.pack_id):
        if waits_for_start(job):
            state.put_job(replace(job, pack=replace(place, wish=fact.wish)))
    state.want_plan()


def apply_moved(state: State, fact: facts.PackMoved) -> None:
    starts = dict(fact.starts)
    for job, place in _members(state, fact.pack_id):
        if place.wish is not None and place.wish.serial == fact.serial:
            place = replace(place, wish=replace(place.wish, said=fact.text))
        start_us = starts.get(job.job_id)
        if start_us is not None:
            place = replace(place, delay_us=start_us - place.anchor_us, moved=True)
        if place is not job.pack:
            state.put_job(replace(job, pack=place))


def _members(state: State, pack_id: int) -> Iterator[tuple[Job, PackPlace]]:
    for job_id in state.packs.get(pack_id, ()):
        job = state.get_job(job_id)
        assert job.pack is not None
        yield job, job.pack


def placed(place: PackPlace, anchor_us: int) -> PackPlace:
    """The place of a member that is placed, with the pack's anchor if it is the first: an open wish concerns the others."""
    if is_open(place.wish):
        place = replace(place, wish=None)
    return replace(place, anchor_us=anchor_us) if anchor_us else place


def is_open(wish: MoveWish | None) -> bool:
    """Check whether the planner still has to answer the wish."""
    return wish is not None and not wish.said


def apply_extension_asked(state: State, fact: facts.ExtensionAsked) -> None:
    job = state.get_job(fact.job_id)
    assert job.attempt is not None and job.attempt.number == fact.attempt
    more = replace(job.attempt.more or AttemptMore(), wish=fact.wish)
    state.put_job(replace(job, attempt=replace(job.attempt, more=more)))
    state.want_plan()


def apply_extension_answered(state: State, fact: facts.ExtensionAnswered) -> None:
    job = state.get_job(fact.job_id)
    attempt = job.attempt
    assert attempt is not None and attempt.more is not None and attempt.more.wish is not None
    assert (attempt.number, attempt.more.wish.serial) == (fact.attempt, fact.serial)
    more = replace(attempt.more, wish=replace(attempt.more.wish, said=fact.text))
    state.put_job(replace(job, attempt=replace(attempt, more=more)))
