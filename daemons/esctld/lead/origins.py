"""The origin of a report or a call: the membership of its host, as proven by its link.

Invariant: a host speaks for the nodes of its own membership only. Agents prove theirs to the controller or to a satellite,
which passes it on; a revoked membership is never accepted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from eslurm.core.model.hostlist import holds
from eslurm.core.model.node import Node
from eslurm.core.model.protocol import Registration, Report
from eslurm.links.kinds import is_agent
from eslurm.ports.link import Link
from eslurm.v1 import link_pb2


def origin_of(link: Link, told: link_pb2.Origin) -> link_pb2.Origin:
    """The membership behind an item of this link. `told` is a satellite's statement; no other peer's counts."""
    peer = link.peer
    if peer.role == "satellite":
        return told if is_agent(told.role) else link_pb2.Origin()
    return link_pb2.Origin(role=peer.role, names=peer.names, serial=peer.serial)


def why_not_process(link: Link, origin: link_pb2.Origin, process: str, revoked: Collection[bytes]) -> str:
    """The reason why this origin does not speak for an agent's process; empty when it does."""
    if origin.serial in revoked:
        return f"membership {origin.serial.hex()} was revoked"
    is_relayed = link.peer.role == "satellite"
    name = process.rsplit(".", 1)[0].removeprefix("esnoded.")
    if holds(origin.names, name) if is_relayed else process == link.peer.process:
        return ""
    return f"{process[:64]} is not of {origin.names[:64] or 'a host that proved itself'}"


def why_not_report(origin: link_pb2.Origin, report: Report, nodes: Mapping[int, Node]) -> str:
    """The reason why this origin may not send that report; empty when it may."""
    body = report.body
    if isinstance(body, Registration):
        if body.login != (origin.role == "login"):
            return f"{body.name} is offered as a {_kind(body.login)}; its host is a member as {origin.role}"
        name = body.name
    else:
        node = nodes.get(body.node)
        if node is None:
            return ""
        name = node.name
    return "" if holds(origin.names, name) else f"the host is a member as {origin.names[:200]}, not as {name}"


def why_not_call(origin: link_pb2.Origin, node: Node | None, *, login: bool) -> str:
    """The reason why a call may not come from there; empty when it may. `login`: the node is a login host."""
    if node is None or not holds(origin.names, node.name):
        return "the call does not come from the node that it names"
    if login != (origin.role == "login"):
        return f"{node.name} is a {_kind(login)}; its host is a member as {origin.role}"
    return ""


def _kind(login: bool) -> str:
    return "login host" if login else "node"
