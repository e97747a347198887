"""The node agent's process: links, relay, API socket, and the shell around the core, wired together.

Order of a start: the step supervisor is there (see `__main__`) -> the spool and the runner's steps are read -> the
core is restored -> links and API socket open -> the nodes are offered. Invariant: no command is taken before that.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import secrets
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakSet

import msgspec

from eslurm import __version__
from eslurm.api.forward import Forwarder
from eslurm.api.interceptor import Interceptor
from eslurm.api.principals import Principals
from eslurm.api.server import RpcServer
from eslurm.api.unix_server import UnixServer
from eslurm.core.agent.machine import Agent
from eslurm.core.agent.node import LocalNode, NodeOffer
from eslurm.core.agent.records import Booted
from eslurm.core.agent.restore import restore
from eslurm.core.model.amounts import Vector
from eslurm.core.model.protocol import Command, Report
from eslurm.core.model.step_key import CHECK, EPILOG, PROLOG
from eslurm.core.relay.messages import RunLocal
from eslurm.core.relay.relay import Relay
from eslurm.core.relay.results import Outcome, failed
from eslurm.faults.chaos_socket import NAME as CHAOS
from eslurm.faults.chaos_socket import ChaosSocket
from eslurm.faults.relay import FaultyRelayServer
from eslurm.links.blobs import BlobExchange, LinkLoader
from eslurm.links.codec import CodecError, decode_command, report_ack_from_pb, report_to_pb
from eslurm.links.endpoint_directory import BadDirectory, EndpointDirectory
from eslurm.links.hello import LocalPeer
from eslurm.links.kinds import is_agent
from eslurm.links.link_server import LinkServer
from eslurm.links.links import LinkTable
from eslurm.links.relay_driver import RelayServer
from eslurm.links.relay_envelopes import EnvelopeError
from eslurm.ports.api import Answerer
from eslurm.ports.link import Link
from eslurm.ports.step_ends import step_end
from eslurm.ports.step_runner import StepOutcome, StepOutcomeSink, StepStarted
from eslurm.security.credentials import Credentials
from eslurm.security.directory_seal import open_book
from eslurm.security.sealing import BadSeal, Purpose
from eslurm.telemetry.status import StatusServer
from eslurm.transport.counters import ApiCounters
from eslurm.transport.options import TableSettings, reachable
from eslurm.transport.tls import Tls
from eslurm.v1 import link_pb2
from esnoded.api_sockets import AgentSocket, LoginSocket
from esnoded.chaos import Chaos, HeldReports
from esnoded.checks import run_check, run_health_check
from esnoded.clock import AgentClock
from esnoded.devices import detect_gpus
from esnoded.health import watch
from esnoded.health_options import HealthCheck
from esnoded.job_cores import JobCores
from esnoded.job_socket import NAME as JOB_SOCKET
from esnoded.job_socket import JobSocket
from esnoded.kept_identity import IdentifiedSpool
from esnoded.predecessor import PairedRunner
from esnoded.procd.options import Options
from esnoded.procd.procfs import read_boot_id
from esnoded.shell import Shell, internal_error
from esnoded.spool import Spool
from esnoded.standby import StandbyRunner
from esnoded.status import AgentStatus
from esnoded.stepd.client import SupervisorClient
from esnoded.stepd.launcher import Connect, connect_supervisor
from esnoded.uplink import OnDemand, Uplink

log = logging.getLogger("esnoded")

Runner: TypeAlias = SupervisorClient | StandbyRunner | PairedRunner

BLOB_BYTES_MAX = 32 << 20
BLOB_WAYS_MAX = 3
"""Ways up that a blob is asked for over, when one after the other ends."""
LINKS = TableSettings(cached_max=64, idle_s=2.0)
"""Enough for the children of a node in the widest tree; with one process per node each has few others."""
COMMANDS_REMEMBERED = 256
STOP_GRACE_S = 1.0
PULL_S = 5.0
"""An address book that was asked for and has not come after so long is asked for elsewhere."""


class AgentOptions(msgspec.Struct, frozen=True):
    """Options of the command line. `total` is each node's offer.

    With `controller_socket` (controllers on this host, several as `a:b`) the commands of jobs go there, not through this
    agent. With `is_login` the host is a login host: no job runs on it, every user's commands go through its API socket
    (`socket`; None: in the state directory), and they go straight to the controllers when those are given. `metrics_listen`
    (host:port; empty: none) is the HTTP endpoint of metrics and health. With `allow_chaos` the user may let nodes simulate
    failures; with `is_one_of_many` there are many such processes on this host, and the step supervisor is started with the
    first step. Without `tls` its links are plain. `supervisor` are the step supervisor's options. `connect` gives
    connections to it; None: this process starts it itself. `predecessor` gives connections to one of an earlier version
    that still has steps; None: there is none. `check` is the program that clears the nodes' faults, `health` are the checks
    that say whether nodes may take new work. `contained` says what control groups do for jobs on this host
    (`core.model.node.CONTAINMENT`).
    """

    cluster: str
    nodes: tuple[str, ...]
    total: Vector
    satellites: tuple[str, ...]
    controllers: tuple[str, ...]
    credentials: Credentials
    supervisor: Options
    state_dir: Path
    listen: str
    controller_socket: Path | None = None
    allow_chaos: bool = False
    is_one_of_many: bool = False
    metrics_listen: str = ""
    tls: Tls | None = None
    is_login: bool = False
    socket: Path | None = None
    connect: Connect | None = None
    predecessor: Connect | None = None
    check: str = ""
    health: tuple[HealthCheck, ...] = ()
    contained: tuple[str, ...] = ()


class NodeDaemon:
    """One agent process. Make it inside the running loop; `run` returns after `stop`."""

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._stopped = asyncio.Event()
        self._clock = AgentClock()
        self._process = f"esnoded.{options.nodes[0]}.{secrets.token_hex(6)}"
        role = "login" if options.is_login else "agent"
        self._local = LocalPeer(options.cluster, role, self._process, build=__version__)
        rng = random.Random()
        self._table = LinkTable(self._local, options.credentials, self, rng, LINKS, tls=options.tls)
        self._server = LinkServer(
            self._local, options.credentials, self._table, counters=self._table.counters
        )
        self._book = EndpointDirectory()
        self._pulled = 0
        self._pulled_from: Link | None = None
        self._pull_ends_s = 0.0
        # Peers whose word about the book was not the leader's.
        self._distrusted: WeakSet[Link] = WeakSet()
        members = options.credentials.members
        self._open_seal = lambda sealed: open_book(members.ring, sealed)
        relay = (Relay(), self._table, self._find_endpoint, self._run_local, self._is_behind)
        self._driver: RelayServer
        self._put_report = self._send_report_now
        if options.allow_chaos:
            faulty = FaultyRelayServer(*relay, lambda _nodes: held.release(), self._book.wanted)
            held = HeldReports(faulty, self._number_of, self._send_report_now)
            self._driver, self._put_report = faulty, held.put
        else:
            self._driver = RelayServer(*relay, self._book.wanted)
        first = zlib.crc32(options.nodes[0].encode())
        is_straight = options.is_login and bool(options.controllers)
        # Login hosts are few, and what they ask for may be large: a satellite takes no more than an item of it.
        satellites = () if is_straight else options.satellites
        self._uplink = Uplink(self._table, satellites, options.controllers, first, self._on_uplink, rng)
        self._loader = LinkLoader(lambda: self._uplink.link)
        self._blobs = BlobExchange(BLOB_BYTES_MAX, self._load_blob)
        self._forwarder = Forwarder(
            self._process,
            lambda: self._uplink.link,
            self._first_number,
            in_parts=is_straight,
            is_login=options.is_login,
        )
        self._door_counters, self._job_counters = ApiCounters(), ApiCounters()
        self._commands: OrderedDict[int, tuple[bytes, Command | str]] = OrderedDict()
        self._shell: Shell | None = None
        self._health = watch(options.state_dir)
        self._handlers: dict[str, Callable[[Link, Any], None]] = {
            "broadcast": self._on_broadcast,
            "broadcast_ack": self._driver.on_ack,
            "broadcast_reply": self._driver.on_reply,
            "report_ack": self._on_report_ack,
            "book": self._on_book,
            "book_pull": self._on_book_pull,
            "blob_request": self._blobs.on_request,
            "blob_chunk": lambda _link, chunk: self._loader.on_chunk(chunk),
            "door_reply": lambda _link, reply: self._forwarder.on_reply(reply),
        }

    # ---- life ----

    async def run(self, ready: Callable[[str], None]) -> None:
        """Serve until stopped; `ready` gets the endpoint. Raises OSError or SpoolError when it cannot start."""
        options = self._options
        spool = IdentifiedSpool(options.state_dir / "agent.spool")
        early: list[StepOutcome] = []
        runner = self._make_runner(lambda ended: self._on_step_ended(ended, early))
        learnt = options.credentials.on_learnt
        options.credentials.on_learnt = lambda: (learnt(), runner.tell_ring())[0]
        principals = Principals()
        server = UnixServer(
            options.socket or options.state_dir / "door.sock",
            self._answerer(),
            principals,
            counters=self._door_counters,
        )
        rpc = RpcServer([self._server.handler()], Interceptor())
        path = options.state_dir / JOB_SOCKET
        job_socket = JobSocket(path, self._answerer(), self._local_nodes, self._job_counters)
        chaos: ChaosSocket | None = None
        runner.start()
        uplink: asyncio.Task[None] | None = None
        status: StatusServer | None = None
        try:
            self._local.endpoint = reachable(await rpc.listen(options.listen, options.tls))
            shell = await self._restore(spool, runner, options.controller_socket or server.path)
            for ended in early:
                shell.on_runner_ended(ended)
            await rpc.start()
            await server.start()
            if not options.is_login:
                job_socket.cores = JobCores(shell, self._local_nodes)
                await job_socket.start()
            if isinstance(self._driver, FaultyRelayServer):
                chaos = ChaosSocket(
                    options.state_dir / CHAOS, Chaos(self._driver, shell.agent.registry).answer
                )
                await chaos.start()
            status = await self._open_status(shell, spool)
            uplink = asyncio.create_task(self._uplink.run(), name="uplink")
            ready(self._local.endpoint)
            what = f"login host {options.nodes[0]}" if options.is_login else f"{len(options.nodes)} nodes"
            log.info("serving %s at %s", what, self._local.endpoint)
            await self._stopped.wait()
        finally:
            if uplink is not None:
                uplink.cancel()
                await asyncio.gather(uplink, return_exceptions=True)
            if chaos is not None:
                await chaos.stop()
            if status is not None:
                await status.stop()
            await job_socket.stop()
            await self._close(rpc, server, runner)
            principals.close()
            spool.close()

    def _make_runner(self, on_ended: StepOutcomeSink) -> Runner:
        options = self._options
        connect = options.connect or partial(connect_supervisor, options.state_dir, options.supervisor)
        if options.is_one_of_many or options.is_login:
            return StandbyRunner(options.state_dir, connect, on_ended, self._sealed_ring)
        if options.predecessor is not None:
            return PairedRunner(connect, options.predecessor, on_ended, self._sealed_ring)
        return SupervisorClient(connect, on_ended, ring=self._sealed_ring)

    def _sealed_ring(self) -> bytes:
        return self._options.credentials.members.ring.sealed

    def _answerer(self) -> Answerer:
        """The answerer of the API socket's calls."""
        onward = OnDemand(self._uplink, self._forwarder)
        answerer = AgentSocket(onward, self._local_nodes)
        return LoginSocket(answerer, self._options.controllers) if self._options.is_login else answerer

    def _local_nodes(self) -> Collection[LocalNode]:
        return self._get_shell().agent.registry.by_name.values()

    def _get_shell(self) -> Shell:
        assert self._shell is not None
        return self._shell

    async def _open_status(self, shell: Shell, spool: Spool) -> StatusServer | None:
        """Open the HTTP endpoint of metrics and health, if configured. Raises OSError, ValueError."""
        if not self._options.metrics_listen:
            return None
        driver = self._driver
        told = AgentStatus(
            shell.agent,
            spool,
            self._uplink,
            self._table,
            driver.relay,
            driver.counters,
            self._door_counters,
            self._job_counters,
            tls=self._options.tls,
        )
        told.lag.start()
        server = StatusServer(told.page, told.health)
        await server.start(self._options.metrics_listen)
        return server

    def stop(self) -> None:
        """End `run` in good order. Steps go on under their supervisor."""
        self._stopped.set()

    async def _close(self, rpc: RpcServer, server: UnixServer, runner: Runner) -> None:
        self._server.stop_admitting("the agent stops")
        await server.stop()
        await self._driver.close()
        await self._blobs.close()
        if self._shell is not None:
            await self._shell.close()
        await self._table.close("the agent stops")
        await self._server.close_links("the agent stops")
        await rpc.stop(STOP_GRACE_S)
        await runner.close()

    async def _restore(self, spool: Spool, runner: Runner, socket: Path) -> Shell:
        """Bring the core back to where it was, and offer the nodes."""
        options = self._options
        boot_id = read_boot_id()
        state = spool.state
        if state.cluster not in ("", options.cluster):
            raise OSError(
                f"{spool.path} belongs to cluster {state.cluster!r}, not {options.cluster!r}:"
                " choose another --state-dir"
            )
        state.add(Booted(options.cluster, boot_id))
        uids = {name: state.identities.get(name) or secrets.token_hex(16) for name in options.nodes}
        agent = Agent(
            cluster=options.cluster,
            process=self._process,
            session=secrets.token_hex(8),
            boot_id=boot_id,
            endpoint=self._local.endpoint,
            offers=self._offers(uids),
            has_blob=lambda digest: self._blobs.cache.find(digest) is not None,
        )
        check = (
            partial(run_check, options.check, limit_s=options.supervisor.phase_limit_s)
            if options.check
            else None
        )
        job_socket = str(options.state_dir / JOB_SOCKET)
        shell = Shell(
            *(agent, spool, runner, str(socket), self._blobs, self, self._clock, check),
            job_socket=job_socket,
            health={one.terms.name: partial(run_health_check, one) for one in options.health},
        )
        steps = await runner.list_steps()
        if runner.is_older:
            log.warning(
                "the step supervisor is of an earlier release: until esnoded starts while no step runs here, there are "
                "neither jobs of several parts nor prolog and epilog"
            )
            agent.registry.site.protocol = 0
        live = [(step.key, step.at_us) for step in steps if isinstance(step, StepStarted)]
        ended = [(step.key, step_end(step)) for step in steps if isinstance(step, StepOutcome)]
        self._shell = shell
        self._driver.serve(state.numbers[name] for name in options.nodes if name in state.numbers)
        shell.perform(restore(agent, state, live, ended, self._clock.now_us()))
        return shell

    def _offers(self, uids: dict[str, str]) -> list[NodeOffer]:
        """Each node with what it has. A process of several nodes emulates them: the host's devices are none of theirs."""
        options = self._options
        if options.is_login:
            return [NodeOffer(name, uids[name], options.total, login=True) for name in options.nodes]
        gpus = detect_gpus() if len(options.nodes) == 1 and not options.is_one_of_many else None
        programs = {
            PROLOG: options.supervisor.prolog,
            EPILOG: options.supervisor.epilog,
            CHECK: options.check,
        }
        phases = tuple(name for name, program in programs.items() if program)
        limit_s = math.ceil(options.supervisor.phase_limit_s)
        health = tuple(check.terms for check in options.health)
        if gpus is None:
            return [
                NodeOffer(
                    *(name, uids[name], options.total),
                    phases=phases,
                    phase_limit_s=limit_s,
                    contained=options.contained,
                    health=health,
                )
                for name in options.nodes
            ]
        log.info("%d GPUs on this host%s", gpus.count, f": {gpus.model}" if gpus.model else "")
        (name,) = options.nodes
        counted = (("gpu", gpus.count),)
        sized = (name, uids[name], options.total, counted, gpus.model, False, phases, limit_s)
        return [NodeOffer(*sized, options.contained, health)]

    def _on_step_ended(self, ended: StepOutcome, early: list[StepOutcome]) -> None:
        if self._shell is None:
            early.append(ended)
        else:
            self._shell.on_runner_ended(ended)

    # ---- links (LinkSink) ----

    def on_up(self, link: Link) -> None:
        """A peer is there."""
        self._driver.on_up(link)

    def on_down(self, link: Link, reason: str) -> None:
        """A peer is gone."""
        self._forwarder.on_link_down(link)
        self._book.forget(link)
        if self._pulled_from is link:
            # The answer went with it.
            self._pulled, self._pulled_from = 0, None
        self._driver.on_down(link)

    def on_items(self, link: Link, items: Sequence[link_pb2.Item]) -> None:
        """Process arrived items, by their kinds."""
        self._pull_book(link)
        for item in items:
            kind = item.WhichOneof("kind") or ""
            handle = self._handlers.get(kind)
            if handle is None:
                continue
            try:
                handle(link, getattr(item, kind))
            except (EnvelopeError, CodecError) as error:
                trace = {"trace": link.traceparent}
                log.warning(
                    "%s sent a %s that cannot be read: %s", link.peer.process, kind, error, extra=trace
                )
            except Exception:
                # A fault of our own ends this item, neither the link nor the daemon.
                trace = {"trace": link.traceparent}
                log.exception("a %s of %s could not be taken", kind, link.peer.process, extra=trace)

    def _on_uplink(self, link: Link | None) -> None:
        assert self._shell is not None
        agent = self._shell.agent
        if link is not None and self._distrusted:
            self._ask_for_book(link, self._book.revision + 1)
        if link is None:
            self._shell.perform(agent.on_link_down(self._clock.now_us()))
            return
        self._shell.perform(agent.on_link_up(self._clock.now_us(), link.peer.owner, link.peer.epoch))

    def _on_report_ack(self, _link: Link, message: link_pb2.ReportAck) -> None:
        assert self._shell is not None
        self._shell.perform(self._shell.agent.on_ack(report_ack_from_pb(message), self._clock.now_us()))

    # ---- the address book ----

    def _find_endpoint(self, number: int) -> str | None:
        return self._book.find_endpoint(number)

    def _is_behind(self) -> bool:
        """Check whether a newer book is on its way."""
        return self._pulled > self._book.revision and asyncio.get_running_loop().time() < self._pull_ends_s

    def _pull_book(self, link: Link) -> None:
        newest = link.peer_book_revision
        if newest <= self._book.revision or link in self._distrusted:
            return
        if newest > self._pulled or not self._is_behind():
            # Any peer with a newer one can send it: no uplink is needed.
            self._ask_for_book(link, newest)

    def _ask_for_book(self, link: Link, newest: int) -> None:
        before = self._pulled_from
        if before is not None and before is not link:
            self._book.forget(before)
            if not self._is_behind() and is_agent(before.peer.role):
                # A peer that says that it has more, and does not give it, keeps us from no other.
                self._distrusted.add(before)
        self._pulled, self._pulled_from = newest, link
        self._pull_ends_s = asyncio.get_running_loop().time() + PULL_S
        link.send(link_pb2.Item(book_pull=link_pb2.BookPull(revision=self._book.revision)))

    def _on_book(self, link: Link, message: link_pb2.Book) -> None:
        """Controllers and satellites are taken at their word; what agents pass on has to be what the leader has sealed."""
        is_agents = is_agent(link.peer.role)
        if is_agents and link is not self._pulled_from:
            return
        if is_agents and message.revision < self._pulled:
            self._distrust(link, f"it has revision {message.revision}, not {self._pulled} as it said")
            return
        try:
            has_grown = self._book.apply(message, link, self._open_seal if is_agents else None)
        except BadDirectory as error:
            self._distrust(link, str(error))
            return
        if not message.more:
            # The pull is answered, perhaps with an older book: a peer with a newer one triggers another pull.
            self._pulled = min(self._pulled, self._book.revision)
            self._pulled_from = None
        if has_grown:
            self._local.book_revision = self._book.revision
            self._driver.on_book()

    def _distrust(self, link: Link, why: str) -> None:
        """Take no book from there any more, and ask a satellite for the right one."""
        log.warning("%s passed on an address book that is not the leader's: %s", link.peer.process, why)
        self._distrusted.add(link)
        self._pulled, self._pulled_from = 0, None
        up = self._uplink.link
        if up is not None and not up.closed.is_set():
            self._ask_for_book(up, self._book.revision + 1)
        else:
            self._uplink.want()

    def _on_book_pull(self, link: Link, message: link_pb2.BookPull) -> None:
        for part in self._book.since(message.revision):
            link.send(part)

    # ---- commands ----

    def _on_broadcast(self, link: Link, message: link_pb2.Broadcast) -> None:
        self._uplink.on_heard()
        self._blobs.keep(message.attachments)
        self._driver.on_broadcast(link, message)

    def _run_local(self, run: RunLocal) -> None:
        """An exception ends this broadcast, whose nodes are answered for, and no other one."""
        assert isinstance(run.broadcast_id, int)
        try:
            command = self._command(run.broadcast_id, run.command)
            if not isinstance(command, str):
                self._carry_out(run, command)
                return
        except Exception as error:
            log.exception("broadcast %d could not be carried out", run.broadcast_id)
            command = internal_error(error)
        self.answer(run.broadcast_id, run.nodes, failed(command))

    def _carry_out(self, run: RunLocal, command: Command) -> None:
        shell = self._get_shell()
        self._uplink.on_epoch(command.owner, command.epoch)
        now_us, dated_us = self._clock.now_us(), self._clock.earliest_us()
        shell.perform(shell.pipeline.obey(run, command, now_us, dated_us, self._health.problems()))

    def _command(self, broadcast_id: int, sealed: bytes) -> Command | str:
        """The verified command, once per broadcast however many portions of it come; or why it is none."""
        before, known = self._commands.get(broadcast_id, (b"", ""))
        if before == sealed:
            return known
        # Other bytes under the same number: a relay may have been first with some of its own.
        try:
            keys = self._options.credentials.members.ring.keys
            known = decode_command(keys.open_shared(Purpose.COMMAND, sealed))
        except (BadSeal, CodecError) as error:
            log.warning("broadcast %d was refused: %s", broadcast_id, error)
            known = f"the command cannot be trusted: {error}"
        self._commands[broadcast_id] = sealed, known
        if len(self._commands) > COMMANDS_REMEMBERED:
            self._commands.popitem(last=False)
        return known

    # ---- what the shell sends (AgentLinks) ----

    def answer(self, broadcast_id: int, nodes: Sequence[int], outcome: Outcome) -> None:
        """See `shell.AgentLinks`."""
        self._driver.on_local_result(broadcast_id, nodes, outcome)

    def send_report(self, report: Report) -> None:
        """See `shell.AgentLinks`."""
        self._put_report(report)

    def _send_report_now(self, report: Report) -> None:
        link = self._uplink.link
        if link is None or not link.send(link_pb2.Item(report=report_to_pb(report))):
            self._uplink.want()

    async def _load_blob(self, digest: bytes, source: Link | None) -> bytes:
        """Over the way up, and over the next one when a satellite dies with the request in its hands."""
        for _ in range(BLOB_WAYS_MAX):
            await self._uplink.get()
            link = source if source is not None and not source.closed.is_set() else self._uplink.link
            if link is None:
                break
            found = await self._loader.load_from(digest, link)
            if found is not None:
                return found
        return await self._loader.load(digest, None)

    def on_numbered(self, name: str, number: int) -> None:
        """See `shell.AgentLinks`."""
        log.debug("node %s is number %d", name, number)
        self._driver.serve((number,))

    def _number_of(self, name: str) -> int:
        assert self._shell is not None
        return self._shell.agent.registry.by_name[name].number

    def _first_number(self) -> int:
        """The node that vouches for callers at the API socket; the controller checks that it may."""
        return min(self._get_shell().agent.registry.by_number)
