"""Application of facts about the prolog and epilog of nodes, and what other facts leave of them in an attempt."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from eslurm.core.model import facts
from eslurm.core.model.controller_phases import PhaseStage
from eslurm.core.model.job import Attempt, AttemptMore
from eslurm.core.model.step_key import EPILOG, PHASES, PROLOG
from eslurm.core.state import apply_controller_phases
from eslurm.core.state.cluster import State, attempts_of


def of_placement(state: State, nodes: Iterable[int]) -> AttemptMore | None:
    """Phases of an attempt on these nodes, there and on the controller's host. Most sites have none at all."""
    if not (state.phased or state.config.phases):
        return None
    found = {phase for number in nodes for phase in state.phased.get(number, ())} if state.phased else set()
    phases = tuple(phase for phase in PHASES if phase in found)
    controller = apply_controller_phases.of_placement(state)
    if not (phases or controller):
        return None
    known = state.phase_lengths
    prolog_us = known.prolog.planned_us if PROLOG in phases else 0
    if controller is not None and controller.stage is PhaseStage.WAITING:
        prolog_us += known.controller.planned_us
    return AttemptMore(
        phases=phases,
        controller=controller,
        prolog_us=prolog_us,
        epilog_us=known.epilog.planned_us if EPILOG in phases else 0,
    )


def learn_prolog(state: State, fact: facts.NodesPrepared, placed_us: int) -> None:
    """Learn from a prolog how long they take: as the node says, and no longer than it was waited for."""
    known = state.phase_lengths
    took_us = min(fact.prolog_us, state.now_us - placed_us)
    prolog = known.prolog.after(took_us, fact.nodes[0], state.now_us)
    if prolog is not known.prolog:
        state.put_phase_lengths(replace(known, prolog=prolog))


def learn_epilog(state: State, fact: facts.NodesReleased, ended_us: int) -> None:
    """The same from an epilog."""
    known = state.phase_lengths
    took_us = min(fact.epilog_us, state.now_us - ended_us)
    epilog = known.epilog.after(took_us, fact.nodes[0], state.now_us)
    if epilog is not known.epilog:
        state.put_phase_lengths(replace(known, epilog=epilog))


def prepared(attempt: Attempt, nodes: Iterable[int]) -> Attempt:
    """The attempt when these nodes prepare no longer: they have, they have failed, or they are asked again."""
    more = attempt.more
    if more is None or not more.preparing:
        return attempt
    left = more.preparing.difference(nodes)
    if len(left) == len(more.preparing):
        return attempt
    until_us = more.preparing_until_us if left else 0
    return replace(attempt, more=replace(more, preparing=left, preparing_until_us=until_us))


def apply_preparing(state: State, fact: facts.NodesPreparing) -> None:
    job = state.get_job(fact.job_id)
    attempt = job.attempt
    assert attempt is not None and attempt.waiting.issuperset(fact.nodes)
    more = attempt.more or AttemptMore()
    more = replace(
        more,
        preparing=more.preparing.union(fact.nodes),
        preparing_until_us=max(more.preparing_until_us, fact.until_us),
    )
    state.put_job(replace(job, attempt=replace(attempt, more=more)))


def ask_again(state: State, number: int) -> None:
    """An agent that begins anew may know nothing of a launch that it has answered: it is asked again."""
    for job_id in state.jobs_on.get(number, ()):
        job = state.get_job(job_id)
        for attempt in attempts_of(job):
            if number in attempt.preparing and attempt is job.attempt:
                state.put_job(replace(job, attempt=prepared(attempt, (number,))))
            growth = attempt.growth
            if growth is not None and number in growth.preparing and attempt.more is not None:
                left = growth.preparing - {number}
                until_us = growth.preparing_until_us if left else 0
                growth = replace(growth, preparing=left, preparing_until_us=until_us)
                more = replace(attempt.more, growth=growth)
                state.put_job(replace(job, attempt=replace(attempt, more=more)))
