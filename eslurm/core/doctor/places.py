"""Nodes, satellites and linked daemons: out of service, of another release, with a wrong clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from eslurm.core.dispatch.satellite_pool import Satellite
from eslurm.core.doctor.finding import ERROR, WARNING, Finding, Severity, Sliced
from eslurm.core.model.hostlist import fold
from eslurm.core.model.node import Node
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.satellite_states import SatelliteState
from eslurm.core.model.units import SECOND_US
from eslurm.core.model.wording import are, counted
from eslurm.core.state.cluster import State
from eslurm.core.state.faults import CLOCK, has_wrong_clock

NODES = "nodes"
HEALTH = "health"
SATELLITES = "satellites"
CLOCKS = "clocks"
VERSIONS = "versions"
LINKS = "links"
SKEW_WARNED_US = 1 * SECOND_US
SKEW_BAD_US = 30 * SECOND_US
"""Commands expire by the controller's time: a node whose clock is further off refuses them."""


class Peer(msgspec.Struct, frozen=True):
    """A linked daemon. `skew_us` is the lead of its clock over ours, None if it does not report it."""

    role: str
    name: str
    build: str
    skew_us: int | None = None


def check_nodes(state: State, now_us: int) -> Sliced:
    """Check for nodes out of service, grouped by state and reason, and for other epochs."""
    groups: dict[tuple[NodeState, bool, str], list[Node]] = {}
    faulted: dict[tuple[str, ...], list[str]] = {}
    failing: dict[tuple[str, ...], list[str]] = {}
    clocks: list[str] = []
    behind: list[str] = []
    for node in list(state.nodes.values()):
        yield None
        if node.state is not NodeState.UP or node.drain:
            groups.setdefault((node.state, node.drain, node.reason), []).append(node)
        elif node.faults:
            if has_wrong_clock(node):
                clocks.append(node.name)
            if checks := tuple(sorted(fault.check for fault in node.faults if fault.check)):
                failing.setdefault(checks, []).append(node.name)
            if kinds := tuple(
                sorted(fault.kind for fault in node.faults if fault.kind != CLOCK and not fault.check)
            ):
                faulted.setdefault(kinds, []).append(node.name)
        elif node.epoch != state.epoch:
            behind.append(node.name)
    for (node_state, drain, reason), nodes in groups.items():
        finding = _out_of_service(state, node_state, drain, reason, nodes, now_us)
        if finding is not None:
            yield finding
    for kinds, names in faulted.items():
        text = f"no new work: {' and '.join(kinds)} failed there"
        yield Finding(NODES, WARNING, _named("node", names), text, _FAULT_ADVICE)
    for checks, names in failing.items():
        text = f"no new work: the health {'check' if len(checks) == 1 else 'checks'} {' and '.join(checks)} failed there"
        yield Finding(NODES, WARNING, _named("node", names), text, _CHECK_ADVICE)
    if clocks:
        text = "no new work: clocks there are too far ahead of the controller's"
        yield Finding(CLOCKS, WARNING, _named("node", clocks), text, _CLOCK_ADVICE)
    if behind:
        text = f"in service, though registered under another epoch than {state.epoch}"
        yield Finding(NODES, ERROR, _named("node", behind), text, "restart the agents of these nodes")


_CLOCK_ADVICE = "set the clocks of these hosts and of the controller's by one source of time (NTP)"
_CHECK_ADVICE = "see `esinfo -R` for why; they take work again when the check passes"
_FAULT_ADVICE = "see `esinfo -R` for how it ended; the node's check, a boot or `esctl resume NODE` clears it"


def _out_of_service(
    state: State, node_state: NodeState, drain: bool, reason: str, nodes: list[Node], now_us: int
) -> Finding | None:
    names = [node.name for node in nodes]
    jobs = {job_id for node in nodes for job_id in state.jobs_on.get(node.number, ())}
    longest_s = (now_us - min(node.since_us for node in nodes)) // SECOND_US
    if node_state is NodeState.UP:
        # Drained on purpose is no fault; drained by the controller itself, because it offers too little, is one.
        if not reason.startswith("offers "):
            return None
        return Finding(
            NODES, WARNING, _named("node", names), f"drained: {reason}", "correct [[nodes]] or repair it"
        )
    text = f"{node_state.value} for up to {longest_s} s"
    text += f" ({reason})" if reason else ""
    text += f", {counted(len(jobs), 'job')} {are(len(jobs))} kept there" if jobs else ""
    advice = (
        "see whether host, network and esnoded run; `esctl down NODE` gives a node up, and its jobs with it"
    )
    return Finding(NODES, WARNING, _named("node", names), text, advice)


def check_health(state: State, problems: Mapping[int, Sequence[str]]) -> Sliced:
    """Health problems that agents report of their own hosts (E-28)."""
    groups: dict[str, list[int]] = {}
    for number, words in sorted(problems.items()):
        yield None
        for word in words:
            groups.setdefault(word, []).append(number)
    for word, numbers in groups.items():
        what = _named("node", state.node_names(numbers))
        yield Finding(
            HEALTH, WARNING, what, f"reports a problem with its {word}", _HEALTH_ADVICE.get(word, _LOOK_THERE)
        )


_LOOK_THERE = "look at the host"
_HEALTH_ADVICE = {
    "clock": "let its clock be disciplined: chronyc tracking",
    "disk": "make room on the disk of its spool and its jobs' output, or see whether the disk answers",
    "memory": "see what uses the memory: jobs are held to what they asked for",
    "load": "see what runs beside the jobs",
}


def check_satellites(satellites: Iterable[Satellite], now_us: int) -> Sliced:
    """Check for satellites without work, and for a last working one."""
    count = serving = 0
    for one in satellites:
        yield None
        count += 1
        serving += one.state in (SatelliteState.RUNNING, SatelliteState.BUSY)
        for_s = (now_us - one.since_us) // SECOND_US
        why = f" ({one.reason})" if one.reason else ""
        what = f"satellite {one.name}"
        if one.state is SatelliteState.FAULT:
            advice = "see whether its host and essatd run; it heals by itself when it answers again"
            yield Finding(SATELLITES, WARNING, what, f"in FAULT for {for_s} s{why}", advice)
        elif one.state is SatelliteState.DOWN:
            advice = f"when it is repaired: esctl satellite resume {one.name}"
            yield Finding(SATELLITES, WARNING, what, f"DOWN for {for_s} s{why}", advice)
        elif one.state is SatelliteState.UNKNOWN and now_us - one.since_us > SKEW_BAD_US:
            yield Finding(
                SATELLITES, WARNING, what, f"not heard of for {for_s} s", "start essatd on its host"
            )
    if count and not serving:
        text = f"none of {count} is in service: the controller serves all nodes itself"
        yield Finding(SATELLITES, ERROR, "satellites", text, "see the findings of each")


def check_peers(peers: Iterable[Peer], build: str) -> Sliced:
    """Check releases and clocks of the daemons that are linked to this controller."""
    others: dict[tuple[str, str], list[str]] = {}
    for peer in peers:
        yield None
        if peer.build != build:
            others.setdefault((peer.role, peer.build or "unknown"), []).append(peer.name)
        if peer.skew_us is not None and abs(peer.skew_us) > SKEW_WARNED_US:
            ahead = "ahead of" if peer.skew_us > 0 else "behind"
            text = f"its clock is {abs(peer.skew_us) / SECOND_US:.1f} s {ahead} the controller's"
            severity: Severity = ERROR if abs(peer.skew_us) > SKEW_BAD_US else WARNING
            advice = "let its clock be disciplined: chronyc tracking"
            yield Finding(CLOCKS, severity, f"{peer.role} {peer.name}", text, advice)
    for (role, theirs), names in sorted(others.items()):
        text = f"build {theirs}, the controller has {build}"
        advice = "one release apart is fine during an upgrade; finish it"
        yield Finding(VERSIONS, WARNING, _named(role, sorted(names)), text, advice)


def _named(what: str, names: Sequence[str]) -> str:
    """One thing by its name, several as a folded list."""
    return f"{what} {fold(names)}" if len(names) == 1 else f"{len(names)} {what}s {fold(names)}"
