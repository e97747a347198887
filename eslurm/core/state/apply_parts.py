"""Parts that a running job gives back before its end (D-02).

A node that no other part has is *leaving*: it stays held until it says that nothing of the job is left there. On a node that
another part goes on using, the part's amounts are free at once, or when the last of the part's steps there has ended.
Invariant: what is given back is charged once, up to the moment at which it is free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from eslurm.core.model import facts
from eslurm.core.model.job import Attempt, AttemptMore, Job, Span
from eslurm.core.model.job_states import AttemptPhase
from eslurm.core.model.step import Step, StepState
from eslurm.core.state import apply_lending
from eslurm.core.state.allocation_amounts import spans_in_use
from eslurm.core.state.cluster import State
from eslurm.core.state.usage import charge_left


class Split(NamedTuple):
    """A part's spans: on nodes that leave with it, on nodes that other parts keep, and those of these with steps."""

    leaving: list[Span]
    shared: list[Span]
    busy: list[Span]


def split(state: State, job: Job, attempt: Attempt, part: int) -> Split:
    """The part's spans after it is given back now."""
    finished = {part, *attempt.finished}
    kept = {span.node for span in attempt.spans if span.component not in finished}
    own = [span for span in spans_in_use(attempt) if span.component == part and span.node in attempt.held]
    shared = [span for span in own if span.node in kept]
    busy = _busy(state, job, part) if shared else frozenset()
    return Split(
        [span for span in own if span.node not in kept],
        shared,
        [span for span in shared if span.node in busy],
    )


def live_steps(state: State, job: Job, part: int) -> list[Step]:
    """The steps of a part that have not ended, in order."""
    steps = [state.steps[job.job_id, number] for number in sorted(state.steps_of.get(job.job_id, ()))]
    live = (StepState.LAUNCHING, StepState.RUNNING)
    return [step for step in steps if step.launch.component == part and step.state in live]


def _busy(state: State, job: Job, part: int) -> frozenset[int]:
    """The nodes on which tasks of the part may live: of a step that failed, where it had not failed."""
    found: set[int] = set()
    for number in state.steps_of.get(job.job_id, ()):
        step = state.steps[job.job_id, number]
        if step.launch.component == part and step.state is not StepState.ENDED:
            failed = {node for node, _ in step.failed}
            found.update(node for node in step.nodes if node not in failed)
    return frozenset(found)


def apply_finished(state: State, fact: facts.PartFinished) -> None:
    """Let the nodes of this part alone leave, and free the rest of it where none of its steps runs."""
    job = state.get_job(fact.job_id)
    attempt = job.attempt
    assert attempt is not None and attempt.number == fact.attempt
    what = split(state, job, attempt, fact.component)
    more = attempt.more or AttemptMore()
    leaving = more.leaving.union(span.node for span in what.leaving)
    more = replace(
        more,
        finished=(*more.finished, (fact.component, state.now_us)),
        leaving=leaving,
        part_revision=state.revision if what.leaving else more.part_revision,
    )
    busy = {span.node for span in what.busy}
    free = [span for span in what.shared if span.node not in busy]
    _put(state, job, replace(attempt, more=more), free)


def give_rest(state: State, job: Job, attempt: Attempt) -> None:
    """A step has ended: free what a finished part still has on a node that it shares, if it was the last one there."""
    free: list[Span] = []
    for part in attempt.finished:
        busy = _busy(state, job, part)
        free += [
            span
            for span in spans_in_use(attempt)
            if span.component == part
            and span.node in attempt.held
            and span.node not in attempt.leaving
            and span.node not in busy
        ]
    if free:
        _put(state, job, attempt, free)


def released(state: State, job: Job, attempt: Attempt, nodes: Collection[int]) -> Attempt:
    """The attempt when these nodes are no longer held: those of finished parts, or given back, are charged for, once."""
    more = attempt.more
    assert more is not None
    left = more.leaving.intersection(nodes)
    more = replace(more, leaving=more.leaving - left)
    if not attempt.has_parts and left:
        more = replace(more, shrunk=(*more.shrunk, (state.now_us, tuple(sorted(left)))))
    attempt = replace(attempt, more=more)
    if attempt.phase is not AttemptPhase.RUNNING:
        # Its end has charged them.
        return attempt
    return _given(state, job, attempt, [span for span in spans_in_use(attempt) if span.node in left])


def _put(state: State, job: Job, attempt: Attempt, free: Iterable[Span]) -> None:
    state.put_job(replace(job, attempt=_given(state, job, attempt, free)))


def _given(state: State, job: Job, attempt: Attempt, spans: Iterable[Span]) -> Attempt:
    spans = list(spans)
    if not spans:
        return attempt
    charge_left(state, job, attempt, spans)
    attempt = apply_lending.closed(attempt, {span.node for span in spans}, state.now_us)
    more = attempt.more
    assert more is not None
    given = more.given.union((span.component, span.node) for span in spans)
    return replace(attempt, more=replace(more, given=given))
