"""The leading controller: builds the parts, starts them in order, stops them in the opposite one.

Start: state at the log's end (a standby has won the lead) -> configuration and epoch committed as facts -> links -> API.
Stop: API refuses -> inbox drained and committed -> lead let go -> links. A lost fence or a damaged store ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from esctld.config_file import loaded
from esctld.lead import housekeeping
from esctld.lead.attending import attend
from esctld.lead.broadcast_driver import BroadcastDriver
from esctld.lead.clock import Clock
from esctld.lead.dispatcher import Dispatcher
from esctld.lead.doctor import Doctor, DoctorInputs
from esctld.lead.failure_prediction import FailurePrediction
from esctld.lead.federation_doctor import examine
from esctld.lead.gc_tuning import spare_collector
from esctld.lead.joining import Joining
from esctld.lead.launch_attachments import BlobAttachments
from esctld.lead.leadership import NAME_FEATURE, Leadership, Lease, Standbys, give_up
from esctld.lead.links import ControllerLinks
from esctld.lead.log_export import LogKeeper, LogPages
from esctld.lead.mailers import mailer_of
from esctld.lead.mails import Mails
from esctld.lead.planner import Planner
from esctld.lead.program_runner import HostProgramRunner
from esctld.lead.programs import Programs
from esctld.lead.reconfiguration import Reconfiguration
from esctld.lead.revocations import Revocations
from esctld.lead.satellites import LinkedSatellites
from esctld.lead.site import Member, SiteSigner
from esctld.lead.state_metrics import StateMetrics
from esctld.lead.statistics import Statistics
from esctld.lead.tokens import Tokens
from esctld.lead.trees import TreeQueries
from esctld.serve.audit import Audits, open_audit
from esctld.serve.federation import FederationAnswers
from esctld.serve.job_events import JobEvents
from esctld.serve.jobs_of_cells import JobsOfCells
from esctld.serve.policies import Policies
from esctld.serve.service import ControllerService
from esctld.serve.shares import Shares
from esctld.serve.statistics import StatisticsAnswers
from esctld.serve.step_usage import StepUsages
from esctld.serve.views import Queries
from esctld.status import CountedCalls, EventCounts, LeaderStatus
from eslurm import __version__
from eslurm.api.audit import CallAudit
from eslurm.api.authoriser import Authoriser
from eslurm.api.grpc_server import door_handler
from eslurm.api.interceptor import Interceptor
from eslurm.api.limits import LimitSettings, RequestLimits
from eslurm.api.principals import Principals
from eslurm.api.server import RpcServer
from eslurm.api.tokens import TokenAuthenticator
from eslurm.calendar import SiteCalendar
from eslurm.config.federation import federation_of, pins_of
from eslurm.config.file import cluster_config, read_config
from eslurm.config.problems import ConfigError
from eslurm.config.sections import Config
from eslurm.core.control.reactor import Batch, Reactor
from eslurm.core.control.rights import level_of
from eslurm.core.dispatch.attendance import Attendance
from eslurm.core.dispatch.leader_lease import LeaderLease
from eslurm.core.dispatch.standby import Lead
from eslurm.core.model.messages import ConfigLoaded, EpochStarted, IdsBounded, Message, Refused
from eslurm.core.model.timekeeping import leap_bound_us
from eslurm.core.state.boundaries import set_calendar
from eslurm.core.state.cluster import State
from eslurm.links.blobs import BlobExchange, BlobUnavailable
from eslurm.links.endpoint_directory import EndpointDirectory
from eslurm.links.hello import LocalPeer
from eslurm.links.join_server import JoinServer
from eslurm.links.link_server import LinkServer
from eslurm.links.links import LinkTable
from eslurm.ports.api import Status
from eslurm.ports.link import Link
from eslurm.ports.store import BlobMissing, Store, StoreUnavailable
from eslurm.security.directory_seal import seal_book
from eslurm.telemetry.clocks import wall_us
from eslurm.telemetry.metrics import ControllerMetrics
from eslurm.transport.options import socket_budget
from eslurm.transport.tls import Tls

if TYPE_CHECKING:
    from esctld.lead.cell_links import CellLinks
    from esctld.lead.federation import Federation
    from esctld.lead.others_usage import OthersUsage
    from eslurm.api.jwt_tokens import JwtAuthenticator
    from eslurm.core.federation.usage import OtherUsage
    from eslurm.core.plan.cycle.plan import Plan

log = logging.getLogger("esctld")

OWNER = "main"
BLOB_CACHE_BYTES_MAX = 4 * 1024 * 1024
"""Enough for what is launched as it comes; of a long queue the store brings each blob back when its turn comes."""
SOCKETS_MAX = 96
"""Links to satellites, and to agents when there is none: beyond it agents have to wait."""
DRAIN_S = 5.0
STOP_GRACE_S = 1.0
HAND_OVER_DRAIN_S = 0.3
"""Questions that take longer are asked again at the next leader; what is decided is answered in any case."""


class CannotStart(Exception):
    """The configuration does not fit what the cluster is doing. The text says what and the way out."""


def socket_of(name: str) -> str:
    """A controller's socket, in its state directory."""
    return "esctld.sock" if name == OWNER else f"esctld-{name}.sock"


class ControllerOptions(msgspec.Struct, frozen=True):
    """Options of `esctld`. `listen` and `metrics_listen` override the configuration's; `config` is the latest content of
    `config_file`.
    """

    config: Config
    config_file: Path
    site_dir: Path
    """Directory of the site's keys, and of the files that the configuration names."""
    state_dir: Path
    """Directory of its own files."""
    site: SiteSigner
    """Signer of commands and tokens."""
    member: Member
    """Membership for its links."""
    name: str = OWNER
    listen: str = ""
    metrics_listen: str = ""
    tls: Tls | None = None
    """For all links and the remote API; None: they are plain."""

    @property
    def watched_at(self) -> str:
        """Address of /metrics and /health; empty: none."""
        return self.metrics_listen or self.config.controller.metrics_listen

    @property
    def is_only(self) -> bool:
        """Check whether it has the name that the only controller of a cluster has."""
        return self.name == OWNER

    @property
    def socket(self) -> Path:
        """The API socket for commands on this host: each controller has its own."""
        return self.state_dir / socket_of(self.name)

    def read_again(self) -> ControllerOptions:
        """The options with the configuration file read anew: a standby may have waited for months.

        An unusable file is logged, and the last configuration stays in force: better an old one than no controller.
        """
        try:
            return msgspec.structs.replace(self, config=read_config(self.config_file, is_obeyed=True))
        except ConfigError as error:
            log.error("the former configuration stays in force: %s", error)
            return self

    @property
    def lease_us(self) -> int:
        """Silence of a leader in microseconds after which a standby takes over."""
        return int(self.config.controller.lease_s * 1_000_000)


class Controller:
    """One term as the leader. Make it inside the running loop; `run` returns when the lead was released, or raises what
    ends the process.
    """

    def __init__(
        self,
        options: ControllerOptions,
        store: Store,
        lead: Lead,
        listen: str,
        principals: Principals,
        metrics: ControllerMetrics,
        stopped: asyncio.Event,
        *,
        must_fit: bool = True,
    ) -> None:
        """`listen` is the address for links; `lead` says where others find it.

        `must_fit`: a configuration that cannot be brought into force ends the process; else the former one stays.
        """
        self._must_fit = must_fit
        self._listen = listen
        self._options = options
        self._store = store
        self._lead = lead
        self._principals = principals
        self.metrics = metrics
        self._stopped = stopped

    async def run(self, serving: Callable[[Authoriser], None]) -> None:
        """Serve until stopped or told to hand over; `serving` is called once calls are answered."""
        async with contextlib.AsyncExitStack() as stack:
            options = self._options
            own_name = "" if options.is_only else options.name
            self._audit_log = open_audit(options.config.audit, options.state_dir, own_name, self.metrics)
            if self._audit_log is not None:
                # Last of all: what ends meanwhile leaves its line.
                stack.push_async_callback(asyncio.to_thread, self._audit_log.close)
            self._audit = CallAudit(self._audit_log, self._options.config.audit.lines_user_per_s)
            stack.callback(self._audit.close)
            self._build(self._lead.state, self._lead.epoch)
            stack.push_async_callback(self._programs.close)
            stack.push_async_callback(self._mails.close)
            dispatch = asyncio.create_task(self._dispatcher.run(), name="dispatcher")
            broadcast_driver = self._broadcast_driver
            lease = Lease(
                self._store,
                LeaderLease(self._options.lease_us),
                broadcast_driver.awake_us,
                broadcast_driver.broadcaster.on_renewed,
            )
            renewing = asyncio.create_task(lease.run(), name="lease")
            stack.push_async_callback(_end_tasks, [renewing, dispatch])
            read = loaded(self._options.config)
            for message in (
                ConfigLoaded(read.core, read.digest, is_takeover=not self._must_fit),
                EpochStarted(self._lead.epoch),
            ):
                if not await self._first(dispatch, message):
                    await _end_tasks([renewing, dispatch])
                    await give_up(self._store)
                    return
            await self._open(stack)
            await self._serve(serving, [dispatch, renewing])
            if await self._drain(dispatch):
                await _end_tasks([renewing])
                await self._leadership.let_go(lease, self._dispatcher.now_us())

    async def _first(self, dispatch: asyncio.Task[None], message: Message) -> bool:
        """Decide one of the first messages; false when stopped meanwhile (the store may be away).

        Raises what ends the dispatcher instead of an answer.
        """
        request = self._dispatcher.request(message)
        stopped = asyncio.create_task(self._stopped.wait(), name="stop")
        either: list[asyncio.Future[Any]] = [request, dispatch, stopped]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        await _end_tasks([stopped])
        if dispatch.done():
            await dispatch
        if not request.done():
            return False
        answer = await request
        if isinstance(answer, Refused):
            if self._must_fit or not self._lead.state.config.nodes:
                raise CannotStart(answer.text)
            log.error("the former configuration stays in force: %s", answer.text)
        return True

    async def reconfigure(self) -> None:
        """Take what the configuration file says by now, as far as that goes while this controller leads."""
        await self._reconfiguration.by_signal()

    # ---- building ----

    def _build(self, state: State, epoch: int) -> None:
        options = self._options
        cluster = options.config.cluster.name
        calendar_zone = options.config.policy.zone
        set_calendar(state, SiteCalendar(calendar_zone))
        self._local = LocalPeer(
            cluster=cluster,
            role="controller",
            process=f"{self._lead.name}.{secrets.token_hex(6)}",
            endpoint=self._lead.endpoint,
            build=__version__,
            features=(f"{NAME_FEATURE}{self._lead.name}",),
            owner=OWNER,
            epoch=epoch,
        )
        book = EndpointDirectory(
            epoch, lambda revision, digest: seal_book(options.site.keys, revision, digest)
        )
        standbys = Standbys()
        self._leadership = Leadership(self._lead, standbys, wall_us())
        self._statistics = Statistics(wall_us())
        self._planner = Planner(self.metrics, self._on_planned)
        satellites = LinkedSatellites(state, [(one.name, one.listen) for one in options.config.satellite])
        self._blobs = BlobExchange(BLOB_CACHE_BYTES_MAX, self._load_blob)
        self._attachments = BlobAttachments(self._blobs.cache, self._load_blobs, self.metrics)
        self._broadcast_driver = BroadcastDriver(
            state, book, self._local, self._planner, satellites, options.site, self._attachments
        )
        members = options.member.credentials.members
        self._links = ControllerLinks(
            *(state, book, satellites, standbys, self._principals, self._broadcast_driver),
            revoked=lambda: members.revoked,
            count_foreign=self.metrics.foreign_words.inc,
        )
        budget = socket_budget(SOCKETS_MAX)
        self._table = LinkTable(
            self._local,
            options.member.credentials,
            self._links,
            random.Random(),
            budget.table,
            tls=options.tls,
        )
        self._link_server = LinkServer(
            *(self._local, options.member.credentials, self._table, budget.links, self._table.counters),
            on_refused=partial(self._audit_refused, "Link"),
        )
        reactor = Reactor(state, on_bug=lambda bug: log.error("a message was refused by a bug", exc_info=bug))
        self._dispatcher = Dispatcher(
            reactor,
            self._store,
            self.metrics,
            inbox_max=options.config.controller.inbox_max,
            on_committed=self._on_committed,
            clock=Clock(state.now_us, leap_bound_us(cluster_config(options.config))),
        )
        self._attendance = Attendance()
        self._planner.attach(self._dispatcher)
        outputs = options.state_dir / ("phases" if options.is_only else f"phases-{options.name}")
        runner = HostProgramRunner(str(outputs))
        self._programs = Programs(state, runner, self._dispatcher.post)
        mail = options.config.mail
        self._mails = Mails(
            *(state, mailer_of(mail), mail, self.metrics),
            *(self._dispatcher.now_us, self._dispatcher.post),
        )
        self._driver = self._broadcast_driver.attach(self._dispatcher, self._table)
        broadcaster = self._broadcast_driver.broadcaster
        self._predictions = FailurePrediction(
            options.config.failure, state, self.metrics, broadcaster.set_predicted, self._driver.now_us
        )
        broadcaster.observe(self._predictions)
        self._happenings = EventCounts(state, self.metrics)
        broadcaster.observe(self._happenings)
        queries = Queries(self._dispatcher.view, self._planner, self._store, satellites.infos)
        trees = TreeQueries(state, broadcaster, self._predictions, satellites.name)
        service = ControllerService(
            self._dispatcher,
            self._planner,
            queries,
            trees,
            self._store,
            self._blobs.cache,
            self._leadership,
            OWNER,
            options.config.controller.step_networks,
            self._attendance,
        )
        dispatcher = self._dispatcher
        shares = Shares(
            state, dispatcher.view, self._planner.ranking, dispatcher.now_us, dispatcher.committed
        )
        service.offer("Shares", shares.call)
        statistics = StatisticsAnswers(
            self._statistics,
            dispatcher.view,
            self._planner,
            broadcaster,
            lambda: self._authoriser.in_flight,
            lambda: dispatcher.depths,
        )
        service.offer("Statistics", statistics.call)
        usages = StepUsages(dispatcher.view, self._broadcast_driver.ask)
        service.offer("StepUsage", usages.call)
        policies = Policies(self._dispatcher, calendar_zone)
        service.offer("Policies", policies.show)
        service.offer_change("ChangePolicies", policies.read)
        tokens = Tokens(state, self._dispatcher.view, self._principals, options.site, service.decide)
        service.offer("CreateToken", tokens.create)
        service.offer("Tokens", tokens.show)
        service.offer_change("RevokeTokens", tokens.read_revocation)
        joining = Joining(
            *(state, self._dispatcher.view, options.site, options.site_dir, options.state_dir, self._audit),
            *(self._dispatcher.request, service.decide, service.change),
        )
        service.offer("CreateJoinToken", joining.create)
        service.offer("Joins", joining.show)
        service.offer("DecideJoin", joining.settle)
        self._revocations = Revocations(
            *(state, options.site, options.member, options.site_dir),
            *(self._dispatcher.request, service.change),
        )
        service.offer("RevokeMembers", self._revocations.revoke)
        self._reconfiguration = Reconfiguration(
            *(options.config_file, options.config, service.decide),
            *(self._dispatcher.request, self._leadership.standbys),
        )
        service.offer("Reconfigure", self._reconfiguration.call)
        service.offer("ExportLog", LogPages(self._store, OWNER, cluster).export)
        service.offer("Audit", Audits(self._audit_log, self._lead.name).call)
        self._federation = self._join_federation(epoch)
        self._doctor = Doctor(state, self._dispatcher.view, self._store, self._surroundings(satellites))
        service.offer("Doctor", self._doctor.call)
        history_jobs = options.config.estimator.history_jobs
        self._feed = JobEvents(self._dispatcher, self._store, history_jobs=history_jobs)
        service.offer("JobFeed", self._feed.call)
        service.attach(self._federation)
        federation = FederationAnswers(self._federation, service.change)
        service.offer("Federation", federation.call)
        service.offer("ChangeFederation", federation.change)
        self._log_keeper = LogKeeper(
            self._store, OWNER, self._dispatcher, options.config.controller.log_kept_days
        )
        limits = RequestLimits(
            msgspec.convert(options.config.controller, LimitSettings, from_attributes=True),
            lambda limit: self.metrics.refused_limits.labels(limit).inc(),
        )
        self._state_metrics = StateMetrics(
            self._dispatcher.view, self._planner, self._store, self._dispatcher.now_us
        )
        self._cells = self._link_cells()
        others_usage = self._count_others()
        if others_usage is not None:
            self._planner.count_others(others_usage.summed)
            shares.count_others(others_usage)
        self.status = LeaderStatus(
            self._dispatcher,
            broadcaster,
            self._state_metrics,
            self._table,
            self._driver.counters,
            self._federation,
            self._cells,
            others_usage,
        )
        self._authoriser = Authoriser(
            CountedCalls(
                JobsOfCells(
                    service,
                    lambda: self._dispatcher.view,
                    self._federation,
                    self._cells.pass_on if self._cells is not None else None,
                    service.check_endpoint,
                ),
                self.metrics,
                self._statistics,
            ),
            partial(level_of, state),
            limits,
            self._audit,
            self._cells,
        )
        if self._cells is not None:
            self._cells.attach(self._table, self._authoriser, self._audit)
        self._links.attach(
            self._driver, self._dispatcher, self._blobs, self._authoriser, self._audit, self._cells
        )
        self._rpc = RpcServer(
            [self._link_server.handler(), JoinServer(joining).handler(), door_handler(self._authoriser)],
            Interceptor(
                TokenAuthenticator(
                    lambda: options.site.ring, tokens.ledger, wall_us, self._site_issuer(options)
                ),
                self._audit.on_refused,
            ),
            shares_port=True,
        )

    def _audit_refused(self, what: str, peer: str, reason: str) -> None:
        self._audit.on_refused(what, peer, Status.UNAUTHENTICATED, reason)

    def _site_issuer(self, options: ControllerOptions) -> JwtAuthenticator | None:
        """The authenticator for tokens of the site's own issuer, if configured."""
        section = options.config.tokens.jwt
        if not section.issuer:
            return None
        # Only for sites that have one.
        from eslurm.api.jwt_tokens import JwtAuthenticator, jwt_settings

        return JwtAuthenticator(jwt_settings(section, options.site_dir), self._principals.find_named)

    def _join_federation(self, epoch: int) -> Federation | None:
        """The part in a federation, if the cluster is a member of one."""
        options = self._options
        config = federation_of(options.config.federation, options.config.cluster.name)
        if config is None:
            if self._dispatcher.view.id_blocks:
                # It was one: from now on the ids after those that it has leased are its own.
                self._dispatcher.post(IdsBounded(is_open=True))
            return None
        # A plain cluster loads none of it.
        from esctld.lead.federation import Federation
        from eslurm.core.federation.membership import Identity, Lead
        from eslurm.core.federation.participant import Inputs
        from eslurm.core.model.federation import CELL_PROTOCOL
        from eslurm.federation.configured import store_of

        site, section = options.site, options.config.federation
        return Federation(
            lambda: store_of(section, options.site_dir),
            config,
            Identity(site.cluster, site.ring.sealed, __version__, CELL_PROTOCOL),
            Lead(epoch, self._lead.endpoint, since_us=wall_us()),
            site,
            Inputs(
                lambda: self._dispatcher.view,
                lambda: self._planner.profile,
                wall_us,
                self._dispatcher.post,
                self._planner.start_us,
            ),
        )

    def _link_cells(self) -> CellLinks | None:
        """Links to the other cells of the federation, if the cluster is a member of one."""
        if self._federation is None:
            return None
        from esctld.lead.cell_links import CellLinks
        from esctld.lead.transfer_calls import TransferCalls
        from eslurm.security.cells import CellTrust

        section = self._options.config.federation
        trust = CellTrust(pins_of(section), believes_store=section.trust == "store")
        credentials = self._options.member.credentials
        cells = CellLinks(
            self._federation, trust, credentials, self._local.process, self._principals, section.users
        )
        calls = TransferCalls(
            self._federation.cell,
            lambda: self._dispatcher.view,
            self._blobs.cache,
            self._load_blobs,
            cells.pass_on,
        )
        self._federation.attach(calls.answer)
        return cells

    def _count_others(self) -> OthersUsage | None:
        """Usage in other cells, if fair share counts it."""
        if self._federation is None or self._federation.usage is None or self._cells is None:
            return None
        from esctld.lead.others_usage import OthersUsage

        return OthersUsage(self._federation, self._dispatcher.view, self._cells.trusts)

    def _words_on_usage(self) -> Sequence[OtherUsage]:
        others_usage = self._count_others()
        return others_usage.words() if others_usage is not None else ()

    def _surroundings(self, satellites: LinkedSatellites) -> DoctorInputs:
        """The doctor's inputs besides the state."""
        options = self._options
        part, section = self._federation, options.config.federation
        return DoctorInputs(
            name=self._lead.name,
            epoch=self._lead.epoch,
            owner=OWNER,
            disks=(options.state_dir,),
            keys=options.member.files.look,
            satellites=lambda: satellites.roster.satellites,
            links=lambda: self._table.links,
            problems=self._predictions.problems,
            federation=partial(examine, part, section, self._words_on_usage) if part is not None else None,
        )

    def _on_committed(self, messages: Sequence[Message], batch: Batch) -> None:
        """A batch is durable. A failing observer does not keep the others from it."""
        watch = self._doctor.watch
        told: tuple[Callable[[], None], ...] = (
            lambda: self._broadcast_driver.on_committed(messages, batch),
            self._programs.on_committed,
            self._mails.on_committed,
            lambda: self._feed.on_committed(batch),
            lambda: self._happenings.on_committed(batch.facts, batch.now_us),
            lambda: self._statistics.on_committed(batch.facts),
            lambda: watch.on_committed(messages, batch.facts, batch.revision_first, batch.now_us),
        )
        if (federation := self._federation) is not None:
            told = (*told, lambda: federation.on_committed(batch))
        for tell in told:
            try:
                tell()
            except Exception:
                log.exception("what a commit has led to could not all be done")

    def _on_planned(self, plan: Plan, spent_s: float, slots: int) -> None:
        queue = self._dispatcher.view.pending_count
        self._statistics.cycles.add(plan, spent_s, queue=queue, slots=slots, at_us=wall_us())

    async def _load_blob(self, digest: bytes, _source: Link | None) -> bytes:
        try:
            return await self._store.get_blob(OWNER, digest)
        except (BlobMissing, StoreUnavailable) as error:
            raise BlobUnavailable(str(error)) from None

    async def _load_blobs(self, digests: Collection[bytes], bytes_max: int) -> Mapping[bytes, bytes]:
        try:
            return await self._store.get_blobs(OWNER, digests, bytes_max)
        except StoreUnavailable as error:
            raise BlobUnavailable(str(error)) from None

    # ---- serving and stopping ----

    async def _open(self, stack: contextlib.AsyncExitStack) -> None:
        """Open links and loops; they are closed when the stack ends."""
        # Before links are taken: what was revoked while another one led is refused here, too.
        await self._revocations.settle()
        endpoint = await self._rpc.listen(self._listen, self._options.tls)
        await self._rpc.start()
        stack.push_async_callback(self._rpc.stop, STOP_GRACE_S)
        stack.push_async_callback(self._end_links)
        stack.push_async_callback(self._predictions.close)
        await self._predictions.start()
        self._broadcast_driver.lead()
        stack.callback(self._authoriser.stop_admitting, "the controller stops: try again in a moment")
        spare_collector()
        log.info("cluster %s: %s leads at %s", self._local.cluster, self._lead.name, endpoint)

    async def _serve(
        self, serving: Callable[[Authoriser], None], essential: Sequence[asyncio.Task[None]]
    ) -> None:
        """Serve until stopped or a handover. Raises what ends one of the loops."""
        works = [
            ("planner", self._planner.run()),
            ("ticks", self._broadcast_driver.tick()),
            ("attendance", attend(self._attendance, self._dispatcher)),
            ("pruning", housekeeping.prune(self._store, self._dispatcher.state, self._log_keeper)),
            ("failure prediction", self._predictions.run()),
            ("site keys", self._options.member.run()),
            ("revocations", self._revocations.run()),
        ]
        if self._federation is not None and self._cells is not None:
            works += [("federation", self._federation.run()), ("cells", self._cells.run())]
        if self._options.watched_at:
            works.append(("state metrics", self._state_metrics.run()))
        tasks = [asyncio.create_task(work, name=name) for name, work in works]
        stopped = asyncio.create_task(self._stopped.wait(), name="stop")
        handing_over = asyncio.create_task(self._leadership.handing_over.wait(), name="hand over")
        ends = {stopped, handing_over}
        serving(self._authoriser)
        try:
            done, _ = await asyncio.wait({*ends, *essential, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - ends:
                # A loop that ends by itself is broken: better no controller than half of one.
                await task
                raise RuntimeError(f"{task.get_name()} has ended")
        finally:
            await _end_tasks([*ends, *tasks])

    async def _drain(self, dispatch: asyncio.Task[None]) -> bool:
        """Refuse new calls, answer and commit accepted ones. False when the store did not take them in time."""
        # Before the next leader begins them again.
        await self._programs.close()
        await self._mails.close()
        why = "the lead passes to another controller" if self._handing_over else "the controller stops"
        self._authoriser.stop_admitting(f"{why}: try again in a moment")
        self._link_server.stop_admitting(why)
        self._dispatcher.interrupt()
        await self._authoriser.drain(HAND_OVER_DRAIN_S if self._handing_over else DRAIN_S)
        self._dispatcher.stop()
        done, _ = await asyncio.wait({dispatch}, timeout=DRAIN_S)
        if not done:
            log.error("the inbox could not be emptied in %g s", DRAIN_S)
            return False
        await dispatch
        return True

    @property
    def _handing_over(self) -> bool:
        return self._leadership.handing_over.is_set()

    async def _end_links(self) -> None:
        await self._doctor.close()
        await self._feed.close()
        await self._links.close()
        if self._cells is not None:
            await self._cells.close()
        await self._attachments.close()
        await self._driver.close()
        await self._blobs.close()
        why = "another controller leads" if self._handing_over else "the controller stops"
        await self._table.close(why)
        await self._link_server.close_links(why)


async def _end_tasks(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
