"""An agent's metrics and health over HTTP. One page, however many nodes.

It is healthy when its nodes are registered and hear from their controller.
"""

from __future__ import annotations

from collections.abc import Iterator

from eslurm.core.agent.attempt import Stage
from eslurm.core.agent.machine import Agent
from eslurm.core.relay.relay import Relay
from eslurm.links.links import LinkTable
from eslurm.links.relay_counters import RelayCounters
from eslurm.telemetry import parts
from eslurm.telemetry.exposition import Described, MetricFamily, text_of
from eslurm.telemetry.status import Health
from eslurm.telemetry.vitals import LoopLag
from eslurm.transport.counters import ApiCounters
from esnoded.spool import Spool
from esnoded.uplink import Uplink

SILENT_S = 90.0
"""Longer than an agent waits before it looks for the cluster itself (`uplink.SILENCE_S`, up to twice) and some more."""

NODES = Described("eslurm_agent_nodes", "gauge", "Nodes that this process serves, by standing.", ("state",))
ATTEMPTS = Described("eslurm_agent_attempts", "gauge", "Attempts of jobs on its nodes, by stage.", ("stage",))
UNACKNOWLEDGED = Described(
    "eslurm_agent_unacknowledged_reports", "gauge", "Reports that the controller has not acknowledged."
)
SPOOL = Described("eslurm_agent_spool_bytes", "gauge", "Size of the spool.")
SILENCE = Described(
    "eslurm_agent_silence_seconds", "gauge", "Time since anything came down from the controller."
)
UPLINK = Described(
    "eslurm_agent_uplink", "gauge", "Whether there is a way up now; one that is idle is closed."
)
DOOR_CALLS = Described(
    "eslurm_agent_door_calls_total",
    "counter",
    "Calls of commands at the agent's API socket, passed on or refused.",
)
DOOR_REFUSED = Described(
    "eslurm_agent_door_calls_refused_total", "counter", "Those that were refused, here or by the controller."
)
DOOR_CONNECTIONS = Described(
    "eslurm_agent_door_connections", "gauge", "Commands that are connected to the agent's API socket."
)
JOB_REQUESTS = Described(
    "eslurm_agent_job_requests_total", "counter", "Requests of jobs' programs at the job's socket."
)
JOB_REFUSED = Described(
    "eslurm_agent_job_requests_refused_total",
    "counter",
    "Those that were refused, here or by the controller.",
)
JOB_CONNECTIONS = Described(
    "eslurm_agent_job_connections", "gauge", "Programs that are connected to the job's socket."
)
AGENT = (
    *(NODES, ATTEMPTS, UNACKNOWLEDGED, SPOOL, SILENCE, UPLINK),
    *(DOOR_CALLS, DOOR_REFUSED, DOOR_CONNECTIONS, JOB_REQUESTS, JOB_REFUSED, JOB_CONNECTIONS),
)


def described() -> list[Described]:
    """All metrics of an agent, for the reference."""
    return [*AGENT, *parts.RELAY, *parts.LINKS, *parts.OWN]


class AgentStatus:
    """Reads the parts of one agent process. Costs some microseconds a node, once a second at most."""

    def __init__(
        self,
        agent: Agent,
        spool: Spool,
        uplink: Uplink,
        table: LinkTable,
        relay: Relay,
        counters: RelayCounters,
        calls: ApiCounters,
        job: ApiCounters,
        tls: parts.Certificates | None = None,
    ) -> None:
        self._agent = agent
        self._spool = spool
        self._uplink = uplink
        self._table = table
        self._relay = relay
        self._counters = counters
        self._calls, self._job = calls, job
        self._tls = tls
        self.lag = LoopLag()

    def page(self) -> bytes:
        """All of its metrics."""
        return text_of(self.families())

    def families(self) -> Iterator[MetricFamily]:
        """All of its metrics as families."""
        nodes = self._agent.registry.by_name.values()
        registered = sum(node.registered for node in nodes)
        stages = dict.fromkeys((stage.value for stage in Stage), 0.0)
        for node in nodes:
            for attempt in node.attempts.values():
                stages[attempt.stage.value] += 1
        yield NODES.by({"registered": registered, "offered": len(nodes) - registered})
        yield ATTEMPTS.by({stage.lower(): count for stage, count in stages.items()})
        yield UNACKNOWLEDGED.is_(len(self._agent.report_queue))
        yield SPOOL.is_(self._spool.size_bytes)
        yield SILENCE.is_(self._uplink.silence_s)
        yield UPLINK.is_(self._uplink.link is not None)
        yield DOOR_CALLS.is_(self._calls.calls)
        yield DOOR_REFUSED.is_(self._calls.calls_refused)
        yield DOOR_CONNECTIONS.is_(self._calls.connections_now)
        yield JOB_REQUESTS.is_(self._job.calls)
        yield JOB_REFUSED.is_(self._job.calls_refused)
        yield JOB_CONNECTIONS.is_(self._job.connections_now)
        yield from parts.relay_families(self._counters, self._relay)
        yield from parts.link_families(self._table.counters)
        yield from parts.own_families(self._tls, self.lag.take_us() / 1e6)

    def health(self) -> Health:
        """Check whether all nodes are registered, and something came down lately."""
        nodes = self._agent.registry.by_name.values()
        offered = [node.offer.name for node in nodes if not node.registered]
        if offered:
            way = "no way up is open" if self._uplink.link is None else "the controller has not accepted them"
            return Health(
                False, f"{len(offered)} of {len(nodes)} nodes are not registered ({offered[0]}): {way}"
            )
        silence_s = self._uplink.silence_s
        if silence_s > SILENT_S:
            return Health(False, f"nothing has come from the controller for {silence_s:.0f} s")
        return Health(True, f"serves {len(nodes)} nodes, all registered")
