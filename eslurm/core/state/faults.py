"""Faults of nodes: why a node gets no new work although its agent serves (F-03).

A fault begins with a failed prolog or epilog. It ends when the node's check has passed, when an operator resumes the node,
or with the next boot. A node without a check is tried again after a pause that doubles until a launch succeeds there, as
one that is set aside. A clock that is too far ahead is a fault from a heartbeat that has expired there until one has not;
no check concerns it. A health check that fails is a fault until it passes, whatever an operator or a boot says: the agent
runs it on (F-03, ADR 54). Invariant: one fault of each kind, and of each health check, stands; one failure is a fault once.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from eslurm.core.model import facts
from eslurm.core.model.job import StepEnd
from eslurm.core.model.node import Node, NodeFault
from eslurm.core.model.node_health import KIND as HEALTH
from eslurm.core.model.node_health import FailingCheck
from eslurm.core.model.protocol import CHECKS_HEALTH
from eslurm.core.model.step_key import CHECK
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State
from eslurm.core.state.launch_failures import pause_s

CLOCK: Final = "clock"
"""Kind of the fault of a node that refuses commands as expired (`core.relay.command_dates`)."""
FAULTED_KEPT: Final = 8
TEXT_CHARS_MAX: Final = 500


def failed(
    node: Node | None, incarnation: int, kind: str, end: StepEnd, job_id: int, attempt: int, now_us: int
) -> list[facts.Fact]:
    """The fault that follows from a phase that failed in this incarnation of the node.

    None if it is known already, or if it failed before the host's last boot: a copy of its report that comes late tells of
    nothing that is left there, and the agent would not check for it.
    """
    if node is None or incarnation < node.boot_incarnation or (kind, job_id, attempt) in node.faulted:
        return []
    text = f"{kind} of job {job_id} failed: {why(end)}"
    until_us = 0 if CHECK in node.phases else now_us + pause_s(node) * SECOND_US
    return [facts.NodeFaulted(node.number, kind, text, job_id, attempt, until_us, end.took_us)]


def has_wrong_clock(node: Node) -> bool:
    """Check whether the node's clock stands as a fault."""
    return bool(node.faults) and any(fault.kind == CLOCK for fault in node.faults)


def clock_ahead(node: Node, ahead_us: int) -> facts.NodeFaulted:
    """The fault of a node whose clock is at least so far ahead of the controller's."""
    text = f"its clock is at least {ahead_us // SECOND_US} s ahead of the controller's: it refuses commands as expired"
    return facts.NodeFaulted(node.number, CLOCK, text, 0, 0)


def why(end: StepEnd) -> str:
    """The failure of a phase, in words."""
    how = f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}"
    text = end.text[:TEXT_CHARS_MAX]
    return f"{how}: {text}" if text else how


def due(node: Node, now_us: int) -> list[facts.Fact]:
    """The faults after which the node is tried again now."""
    kinds = tuple(fault.kind for fault in node.faults if 0 < fault.until_us <= now_us)
    return [facts.NodeCleared(node.number, kinds)] if kinds else []


def of_checks(node: Node, protocol: int = CHECKS_HEALTH) -> tuple[NodeFault, ...]:
    """The faults that only a passed health check ends; none for an agent of an earlier release, which would end none."""
    return tuple(fault for fault in node.faults if fault.check) if protocol >= CHECKS_HEALTH else ()


def standing(node: Node) -> str:
    """The node's faults for users; empty when none stands."""
    return "; ".join(fault.text for fault in node.faults)


def apply_faulted(state: State, fact: facts.NodeFaulted) -> None:
    node = state.nodes[fact.number]
    others = tuple(fault for fault in node.faults if fault.kind != fact.kind)
    fault = NodeFault(fact.kind, fact.text, state.now_us, fact.job_id, fact.until_us)
    state.put_node(
        replace(
            node,
            faults=(*others, fault),
            faulted=(*node.faulted, (fact.kind, fact.job_id, fact.attempt))[-FAULTED_KEPT:]
            if fact.job_id
            else node.faulted,
            aside_times=node.aside_times + (1 if fact.until_us else 0),
        )
    )


def apply_cleared(state: State, fact: facts.NodeCleared) -> None:
    node = state.nodes[fact.number]
    state.put_node(
        replace(node, faults=tuple(fault for fault in node.faults if fault.kind not in fact.kinds))
    )


def apply_health(state: State, fact: facts.NodeHealthReported) -> None:
    node = state.nodes[fact.number]
    before = {fault.check: fault for fault in node.faults if fault.check}
    others = tuple(fault for fault in node.faults if not fault.check)
    failing = (before.get(one.name) or _of_check(one, state.now_us) for one in fact.failing)
    state.put_node(replace(node, faults=(*others, *failing), health_serial=fact.serial))


def _of_check(failing: FailingCheck, now_us: int) -> NodeFault:
    text = f"health: {failing.name}: {failing.text or 'it fails'}"
    return NodeFault(HEALTH, text, now_us, check=failing.name)
