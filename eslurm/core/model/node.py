"""A compute node as the controller knows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from eslurm.core.model.node_states import NodeState
from eslurm.core.model.protocol import KNOWS_PARTS


class NodeFault(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A reason why no new work is placed on a node: its prolog or epilog failed (a passed check or a boot clears it), its
    clock is too far ahead (a right clock does), or one of its health checks fails (when it passes, that fault is over).
    """

    kind: str
    text: str
    since_us: int
    job_id: int = 0
    until_us: int = 0
    """Time at which the node is tried again; 0: when the fault is cleared."""
    check: str = ""
    """Name of the health check that fails; empty: another fault."""


class Node(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One node's current record.

    `number` is durable and is what messages carry; `name` is for people. `session` is the agent's nonce of
    its last registration: a repeated registration gets the same answer. `incarnation` rises with each new
    registration and every command names it; `epoch` is the controller epoch under which it registered.
    `endpoint` is where its agent process listens (many nodes may share one). `sessions_past` are the latest sessions
    before this one: a registration of theirs that arrives now is a late copy. `starts` is the highest session count of
    this `node_uid` that was accepted: one with a lower count was overtaken, whether it was ever accepted or not.
    `failed_launches` are the jobs (id, uid) whose launch has failed here since a launch succeeded. A node that was set
    aside for that is drained until `aside_until_us` (0: it is not set aside), `aside_times` in a row.
    """

    number: int
    name: str
    total: tuple[int, ...]
    state: NodeState = NodeState.UNKNOWN
    since_us: int = 0
    node_uid: str = ""
    boot_id: str = ""
    session: str = ""
    incarnation: int = 0
    epoch: int = 0
    endpoint: str = ""
    drain: bool = False
    reason: str = ""
    sessions_past: tuple[str, ...] = ()
    starts: int = 0
    failed_launches: tuple[tuple[int, int], ...] = ()
    aside_until_us: int = 0
    aside_times: int = 0
    orphans_dead_s: float = 0.0
    """Seconds of silence after which attempts launched under earlier configurations are dead; 0: as configured now."""
    faults: tuple[NodeFault, ...] = ()
    protocol: int = 0
    """The protocol that its agent named at its last registration (`core.model.protocol.AGENT_PROTOCOL`)."""
    faulted: tuple[tuple[str, int, int], ...] = ()
    """The latest failures (kind, job, attempt) that were faults: a late copy of a report is none."""
    phases: tuple[str, ...] = ()
    """Programs that the node's own configuration names: prolog, epilog, check."""
    contained: tuple[str, ...] = ()
    """Effects of control groups on jobs there (`CONTAINMENT`)."""
    offered: tuple[int, ...] = ()
    """Cores and memory that its agent offered at its last registration; empty: before the controller kept it."""
    boot_incarnation: int = 0
    """The first incarnation since the host's last boot."""
    health_serial: int = 0
    """The serial of the last report of its health checks in this incarnation."""


CONTAINMENT = ("kill", "memory", "pids", "cpu", "cpuset")
"""Words for control groups of jobs: no process survives its step, memory and processes are limited, cores are shared, or
each job has its own.
"""


def names_of(nodes: Mapping[int, Node], numbers: Iterable[int]) -> list[str]:
    """Names of nodes for output; a node that has left the configuration is named by its number."""
    return [nodes[number].name if number in nodes else f"#{number}" for number in numbers]


def is_usable(node: Node) -> bool:
    """Check whether new work may be placed here."""
    return node.state is NodeState.UP and not node.drain and not node.faults


def is_older(node: Node) -> bool:
    """Check whether its agent is of a release that knows neither jobs of several parts nor phases."""
    return node.incarnation > 0 and node.protocol < KNOWS_PARTS
