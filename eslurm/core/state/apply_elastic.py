"""Application of facts about jobs that grow and shrink while they run.

A node that the job gives back is *leaving*, like those of a finished part: it stays held until it says that nothing of the
job is left there. Invariant: a node that has left an attempt never returns to it, so what it has said of its end holds.
"""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.model import facts
from eslurm.core.model.job import Attempt, AttemptMore
from eslurm.core.state.cluster import State


def apply_shrunk(state: State, fact: facts.JobShrunk) -> None:
    """Let these nodes leave."""
    job = state.get_job(fact.job_id)
    attempt = job.attempt
    assert attempt is not None and attempt.number == fact.attempt
    state.put_job(replace(job, attempt=leave(state, attempt, fact.nodes)))


def leave(state: State, attempt: Attempt, nodes: tuple[int, ...]) -> Attempt:
    """The attempt with these of its nodes leaving; the end that they are owed is this revision's."""
    more = attempt.more or AttemptMore()
    leaving = more.leaving.union(nodes)
    return replace(attempt, more=replace(more, leaving=leaving, part_revision=state.revision))
