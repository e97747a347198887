"""A workflow changes its own times (D-06, D-07): wishes are checked here, and the planner's answers become facts.

Only the planner knows what delays no other job: a wish is a fact, and the next planning cycle answers it with its
placements. Invariant: a pack, and a running attempt, has one open wish at most; an answer that finds its wish or its jobs
changed is dropped, and the wish is looked at again.
"""

from __future__ import annotations

from collections.abc import Iterator

from eslurm.core.control.jobs.access import check_managed, get_seen, name_of, part_of
from eslurm.core.control.jobs.movable import check_alone
from eslurm.core.model import facts
from eslurm.core.model.accounts import Qos
from eslurm.core.model.dates import format_moment
from eslurm.core.model.job import NO_LIMIT, Attempt, Job, Principal
from eslurm.core.model.job_states import AttemptPhase, JobState
from eslurm.core.model.messages import (
    ExtendJob,
    ExtensionTaken,
    JobRef,
    MovePack,
    MoveTaken,
    PlanMade,
    RefusalCode,
    Refused,
)
from eslurm.core.model.moves import ExtendGrant, ExtendWish, MoveGrant
from eslurm.core.model.pack import MoveWish, PackPlace
from eslurm.core.model.parts import partitions_of
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.wishes import WantedEnd, WantedStarts, Wishes
from eslurm.core.state.allocation_amounts import end_us, limit_s
from eslurm.core.state.apply_moves import is_open
from eslurm.core.state.cluster import State
from eslurm.core.state.job_indexes import waits_for_start


def on_move(state: State, message: MovePack, now_us: int) -> tuple[list[facts.Fact], MoveTaken]:
    """Ask the planner to start the members to come earlier. Raises `Refused`."""
    wanted = wanted_starts(state, message, now_us)
    wish = MoveWish(wanted.serial, message.by.name, message.earlier_us, message.to_us)
    starts = [(job_id, _place(state, job_id).index, start_us) for job_id, start_us in wanted.starts]
    return [facts.MoveAsked(wanted.pack_id, wish)], MoveTaken(wanted.pack_id, wanted.serial, tuple(starts))


def wanted_starts(state: State, message: MovePack, now_us: int) -> WantedStarts:
    """A pack's wish as the planner gets it. Raises `Refused` where nothing can be moved, whatever is free."""
    pack_id = _pack_of(state, message)
    first = state.get_job(state.packs[pack_id][0])
    assert first.pack is not None
    if not first.pack.anchor_us:
        raise Refused(
            RefusalCode.CONFLICT,
            f"pack {pack_id} has not begun: it starts as early as possible, and its other jobs after their delays",
        )
    wish = next((place.wish for place in _places(state, pack_id) if is_open(place.wish)), None)
    if wish is not None:
        raise Refused(
            RefusalCode.CONFLICT, f"pack {pack_id} is just being moved ({wish.by}): try again in a moment"
        )
    starts = _to_come(state, pack_id, now_us)
    if not starts:
        raise Refused(
            RefusalCode.CONFLICT,
            f"no job of pack {pack_id} waits for its planned start any more: nothing is left to move",
        )
    first_us = min(start_us for _, start_us in starts)
    if message.to_us >= first_us:
        offset_s = state.calendar.offset_s
        raise Refused(
            RefusalCode.INVALID,
            f"to: {format_moment(message.to_us, offset_s)} is not before {format_moment(first_us, offset_s)}, when job "
            f"{min(starts, key=lambda one: one[1])[0]} starts: starts are only moved to earlier times",
        )
    return _wanted(
        pack_id, MoveWish(state.revision + 1, "", message.earlier_us, message.to_us), starts, now_us
    )


def _pack_of(state: State, message: MovePack) -> int:
    """The pack of the named job. Raises `Refused`."""
    ref = message.job
    job = _named(state, message.by, ref)
    if job.pack is None:
        raise Refused(
            RefusalCode.CONFLICT,
            f"job {name_of(ref)} is in no pack: only the jobs of a pack have starts to move",
        )
    if job.pack.pack_id not in state.packs:
        raise Refused(RefusalCode.CONFLICT, f"all jobs of pack {job.pack.pack_id} have ended")
    return job.pack.pack_id


def _named(state: State, by: Principal, ref: JobRef) -> Job:
    """The record that a reference means, if the caller may change it. Raises `Refused`."""
    job = get_seen(state, by, ref.job_id)
    part_of(job, ref)
    if ref.task >= 0:
        task = state.find_task(job.job_id, ref.task)
        if task is None:
            raise Refused(
                RefusalCode.NOT_FOUND, f"job {ref.job_id} has no running task {ref.task}: see esqueue -r"
            )
        job = task
    check_managed(state, by, job, name_of(ref))
    return job


def _places(state: State, pack_id: int) -> Iterator[PackPlace]:
    for job_id in state.packs.get(pack_id, ()):
        if waits_for_start(state.get_job(job_id)):
            yield _place(state, job_id)


def _place(state: State, job_id: int) -> PackPlace:
    place = state.get_job(job_id).pack
    assert place is not None
    return place


def _to_come(state: State, pack_id: int, now_us: int) -> tuple[tuple[int, int], ...]:
    """(job, owed start) of the members whose start is to come. One that is held has none."""
    jobs = map(state.get_job, state.packs.get(pack_id, ()))
    return tuple(
        [
            (job.job_id, job.pack.start_us)
            for job in jobs
            if job.pack is not None and waits_for_start(job) and not job.hold and job.pack.start_us > now_us
        ]
    )


def _wanted(pack_id: int, wish: MoveWish, starts: tuple[tuple[int, int], ...], now_us: int) -> WantedStarts:
    first_us = min((start_us for _, start_us in starts), default=now_us)
    to_us = wish.to_us or (first_us - wish.earlier_us if wish.earlier_us else now_us)
    return WantedStarts(pack_id, wish.serial, starts, to_us)


# ---- longer limits ----


def on_extend(state: State, message: ExtendJob, now_us: int) -> tuple[list[facts.Fact], ExtensionTaken]:
    """Ask the planner for a longer time limit of a running job. Raises `Refused`."""
    job = _named(state, message.by, message.job)
    attempt = job.attempt
    wanted = wanted_end(state, message)
    assert attempt is not None
    wish = ExtendWish(wanted.serial, message.by.name, wanted.time_limit_s)
    taken = ExtensionTaken(job.job_id, attempt.number, wish.serial, wanted.has_s, attempt.until_us)
    return [facts.ExtensionAsked(job.job_id, attempt.number, wish)], taken


def wanted_end(state: State, message: ExtendJob) -> WantedEnd:
    """A running job's wish as the planner gets it. Raises `Refused` where the limit cannot be longer, whatever is free."""
    job = _named(state, message.by, message.job)
    check_alone(job, "a longer time limit")
    attempt = _running(job)
    has_s = limit_s(job, attempt)
    if has_s == NO_LIMIT:
        raise Refused(RefusalCode.CONFLICT, f"job {job.job_id} has no time limit: nothing ends it")
    wish = attempt.more.wish if attempt.more is not None else None
    if wish is not None and not wish.said:
        raise Refused(
            RefusalCode.CONFLICT,
            f"job {job.job_id} is just being extended ({wish.by}): try again in a moment",
        )
    wanted_s = message.to_s or has_s + message.by_s
    if wanted_s <= has_s:
        raise Refused(
            RefusalCode.INVALID,
            f"to: {wanted_s} s is not more than the {has_s} s that job {job.job_id} has: give more",
        )
    for most_s, what in _bounds(state, job, attempt):
        if most_s <= has_s:
            raise Refused(
                RefusalCode.CONFLICT, f"job {job.job_id} has all the time that {what} allows ({has_s} s)"
            )
        wanted_s = min(wanted_s, most_s)
    return _wanted_end(job, attempt, ExtendWish(state.revision + 1, "", wanted_s))


def _running(job: Job) -> Attempt:
    """The attempt that runs. Raises `Refused`."""
    attempt = job.attempt
    if attempt is None or attempt.phase is not AttemptPhase.RUNNING:
        raise Refused(
            RefusalCode.CONFLICT, f"job {job.job_id} is {job.state.value}: only a running job is extended"
        )
    if attempt.stop is not None:
        raise Refused(RefusalCode.CONFLICT, f"job {job.job_id} is being ended: it is too late to extend it")
    if attempt.suspended_us:
        raise Refused(
            RefusalCode.CONFLICT, f"job {job.job_id} is suspended, and its time with it: resume it first"
        )
    return attempt


def _bounds(state: State, job: Job, attempt: Attempt) -> Iterator[tuple[int, str]]:
    """The longest limits in seconds by what is set for all jobs like it, and the name of each."""
    for name in partitions_of(job.spec):
        partition = state.partitions.get(name)
        if partition is not None and partition.time_limit_max_s:
            yield partition.time_limit_max_s, f"partition {name}"
    qos = state.policies["qos"].get(job.spec.qos)
    if isinstance(qos, Qos) and qos.time_limit_max_s:
        yield qos.time_limit_max_s, f"QOS {qos.name}"
    if job.spec.deadline_us:
        yield max(0, job.spec.deadline_us - _since_us(attempt)) // SECOND_US, "its deadline"


def _wanted_end(job: Job, attempt: Attempt, wish: ExtendWish) -> WantedEnd:
    has_s = limit_s(job, attempt)
    return WantedEnd(job.job_id, attempt.number, wish.serial, _since_us(attempt), has_s, wish.time_limit_s)


def _since_us(attempt: Attempt) -> int:
    """The time from which its limit counts."""
    return end_us(attempt, 1) - SECOND_US


# ---- to the planner and back ----


def wishes_of(state: State, now_us: int) -> Wishes | None:
    """All open wishes; None without one."""
    if not state.wishing:
        return None
    packs: dict[int, MoveWish] = {}
    ends: list[WantedEnd] = []
    for job_id in sorted(state.wishing):
        job = state.get_job(job_id)
        if job.attempt is not None:
            assert job.attempt.more is not None and job.attempt.more.wish is not None
            ends.append(_wanted_end(job, job.attempt, job.attempt.more.wish))
        else:
            assert job.pack is not None and job.pack.wish is not None
            packs[job.pack.pack_id] = job.pack.wish
    starts = [
        _wanted(pack_id, wish, _to_come(state, pack_id, now_us), now_us) for pack_id, wish in packs.items()
    ]
    return Wishes(tuple(starts), tuple(ends))


def on_answers(state: State, message: PlanMade, now_us: int) -> tuple[list[facts.Fact], set[int]]:
    """The facts of the planner's answers that still hold, and the jobs of those that do not."""
    found: list[facts.Fact] = []
    dropped: set[int] = set()
    for grant in message.moves:
        if _still_holds(state, grant, message.generation, now_us):
            found.append(facts.PackMoved(grant.pack_id, grant.serial, grant.starts, grant.text))
        else:
            dropped.update(job_id for job_id, _ in grant.starts)
    for extension in message.extensions:
        found += _extended(state, extension, now_us)
    return found, dropped


def _still_holds(state: State, grant: MoveGrant, generation: int, now_us: int) -> bool:
    places = list(_places(state, grant.pack_id))
    if not any(is_open(place.wish) and place.wish.serial == grant.serial for place in places if place.wish):
        return False
    starts = dict(grant.starts)
    to_come = dict(_to_come(state, grant.pack_id, now_us))
    return not starts or (
        starts.keys() == to_come.keys()
        and all(
            now_us < start_us < to_come[job_id] and state.changed.get(job_id, 0) <= generation
            for job_id, start_us in starts.items()
        )
    )


def _extended(state: State, grant: ExtendGrant, now_us: int) -> list[facts.Fact]:
    job = state.find_job(grant.job_id)
    attempt = job.attempt if job is not None else None
    wish = attempt.more.wish if attempt is not None and attempt.more is not None else None
    if job is None or attempt is None or wish is None or wish.said:
        return []
    if (attempt.number, wish.serial) != (grant.attempt, grant.serial):
        return []
    answered = facts.ExtensionAnswered(job.job_id, attempt.number, wish.serial, grant.text)
    if not grant.time_limit_s:
        return [answered]
    has_s = limit_s(job, attempt)
    is_over = job.state is not JobState.RUNNING or attempt.stop is not None
    if is_over or not 0 < has_s < grant.time_limit_s:
        text = f"job {job.job_id} has changed meanwhile"
        return [facts.ExtensionAnswered(job.job_id, attempt.number, wish.serial, text)]
    until_us = end_us(attempt, grant.time_limit_s)
    return [facts.TimeChanged(job.job_id, attempt.number, grant.time_limit_s, until_us), answered]
