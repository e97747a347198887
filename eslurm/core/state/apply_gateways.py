"""Application of facts about the gateways of an attempt: stages, addresses, daemons that ended (X-52, X-53).

Invariant: from the moment when all nodes are prepared until the gateways are ready, the attempt waits for no node, and its
gateways have a stage with a time limit.
"""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.model import facts
from eslurm.core.model.gateways import LIMITS_S, TRANSITIONS, GatewayStage, GatewayState
from eslurm.core.model.job import Attempt, AttemptMore, Job
from eslurm.core.model.job_states import AttemptPhase, IllegalTransition
from eslurm.core.model.parts import gateway_nodes
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State
from eslurm.core.state.transitions import phased


def begun(state: State, job: Job, attempt: Attempt) -> Attempt:
    """The attempt when all its nodes are prepared: the daemons start."""
    gateway = GatewayState(
        GatewayStage.DAEMONS,
        until_us=state.now_us + LIMITS_S[GatewayStage.DAEMONS] * SECOND_US,
        revision=state.revision,
        waiting=frozenset(gateway_nodes(job.spec, attempt)),
    )
    return _with(replace(attempt, waiting=frozenset()), gateway)


def over(attempt: Attempt) -> Attempt:
    """The attempt when it has ended: `End` ends the daemons as everything else."""
    return attempt if attempt.gateway is None else _with(attempt, None)


def apply_staged(state: State, fact: facts.GatewaysStaged) -> None:
    job, attempt, gateway = _get(state, fact.job_id)
    if fact.stage not in TRANSITIONS[gateway.stage]:
        raise IllegalTransition(f"job {job.job_id}: gateways: {gateway.stage} -> {fact.stage}")
    first = frozenset((attempt.first,))
    if fact.stage == GatewayStage.READY:
        attempt = replace(
            attempt,
            phase=phased(job, attempt, AttemptPhase.STARTING),
            waiting=first,
            owed_revision=state.revision,
        )
        gateway = replace(gateway, stage=GatewayStage.READY, until_us=0, revision=0, waiting=frozenset())
    else:
        gateway = replace(
            gateway,
            stage=fact.stage,
            until_us=fact.until_us,
            revision=state.revision,
            waiting=first,
            text=fact.text,
        )
    state.put_job(replace(job, attempt=_with(attempt, gateway)))


def apply_answered(state: State, fact: facts.GatewaysAnswered) -> None:
    job, attempt, gateway = _get(state, fact.job_id)
    waiting = gateway.waiting.difference(fact.nodes)
    state.put_job(replace(job, attempt=_with(attempt, replace(gateway, waiting=waiting))))


def apply_up(state: State, fact: facts.GatewayUp) -> None:
    job, attempt, gateway = _get(state, fact.job_id)
    # Its address is an answer as well: the one to its start may come later, or be lost.
    gateway = replace(
        gateway,
        addresses=(*gateway.addresses, (fact.node, fact.addresses)),
        waiting=gateway.waiting.difference((fact.node,)),
    )
    state.put_job(replace(job, attempt=_with(attempt, gateway)))


def apply_down(state: State, fact: facts.GatewayDown) -> None:
    job, attempt, gateway = _get(state, fact.job_id)
    gateway = replace(gateway, ended=(*gateway.ended, (fact.node, fact.text)))
    state.put_job(replace(job, attempt=_with(attempt, gateway)))


def _get(state: State, job_id: int) -> tuple[Job, Attempt, GatewayState]:
    job = state.get_job(job_id)
    assert job.attempt is not None and job.attempt.gateway is not None
    return job, job.attempt, job.attempt.gateway


def _with(attempt: Attempt, gateway: GatewayState | None) -> Attempt:
    return replace(attempt, more=replace(attempt.more or AttemptMore(), gateway=gateway))
