"""A controller's role, health and metrics over HTTP.

One page for the life of the process, whatever its role: a standby is watched as a leader is. It is healthy when it leads
with a store that takes commits, or can take over at any moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from esctld.lead import federation_metrics
from esctld.lead.dispatcher import Dispatcher
from esctld.lead.state_metrics import CENSUS, StateMetrics
from esctld.lead.statistics import Statistics
from eslurm.api.cpu_meter import Metered
from eslurm.api.limits import LIMITS
from eslurm.core.dispatch.broadcaster import Broadcaster
from eslurm.core.dispatch.inflight import Answered
from eslurm.core.model import facts
from eslurm.core.model.facts import Fact
from eslurm.core.model.gateways import GatewayStage
from eslurm.core.model.job import ATTESTED
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.model.satellite_states import SatelliteState
from eslurm.core.state.cluster import State
from eslurm.links.links import LinkTable
from eslurm.links.relay_counters import RelayCounters
from eslurm.ports.api import ApiError, Caller
from eslurm.ports.program_runner import CANCELLED
from eslurm.telemetry import logs, parts
from eslurm.telemetry.collected import Collected, page_of
from eslurm.telemetry.exposition import Described, MetricFamily
from eslurm.telemetry.metrics import CONTROLLER_PHASES, LEVELS_MAX, NODE_PHASES, ControllerMetrics
from eslurm.telemetry.status import Health, StatusServer
from eslurm.telemetry.vitals import LoopLag

if TYPE_CHECKING:
    from esctld.lead.cell_links import CellLinks
    from esctld.lead.federation import Federation
    from esctld.lead.others_usage import OthersUsage

STARTING = "starting"
STANDBY = "standby"
LEADER = "leader"
ROLES = (STARTING, STANDBY, LEADER)

ROLE = Described("eslurm_controller_role", "gauge", "1 for the role that this controller has now.", ("role",))
WELL = Described("eslurm_controller_healthy", "gauge", "Whether it does its duty, as /health says.")
EPOCH = Described("eslurm_controller_epoch", "gauge", "The epoch that it leads under.")
REVISION = Described("eslurm_revision", "gauge", "Revision of the last committed fact.")
AVAILABLE = Described("eslurm_store_available", "gauge", "Whether the job store takes commits.")
INBOX = Described(
    "eslurm_inbox_messages",
    "gauge",
    "Messages that wait to be decided: requests of people, and events of nodes, plans and timers.",
    ("lane",),
)
SATELLITES = Described("eslurm_satellites", "gauge", "Satellites, by state.", ("state",))
BROADCASTS_WAITING = Described("eslurm_broadcasts_waiting", "gauge", "Broadcasts that wait for a satellite.")
BROADCASTS = Described(
    "eslurm_broadcasts_total", "counter", "Broadcasts: sent straight or over satellites.", ("way",)
)
PEERS = Described("eslurm_controller_peers", "gauge", "Linked processes, by role.", ("role",))
CONTROLLER = (ROLE, WELL)
LEADING = (EPOCH, REVISION, AVAILABLE, INBOX, SATELLITES, BROADCASTS_WAITING, BROADCASTS, PEERS)

Collect = Callable[[], Iterable[MetricFamily]]

log = logging.getLogger("esctld.jobs")


def described() -> list[Described]:
    """All metrics of a controller, for the reference."""
    own = (*CONTROLLER, *LEADING, *ControllerMetrics().described, *CENSUS)
    return [*own, *federation_metrics.FEDERATION, *parts.RELAY, *parts.LINKS, *parts.OWN]


def _nothing() -> Iterable[MetricFamily]:
    return ()


class ControllerStatus:
    """One per process; each role calls `becomes`. Make it inside the running loop."""

    def __init__(self, metrics: ControllerMetrics, tls: parts.Certificates | None = None) -> None:
        self._metrics = metrics
        self._tls = tls
        self._role = STARTING
        self._health: Callable[[], Health] = lambda: Health(False, "starts")
        self._collect: Collect = _nothing
        self._lag = LoopLag()
        self._lag.start()
        metrics.registry.register(Collected(self._families))
        self._server = StatusServer(lambda: page_of(metrics.registry), self.health)
        self._opening: asyncio.Task[None] | None = None

    def becomes(self, role: str, health: Callable[[], Health], collect: Collect = _nothing) -> None:
        """Enter a role, with its health and metrics."""
        self._role, self._health, self._collect = role, health, collect
        logs.set_always(role=role)

    def health(self) -> Health:
        """Health of the present role."""
        return self._health()

    def open(self, listen: str) -> None:
        """Serve there as soon as the address is free: a stopped former leader may hold it."""
        self._opening = asyncio.create_task(self._server.keep_trying(listen), name="status server")

    async def close(self) -> None:
        """Serve no more."""
        self._lag.stop()
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        await self._server.stop()

    def _families(self) -> Iterator[MetricFamily]:
        yield ROLE.by({role: role == self._role for role in ROLES})
        yield WELL.is_(self.health().is_well)
        yield from self._collect()
        yield from parts.own_families(self._tls, self._lag.take_us() / 1e6)


class LeaderStatus:
    """One term as the leader."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        broadcaster: Broadcaster,
        state_metrics: StateMetrics,
        table: LinkTable,
        counters: RelayCounters,
        federation: Federation | None = None,
        cells: CellLinks | None = None,
        others_usage: OthersUsage | None = None,
    ) -> None:
        self._others_usage = others_usage
        self._cells = cells
        self._federation = federation
        self._dispatcher = dispatcher
        self._broadcaster = broadcaster
        self._state_metrics = state_metrics
        self._table = table
        self._counters = counters

    def health(self) -> Health:
        """Check whether it leads with a store that takes commits."""
        if not self._dispatcher.is_available:
            return Health(False, "leads, but the job store takes no commits")
        return Health(
            True, f"leads, epoch {self._dispatcher.view.epoch}, revision {self._dispatcher.view.revision}"
        )

    def families(self) -> Iterator[MetricFamily]:
        """The metrics of a leader."""
        dispatcher, broadcaster = self._dispatcher, self._broadcaster
        yield EPOCH.is_(dispatcher.view.epoch)
        yield REVISION.is_(dispatcher.view.revision)
        yield AVAILABLE.is_(dispatcher.is_available)
        yield INBOX.by(dispatcher.depths)
        states = dict.fromkeys((state.value for state in SatelliteState), 0.0)
        for satellite in broadcaster.satellites.satellites:
            states[satellite.state.value] += 1
        yield SATELLITES.by(states)
        yield BROADCASTS_WAITING.is_(broadcaster.waiting)
        straight = broadcaster.counters.direct
        yield BROADCASTS.by({"straight": straight, "satellites": broadcaster.counters.broadcasts - straight})
        peers = dict.fromkeys(("satellite", "agent", "controller"), 0.0)
        for link in self._table.links:
            peers[link.peer.role] = peers.get(link.peer.role, 0) + 1
        yield PEERS.by(peers)
        yield from self._state_metrics.families()
        yield from parts.relay_families(self._counters, broadcaster.relay)
        yield from parts.link_families(self._table.counters)
        yield from federation_metrics.families(self._federation, self._cells, self._others_usage)


class CountedCalls:
    """Calls of the service, counted by the way in, by method and by user, and refused submissions. A `ApiService`."""

    def __init__(self, service: Any, metrics: ControllerMetrics, statistics: Statistics) -> None:
        self._service = service
        self._statistics = statistics
        self._refused = metrics.refused
        self._calls = {via: metrics.calls.labels(via) for via in ("socket", "token", *sorted(ATTESTED))}
        for code in RefusalCode:
            metrics.refused.labels(code.value)
        for limit in LIMITS:
            metrics.refused_limits.labels(limit)

    async def call(self, method: Any, request: Any, caller: Caller) -> Any:
        """See `ports.api.ApiService`."""
        self._calls[caller.via].inc()
        rows = self._statistics.called(method.name, caller.principal)

        def charge(spent_s: float) -> None:
            for row in rows:
                row.charge(spent_s)

        try:
            return await Metered(self._service.call(method, request, caller), charge)
        except Refused as refusal:
            if method.name == "Submit":
                self._refused.labels(refusal.code.value).inc()
            raise
        except ApiError as error:
            if method.name == "Submit":
                self._refused.labels(error.status.name.lower()).inc()
            raise


def _tell(state: State, fact: Fact) -> None:
    """Log a fact of a single job, at debug level: there may be hundreds a second."""
    match fact:
        case facts.JobSubmitted(job_id, spec):
            log.debug("job %d is accepted, trace %s", job_id, spec.trace.hex())
        case facts.JobPlaced(job_id, attempt, spans):
            log.debug(
                "job %d, attempt %d: placed, %d spans", job_id, attempt, len(spans), extra=_of(state, job_id)
            )
        case facts.AttemptStarted(job_id, attempt):
            log.debug("job %d, attempt %d: began", job_id, attempt, extra=_of(state, job_id))
        case facts.NodesLost(job_id, attempt, nodes, why):
            names = ", ".join(state.node_names(nodes))
            text = "job %d, attempt %d: goes on without %s: %s"
            log.info(text, job_id, attempt, names, why, extra=_of(state, job_id))
        case facts.PartFinished(job_id, attempt, part, by):
            text = "job %d, attempt %d: gives back part %d, as %s says"
            log.info(text, job_id, attempt, part, by, extra=_of(state, job_id))
        case facts.StopRequested(job_id, attempt, stop):
            cause = stop.cause.value
            log.debug(
                "job %d, attempt %d: told to end (%s)", job_id, attempt, cause, extra=_of(state, job_id)
            )
        case facts.AttemptEnded(job_id, attempt, outcome):
            text = "job %d, attempt %d: ended, the job is %s"
            log.debug(text, job_id, attempt, outcome.value, extra=_of(state, job_id))
        case facts.JobFinished(job_id, outcome):
            log.debug("job %d: %s", job_id, outcome.value, extra=_of(state, job_id))


def _of(state: State, job_id: int) -> dict[str, str]:
    """The trace of a job that is still in memory, as a field of the log line."""
    job = state.find_job(job_id)
    return {"trace": job.spec.trace.hex()} if job is not None else {}


class EventCounts:
    """Counts committed facts and answered broadcasts. An `Observer` of broadcasts."""

    def __init__(self, state: State, metrics: ControllerMetrics) -> None:
        self._state = state
        self._metrics = metrics
        self._handlers: dict[type, Callable[[Any, int], None]] = {
            facts.JobSubmitted: lambda _fact, _now_us: metrics.submitted.inc(),
            facts.AttemptStarted: self._on_started,
            facts.AttemptEnded: self._on_ended,
            facts.JobFinished: lambda fact, _now_us: metrics.finished_waiting.labels(fact.state.value).inc(),
            facts.NodeStateChanged: lambda fact, _now_us: metrics.node_moves.labels(fact.state.value).inc(),
            facts.NodeRegistered: lambda _fact, _now_us: metrics.node_moves.labels("UP").inc(),
            facts.NodeSetAside: self._on_set_aside,
            facts.JobsForecast: self._on_forecasts,
            facts.NodesPrepared: lambda fact, _now_us: metrics.phase_ended("node_prolog", fact.prolog_us),
            facts.NodesReleased: lambda fact, _now_us: metrics.phase_ended("node_epilog", fact.epilog_us),
            facts.NodeFaulted: self._on_faulted,
            facts.GatewaysStaged: self._on_gateways,
            facts.ControllerPhaseEnded: self._on_controller_phase,
        }

    def on_committed(self, batch: Iterable[Fact], now_us: int) -> None:
        """These facts are durable."""
        tells = log.isEnabledFor(logging.DEBUG)
        for fact in batch:
            if tells:
                _tell(self._state, fact)
            handle = self._handlers.get(type(fact))
            if handle is not None:
                handle(fact, now_us)

    def _on_started(self, fact: facts.AttemptStarted, now_us: int) -> None:
        self._metrics.started.inc()
        job = self._state.find_job(fact.job_id)
        if job is not None:
            self._metrics.wait.observe(max(0, now_us - job.submitted_us) / 1e6)

    def _on_ended(self, fact: facts.AttemptEnded, _now_us: int) -> None:
        self._metrics.ended.labels(fact.outcome.value).inc()
        if fact.retry is not None:
            self._metrics.retries.labels(fact.retry.cause).inc()

    def _on_set_aside(self, fact: facts.NodeSetAside, now_us: int) -> None:
        node = self._state.nodes.get(fact.number)
        if node is not None:
            pause_s = max(0, fact.until_us - now_us) / 1e6
            log.warning("node %s is set aside for %.0f s: launches of jobs fail there", node.name, pause_s)

    def _on_faulted(self, fact: facts.NodeFaulted, _now_us: int) -> None:
        phase = NODE_PHASES.get(fact.kind)
        if phase is not None:
            self._metrics.phase_ended(phase, fact.took_us, is_good=False)

    def _on_controller_phase(self, fact: facts.ControllerPhaseEnded, _now_us: int) -> None:
        end = fact.end
        is_good = end.is_good or end.cause == CANCELLED
        self._metrics.phase_ended(
            CONTROLLER_PHASES[fact.phase], end.ended_us - end.started_us, is_good=is_good
        )

    def _on_gateways(self, fact: facts.GatewaysStaged, _now_us: int) -> None:
        if fact.stage is GatewayStage.FAILED:
            self._metrics.phase_ended("gateways", 0, is_good=False)

    def _on_forecasts(self, fact: facts.JobsForecast, now_us: int) -> None:
        self._metrics.forecasts.inc(len(fact.forecasts))
        self._metrics.forecast_at.set(now_us / 1e6)

    def on_answered(self, answered: Answered) -> None:
        """See `core.dispatch.inflight.Observer`."""
        if answered.trace is None:
            return
        metrics = self._metrics
        for level in answered.trace.levels:
            name = str(min(level.hop, LEVELS_MAX))
            metrics.level.labels(answered.kind, name).observe(level.done_max_us / 1e6)
            metrics.acknowledged.labels(name).observe(level.acked_sum_us / max(1, level.sends) / 1e6)
            if level.adopted:
                metrics.adopted.labels(name).inc(level.adopted)
