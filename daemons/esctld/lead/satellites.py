"""The satellites' links: their processes, endpoints, and status lines.

A satellite is known by its name, or by an endpoint to which the configuration gives a name. Invariant: a satellite has the
links of one process; when another process takes its place, the old one's links are ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from eslurm.core.dispatch.satellite_pool import Satellite, SatellitePool, SatelliteStatus
from eslurm.core.model.satellite_states import SatelliteState
from eslurm.core.state.cluster import State
from eslurm.ports.link import Link
from eslurm.v1 import controller_pb2 as pb
from eslurm.v1 import link_pb2

log = logging.getLogger("esctld.satellites")


class _Linked:
    __slots__ = ("endpoint", "links", "process")

    def __init__(self, link: Link) -> None:
        self.process = link.peer.process
        self.endpoint = link.peer.endpoint
        self.links = [link]


class LinkedSatellites:
    """Keeps the roster in step with the links. `configured` are names and endpoints, in order."""

    def __init__(self, state: State, configured: Sequence[tuple[str, str]]) -> None:
        self._endpoints = dict(configured)
        self._names = {endpoint: name for name, endpoint in configured}
        self._linked: dict[int, _Linked] = {}
        self.roster = SatellitePool(state, self._endpoints, self._ping)

    def add(self, link: Link, now_us: int) -> str:
        """A satellite process is linked. Returns the reason of a refusal; empty when it is accepted."""
        name = self._name_of(link)
        refusal = self.roster.refusal(name) or self._taken(name, link)
        if refusal:
            return refusal
        known = self.roster.find(name)
        linked = self._linked.get(known.number) if known is not None else None
        if linked is not None and linked.process == link.peer.process:
            linked.links.append(link)
            return ""
        if known is None:
            log.warning("satellite %s is not in the configuration: it serves all the same", name)
        satellite = self.roster.admit(name, now_us)
        self._linked[satellite.number] = _Linked(link)
        # Not before: it is pinged at once.
        self.roster.on_linked(name, now_us)
        return ""

    def remove(self, link: Link) -> int | None:
        """A link has ended. Returns the satellite's number if it was its last one."""
        number = self.number_of(link)
        if number is None:
            return None
        links = self._linked[number].links
        if link in links:
            links.remove(link)
        if links:
            return None
        del self._linked[number]
        return number

    def number_of(self, link: Link) -> int | None:
        """Number of the satellite at the other end; None for a process that is none (any more)."""
        process = link.peer.process
        return next((number for number, linked in self._linked.items() if linked.process == process), None)

    def endpoint(self, number: int) -> str | None:
        """Endpoint of the satellite of that number, while it is linked."""
        linked = self._linked.get(number)
        return linked.endpoint if linked is not None else None

    def name(self, number: int) -> str:
        """The satellite's name."""
        return self.roster.get(number).name

    def infos(self) -> list[pb.SatelliteInfo]:
        """One status line for each."""
        return [self._info(satellite) for satellite in self.roster.satellites]

    def _info(self, one: Satellite) -> pb.SatelliteInfo:
        status = one.status
        return pb.SatelliteInfo(
            name=one.name,
            endpoint=self.endpoint(one.number) or self._endpoints.get(one.name, ""),
            state=one.state.value,
            since_us=one.since_us,
            broadcasts=one.tasks_given,
            tasks_running=one.running,
            nodes_given=one.nodes_given,
            failures=one.failures,
            rss_bytes=status.rss_bytes,
            sockets=status.sockets,
            lag_us=status.lag_us,
            suspect=one.is_suspect,
            reason="" if one.state is SatelliteState.RUNNING else one.reason,
            heard_us=one.heard_us,
        )

    def _ping(self, number: int, seq: int) -> None:
        linked = self._linked.get(number)
        if linked is not None:
            linked.links[-1].send(link_pb2.Item(satellite_ping=link_pb2.SatellitePing(seq=seq)))

    def _name_of(self, link: Link) -> str:
        """Its own name, unless only its endpoint is in the configuration."""
        name = link.peer.process.rpartition(".")[0]
        return name if name in self._endpoints else self._names.get(link.peer.endpoint, name)

    def _taken(self, name: str, link: Link) -> str:
        """Check whether the name is in use: two satellites of one name would displace each other for ever, so the first
        one stays.
        """
        known = self.roster.find(name)
        linked = self._linked.get(known.number) if known is not None else None
        if linked is None or linked.process == link.peer.process or linked.endpoint == link.peer.endpoint:
            return ""
        return f"satellite name '{name}' is taken by the one at {linked.endpoint}: give each its own name (--name)"


def status_from_pb(message: link_pb2.SatelliteStatus) -> SatelliteStatus:
    """A satellite's status from its message."""
    return SatelliteStatus(
        message.seq,
        message.tasks,
        message.nodes,
        message.rss_bytes,
        message.sockets,
        message.lag_us,
        message.queued,
    )
