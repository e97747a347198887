"""Invariants of an agent between two calls."""

from __future__ import annotations

from eslurm.core.agent.attempt import Attempt, Stage
from eslurm.core.agent.machine import Agent
from eslurm.core.agent.node import LocalNode
from eslurm.core.agent.starts import ATTEMPTS_PER_NODE_MAX
from eslurm.core.model.protocol import NodeGone, PhaseReported
from eslurm.core.model.step_key import BATCH_STEP, EPILOG_STEP, GATEWAY_STEPS, PROLOG, PROLOG_STEP

_WITH_BATCH = frozenset({Stage.STARTING, Stage.RUNNING})
_PHASE = {Stage.PREPARING: PROLOG_STEP, Stage.EPILOG: EPILOG_STEP}
_EMPTY = frozenset({Stage.FETCHING, Stage.ENDED, Stage.BURIED})


def check(agent: Agent) -> list[str]:
    """Every breach found, in words; empty when all is well."""
    breaches = []
    for number, node in agent.registry.by_number.items():
        if node.number != number or agent.registry.by_name.get(node.offer.name) is not node:
            breaches.append(f"node {number} is listed wrongly")
        breaches += _check_node(agent, node)
    for owner, fence in agent.buffer.fences.items():
        stale = [key for key, stone in fence.tombstones.items() if stone.revision < fence.floor]
        stale += [key for key in fence.outcomes if key[0] < fence.floor]
        breaches += [f"{key} of {owner!r} is kept below the floor {fence.floor}" for key in stale]
    return breaches


def _check_node(agent: Agent, node: LocalNode) -> list[str]:
    name = node.offer.name
    breaches = []
    if node.registered and node.epoch != agent.buffer.fence(node.owner).epoch:
        breaches.append(f"{name} is registered under epoch {node.epoch}, which is over")
    if bool(node.sent) and not node.registered:
        breaches.append(f"{name} has reports under way without a registration")
    if node.registered and node.sent.keys() != node.owed.keys():
        breaches.append(f"{name} owes reports that are not under way")
    if len(node.attempts) > ATTEMPTS_PER_NODE_MAX:
        breaches.append(f"{name} holds {len(node.attempts)} attempts")
    for key, attempt in node.attempts.items():
        if key != attempt.key or attempt.node != node.number:
            breaches.append(f"{name} lists attempt {attempt.key} as {key}")
        breaches += [f"{name}, attempt {key}: {text}" for text in _check_attempt(agent, node, attempt)]
    return breaches


def _check_attempt(agent: Agent, node: LocalNode, attempt: Attempt) -> list[str]:
    breaches = []
    stage = attempt.stage
    # A helper of gateways may run on the first node while its script is fetched again.
    live = attempt.live.difference(GATEWAY_STEPS.values()) if stage is Stage.FETCHING else attempt.live
    if stage in _EMPTY and live:
        breaches.append(f"{stage.value} with live steps {sorted(attempt.live)}")
    if stage in _WITH_BATCH and BATCH_STEP not in attempt.live:
        breaches.append(f"{stage.value} without a batch step")
    if stage is Stage.BURIED:
        breaches.append("buried and still listed")
    reports = ((NodeGone, *attempt.key, ""), (PhaseReported, *attempt.key, PROLOG))
    phase_reported = any(report in node.owed for report in reports)
    if stage is Stage.ENDED and attempt.end is None and not phase_reported:
        breaches.append("ended without an end")
    if stage in _PHASE and attempt.live != {_PHASE[stage]}:
        breaches.append(f"{stage.value} with live steps {sorted(attempt.live)}")
    if attempt.phase_runs and len(attempt.live) > 1:
        breaches.append(f"a phase runs beside steps {sorted(attempt.live)}")
    if stage in (Stage.ENDING, Stage.CLOSING) and not attempt.live:
        breaches.append(f"{stage.value} with nothing left to end")
    if attempt.ends and stage not in (Stage.ENDING, Stage.EPILOG):
        breaches.append(f"{stage.value} with ends to answer")
    if attempt.starts and stage not in (Stage.FETCHING, Stage.STARTING, Stage.ENDING):
        breaches.append(f"{stage.value} with starts to answer")
    if attempt.live & {BATCH_STEP} and stage is Stage.PREPARED:
        breaches.append("prepared with a live batch step")
    key = (attempt.node, attempt.job_id, attempt.number)
    fence = agent.buffer.fence(attempt.owner)
    if stage is Stage.ENDING and key not in fence.tombstones and attempt.revision >= fence.floor:
        breaches.append("is being ended without a tombstone")
    return breaches
