"""Application of facts about jobs that grow and shrink while they run.

A node that the job gives back is *leaving*, like those of a finished part: it stays held until it says that nothing of the
job is left there. A node that it gets is *joining*: held, but not for steps, until it is prepared. Invariant: a node that
has left an attempt never returns to it, so what it has said of its end holds.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from eslurm.core.model import facts
from eslurm.core.model.growth import Growth, GrowthPlace, Joined
from eslurm.core.model.job import Attempt, AttemptMore, Job
from eslurm.core.model.job_states import AttemptPhase, JobState
from eslurm.core.model.promise import Promise
from eslurm.core.model.units import SECOND_US
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.state import apply_phases, launch_failures
from eslurm.core.state.allocation_amounts import paused_us
from eslurm.core.state.cluster import State


def apply_shrunk(state: State, fact: facts.JobShrunk) -> None:
    """Let these nodes leave."""
    job, attempt = _attempt(state, fact.job_id, fact.attempt)
    state.put_job(replace(job, attempt=leave(state, attempt, fact.nodes)))


def leave(state: State, attempt: Attempt, nodes: Iterable[int]) -> Attempt:
    """The attempt with these of its nodes leaving; the end that they are owed is this revision's."""
    more = attempt.more or AttemptMore()
    leaving = more.leaving.union(nodes)
    return replace(attempt, more=replace(more, leaving=leaving, part_revision=state.revision))


def apply_asked(state: State, fact: facts.GrowthAsked) -> None:
    """Let the growth wait, by a record of its own."""
    job, attempt = _attempt(state, fact.job_id, fact.attempt)
    state.next_id = max(state.next_id, fact.growth_id + 1)
    state.touched.settings = True
    state.put_job(
        Job(
            job_id=fact.growth_id,
            spec=fact.spec,
            state=JobState.PENDING,
            submitted_us=state.now_us,
            priority=fact.priority,
            grows=GrowthPlace(fact.job_id, fact.attempt, frozenset(fact.apart), is_own=not fact.by),
        )
    )
    state.put_job(replace(job, attempt=_with(attempt, Growth(fact.growth_id))))


def apply_placed(state: State, fact: facts.GrowthPlaced) -> None:
    """Hold the nodes, and prepare them."""
    job, attempt = _attempt(state, fact.job_id, fact.attempt)
    nodes = frozenset(span.node for span in fact.spans)
    attempt = _with(attempt, Growth(fact.growth_id, nodes, nodes, revision=state.revision))
    more = attempt.more
    assert more is not None
    of_nodes = apply_phases.of_placement(state, nodes)
    if of_nodes is not None:
        more = replace(more, phases=tuple(dict.fromkeys((*more.phases, *of_nodes.phases))))
    joined = Joined(state.now_us, paused_us(attempt, state.now_us), tuple(span.node for span in fact.spans))
    more = replace(more, grown=(*more.grown, joined))
    spans = (*attempt.spans, *fact.spans)
    held = attempt.held | nodes
    state.put_job(replace(job, attempt=replace(attempt, spans=spans, held=held, more=more)))
    growth = state.get_job(fact.growth_id)
    assert growth.grows is not None
    state.put_job(replace(growth, grows=replace(growth.grows, joins=True), reason_text=""))
    state.put_promise(Promise(fact.growth_id))


def apply_preparing(state: State, fact: facts.GrowthPreparing) -> None:
    """Wait for the prologs of these nodes."""
    job, attempt = _attempt(state, fact.job_id, fact.attempt)
    growth = attempt.growth
    assert growth is not None and growth.waiting.issuperset(fact.nodes)
    until_us = max(growth.preparing_until_us, fact.until_us)
    preparing = growth.preparing.union(fact.nodes)
    growth = replace(growth, preparing=preparing, preparing_until_us=until_us)
    state.put_job(replace(job, attempt=_with(attempt, growth)))


def apply_joined(state: State, fact: facts.NodesJoined) -> None:
    """Let steps use the nodes of the growth, once all of them are ready."""
    job, attempt = _attempt(state, fact.job_id, fact.attempt)
    growth = attempt.growth
    assert growth is not None and growth.waiting.issuperset(fact.nodes)
    waiting = growth.waiting.difference(fact.nodes)
    preparing = growth.preparing.difference(fact.nodes)
    until_us = growth.preparing_until_us if preparing else 0
    growth = replace(growth, waiting=waiting, preparing=preparing, preparing_until_us=until_us)
    if not waiting:
        launch_failures.apply_ready(state, growth.joining)
        growth = Growth(growth.growth_id)
    state.put_job(replace(job, attempt=_with(attempt, growth)))


def apply_failed(state: State, fact: facts.GrowthFailed) -> None:
    """Give the nodes of a growth back; it waits for others."""
    job, attempt = _attempt(state, fact.job_id, fact.attempt)
    growth = attempt.growth
    assert growth is not None and growth.growth_id == fact.growth_id
    state.put_job(replace(job, attempt=_with(leave(state, attempt, growth.joining), Growth(fact.growth_id))))
    launch_failures.apply_failed(state, job, fact.blamed)
    record = state.get_job(fact.growth_id)
    assert record.grows is not None
    place = replace(record.grows, joins=False, apart=record.grows.apart | growth.joining)
    state.put_job(
        replace(
            record,
            grows=place,
            not_before_us=fact.not_before_us,
            launch_failures=record.launch_failures + 1,
            exit_text=fact.text,
        )
    )


def forget(state: State, place: GrowthPlace, growth_id: int) -> None:
    """The record of a growth ends: nodes that were still joining leave the job."""
    job = state.find_job(place.job_id)
    attempt = job.attempt if job is not None else None
    if job is None or attempt is None or attempt.more is None or attempt.growth is None:
        return
    if attempt.number != place.attempt or attempt.growth.growth_id != growth_id:
        return
    joining = attempt.joining
    if joining and attempt.phase is AttemptPhase.RUNNING and attempt.stop is None:
        attempt = leave(state, attempt, joining)
    assert attempt.more is not None
    state.put_job(replace(job, attempt=replace(attempt, more=replace(attempt.more, growth=None))))


def pause(state: State, attempt: Attempt, *, pauses: bool) -> Attempt:
    """Let the growth of a job that is suspended wait until it goes on. Nodes that are joining do so."""
    assert attempt.growth is not None
    record = state.find_job(attempt.growth.growth_id)
    if record is not None and record.grows is not None:
        state.put_job(replace(record, grows=replace(record.grows, pauses=pauses)))
    return attempt


def follow_time(state: State, attempt: Attempt) -> None:
    """Let the growth ask for nodes until the new end of its job."""
    assert attempt.growth is not None
    record = state.find_job(attempt.growth.growth_id)
    if record is not None and record.state is JobState.PENDING and attempt.until_us != INFINITY_US:
        limit_s = left_s(attempt.until_us, state.now_us)
        state.put_job(replace(record, spec=replace(record.spec, time_limit_s=limit_s)))
        state.note_change(record.job_id)


def left_s(until_us: int, now_us: int) -> int:
    """Seconds until then, rounded up; 0 (no limit) where it has no end."""
    return 0 if until_us >= INFINITY_US else max(1, -((now_us - until_us) // SECOND_US))


def _attempt(state: State, job_id: int, number: int) -> tuple[Job, Attempt]:
    job = state.get_job(job_id)
    attempt = job.attempt
    assert attempt is not None and attempt.number == number
    return job, attempt


def _with(attempt: Attempt, growth: Growth) -> Attempt:
    return replace(attempt, more=replace(attempt.more or AttemptMore(), growth=growth))
