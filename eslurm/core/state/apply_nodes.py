"""Application of facts about the configuration, epochs and nodes."""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.model import facts
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.job_states import IllegalTransition
from eslurm.core.model.node import Node
from eslurm.core.model.node_states import TRANSITIONS, NodeState
from eslurm.core.resources.vector import WIDTH
from eslurm.core.state import apply_phases, faults, launch_failures
from eslurm.core.state.cluster import State

SESSIONS_KEPT = 8
DIGESTS_KEPT = 64
NOTHING = (0,) * WIDTH
"""A login host's resources for jobs."""


def moved(node: Node, state: NodeState) -> NodeState:
    """`state`, if the table allows the transition."""
    if state is not node.state and state not in TRANSITIONS[node.state]:
        raise IllegalTransition(f"node {node.name}: {node.state.value} -> {state.value}")
    return state


def apply_partition(state: State, fact: facts.PartitionSet) -> None:
    state.set_partition(fact.name, fact.state)


def apply_config(state: State, fact: facts.ConfigAccepted) -> None:
    given = dict(fact.numbers)
    totals = {node_config.name: node_config.total for node_config in fact.config.nodes}
    configured = totals | dict.fromkeys(fact.config.login_nodes, NOTHING)
    for name, total in configured.items():
        number = state.numbers.get(name)
        if number is None:
            node = Node(number=given[name], name=name, total=total, since_us=state.now_us)
        else:
            node = state.nodes[number]
            if node.total != total:
                node = replace(node, total=total)
            if node.drain and name in fact.config.login_nodes:
                node = replace(node, drain=False, reason="", aside_until_us=0)
        dead_s = _orphans_dead_s(state, node, fact.config)
        if number is None or node is not state.nodes[number] or dead_s != node.orphans_dead_s:
            state.put_node(replace(node, orphans_dead_s=dead_s))
    gone = [node for node in state.nodes.values() if node.name not in configured]
    named = state.named_nodes() if gone else set()
    for node in gone:
        if node.number not in named:
            state.drop_node(node.number)
        else:
            state.put_node(replace(node, orphans_dead_s=_orphans_dead_s(state, node, fact.config)))
    if fact.digest:
        earlier = [digest for digest in state.config_digests if digest != fact.digest]
        state.config_digests = (*earlier, fact.digest)[-DIGESTS_KEPT:]
    state.set_config(fact.config, state.revision)


def _orphans_dead_s(state: State, node: Node, config: ClusterConfig) -> float:
    """Seconds after which the node's attempts are dead: with changed time-outs, those of their launch still count."""
    if node.number not in state.jobs_on:
        return 0.0
    before_s = state.config.orphan_timeout_s + state.config.kill_grace_s
    same = before_s == config.orphan_timeout_s + config.kill_grace_s
    return node.orphans_dead_s if same else max(node.orphans_dead_s, before_s)


def apply_epoch(state: State, fact: facts.EpochBegan) -> None:
    state.epoch = fact.epoch
    state.touched.settings = True
    for node in list(state.nodes.values()):
        if node.state in (NodeState.UP, NodeState.UNREACHABLE):
            state.put_node(replace(node, state=moved(node, NodeState.UNKNOWN), since_us=state.now_us))
        elif node.state is NodeState.UNKNOWN:
            state.put_node(replace(node, since_us=state.now_us))


def apply_registered(state: State, fact: facts.NodeRegistered) -> None:
    node = state.nodes[fact.number]
    past = node.sessions_past
    is_the_same = node.node_uid == fact.node_uid and node.state is not NodeState.LOST
    if node.session not in ("", fact.session):
        # Of older epochs too: a session offers itself under each epoch that it hears of.
        past = (node.session, *past)[:SESSIONS_KEPT]
    state.put_node(
        replace(
            node,
            state=moved(node, NodeState.UP),
            sessions_past=past,
            since_us=state.now_us,
            node_uid=fact.node_uid,
            boot_id=fact.boot_id,
            session=fact.session,
            incarnation=fact.incarnation,
            epoch=fact.epoch,
            endpoint=fact.endpoint,
            protocol=fact.protocol,
            phases=fact.phases,
            contained=fact.contained,
            offered=fact.total,
            # A host that was booted has nothing left of what failed. Its checks are run anew: until then they count.
            faults=tuple(fault for fault in node.faults if not fault.check and node.boot_id == fact.boot_id)
            + faults.of_checks(node, fact.protocol),
            health_serial=0,
            boot_incarnation=node.boot_incarnation if node.boot_id == fact.boot_id else fact.incarnation,
            # Another individual counts its own sessions, and one that was lost counts on from what it remembers.
            starts=max(node.starts, fact.starts) if is_the_same else fact.starts,
            # An agent that begins anew is tried at once.
            drain=node.drain and not node.aside_until_us,
            aside_until_us=0,
            reason=node.reason if node.drain and not node.aside_until_us else "",
        )
    )
    apply_phases.ask_again(state, fact.number)


def apply_state(state: State, fact: facts.NodeStateChanged) -> None:
    node = state.nodes[fact.number]
    state.put_node(
        replace(
            node,
            state=moved(node, fact.state),
            since_us=state.now_us,
            reason=node.reason if node.drain else fact.reason,
        )
    )


def apply_drain(state: State, fact: facts.NodeDrainChanged) -> None:
    node = state.nodes[fact.number]
    # What people say counts from now on, and a node that they resume begins anew.
    state.put_node(
        replace(
            node,
            drain=fact.drain,
            reason=fact.reason,
            failed_launches=(),
            aside_until_us=0,
            aside_times=0,
            # A check that fails would drain it again with its next run.
            faults=node.faults if fact.drain else faults.of_checks(node),
        )
    )


def apply_set_aside(state: State, fact: facts.NodeSetAside) -> None:
    node = state.nodes[fact.number]
    state.put_node(
        replace(
            node,
            drain=True,
            reason=launch_failures.reason(fact.jobs),
            aside_until_us=fact.until_us,
            aside_times=node.aside_times + 1,
        )
    )


def apply_tried_again(state: State, fact: facts.NodeTriedAgain) -> None:
    node = state.nodes[fact.number]
    state.put_node(replace(node, drain=False, reason="", aside_until_us=0))
