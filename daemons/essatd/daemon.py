"""The satellite daemon: relays broadcasts down, gathers reports up, has no persistent state.

It may be killed at any moment (E-01, E-02): agents turn to another satellite and repeat unacknowledged reports; the
controller adopts the nodes of a broadcast under way. Of several controllers the one with the highest epoch leads: reports
and calls go to it alone.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from eslurm import __version__
from eslurm.api.interceptor import Interceptor
from eslurm.api.server import RpcServer
from eslurm.core.dispatch.report_router import ReportRouter
from eslurm.core.relay.messages import Tuning
from eslurm.core.relay.relay import Relay
from eslurm.faults.chaos_socket import ChaosSocket
from eslurm.faults.relay import FaultyRelayServer
from eslurm.links.blobs import BlobExchange, LinkLoader
from eslurm.links.endpoint_directory import EndpointDirectory
from eslurm.links.hello import LocalPeer
from eslurm.links.link_server import LinkServer
from eslurm.links.links import LinkTable
from eslurm.links.relay_driver import RelayServer
from eslurm.links.relay_envelopes import EnvelopeError
from eslurm.ports.api import Status
from eslurm.ports.link import Link, LinkError, Wanted
from eslurm.security.credentials import Credentials
from eslurm.telemetry import logs
from eslurm.telemetry.exposition import text_of
from eslurm.telemetry.status import StatusServer
from eslurm.telemetry.vitals import LoopLag, rss_bytes, sockets
from eslurm.transport.options import reachable, socket_budget
from eslurm.transport.peers import STRANGERS_MAX
from eslurm.transport.tls import Tls
from eslurm.v1 import link_pb2
from essatd.chaos import FaultyInbox
from essatd.status import SatelliteStatus

log = logging.getLogger("essatd")

CACHE_BYTES_MAX = 32 * 1024 * 1024
REDIAL_S = 0.25
REDIAL_STANDBY_S = 1.0
"""The longest pause before another look for a controller: one that stands by does not listen until it leads."""
REDIAL_MAX_S = 5.0
SHORT_LINK_S = 1.0
CONTROLLER = Wanted("controller")
LEADER_WAIT_S = 5.0
"""Time for which an agent's request waits while no controller leads."""
STOP_GRACE_S = 1.0


class SatelliteOptions(msgspec.Struct, frozen=True):
    """Options of `essatd`."""

    cluster: str
    name: str
    listen: str
    controllers: tuple[str, ...]
    credentials: Credentials
    sockets_max: int = 256
    """Open connections that it aims at, four times the width of its trees; beyond, agents have to wait."""
    chaos_path: Path | None = None
    """Socket for fault injection; None: none."""
    metrics_listen: str = ""
    """HTTP endpoint of metrics and health; empty: none."""
    tls: Tls | None = None
    """For all of its links; None: they are plain."""


class Satellite:
    """One satellite process. Make it inside the running loop; `run` returns when `stop` is called."""

    def __init__(self, options: SatelliteOptions) -> None:
        self._options = options
        self._stopped = asyncio.Event()
        self._local = LocalPeer(
            cluster=options.cluster,
            role="satellite",
            process=f"{options.name}.{secrets.token_hex(6)}",
            build=__version__,
            features=(f"satellite={options.name}",),
        )
        credentials = options.credentials
        self._budget = socket_budget(options.sockets_max)
        # The table's back-off for a silent peer would be longer.
        table = msgspec.structs.replace(self._budget.table, backoff_max_s=REDIAL_STANDBY_S)
        self._table = LinkTable(self._local, credentials, self, random.Random(), table, tls=options.tls)
        self._server = LinkServer(
            self._local, credentials, self._table, self._budget.links, self._table.counters
        )
        self._controllers: dict[str, Link] = {}
        self._leader: Link | None = None
        self._led = asyncio.Event()
        # Calls of agent processes that went to this leader and are not answered yet.
        self._asked: set[tuple[str, int]] = set()
        # Nothing is gained by waiting for more: the link gathers what one tick brings.
        self._router: ReportRouter[link_pb2.Report] = ReportRouter(flush_us=0)
        self._flushing = False
        self._book = EndpointDirectory()
        tuning = Tuning(max_unacknowledged=self._budget.sends_max)
        relay = Relay(root=True, tuning=tuning), self._table, self._find_endpoint, None, self._is_behind
        self._driver: RelayServer
        self._faulty: FaultyInbox | None = None
        if options.chaos_path is None:
            self._driver = RelayServer(*relay, self._book.wanted)
        else:
            self._driver = faulty = FaultyRelayServer(*relay, wanted=self._book.wanted)
            self._faulty = FaultyInbox(faulty, self._take_all, self._on_healed)
        self._pulled = 0
        self._loader = LinkLoader(self._controller)
        self._blobs = BlobExchange(CACHE_BYTES_MAX, self._load_blob)
        self._lag = LoopLag()

    # ---- life ----

    async def run(self, ready: asyncio.Future[str]) -> None:
        """Serve until stopped; `ready` gets the endpoint. Raises OSError when it cannot listen."""
        # Strangers beyond the budget are soon closed; peers are bounded by the link server.
        connections_max = self._budget.connections_max + STRANGERS_MAX
        rpc = RpcServer([self._server.handler()], Interceptor(), connections_max=connections_max)
        endpoint = reachable(await rpc.listen(self._options.listen, self._options.tls))
        self._local.endpoint = endpoint
        await rpc.start()
        chaos = None
        if self._options.chaos_path is not None and self._faulty is not None:
            chaos = ChaosSocket(self._options.chaos_path, self._faulty.answer)
            await chaos.start()
        self._lag.start()
        status = await self._open_status()
        ready.set_result(endpoint)
        log.info("satellite %s listens at %s", self._options.name, endpoint)
        dials = [
            asyncio.create_task(self._keep(controller), name=f"controller {controller}")
            for controller in self._options.controllers
        ]
        try:
            await self._stopped.wait()
        finally:
            for task in dials:
                task.cancel()
            await asyncio.gather(*dials, return_exceptions=True)
            if chaos is not None:
                await chaos.stop()
            if status is not None:
                await status.stop()
            self._lag.stop()
            await self._driver.close()
            await self._blobs.close()
            await self._table.close("the satellite stops")
            await self._server.close_links("the satellite stops")
            await rpc.stop(STOP_GRACE_S)

    def stop(self) -> None:
        """End `run` in good order."""
        self._stopped.set()

    async def _open_status(self) -> StatusServer | None:
        """Open the HTTP endpoint of metrics and health, if configured. Raises OSError."""
        if not self._options.metrics_listen:
            return None
        driver = self._driver
        told = SatelliteStatus(
            *(self._table, driver.relay, driver.counters, self._options.controllers),
            *(self._controller, lambda: self._book.revision, self._options.tls),
        )
        told.lag.start()
        server = StatusServer(lambda: text_of(told.families()), told.health)
        await server.start(self._options.metrics_listen)
        return server

    async def _keep(self, endpoint: str) -> None:
        """Stay linked to one controller. One that rejects us again is asked less and less often.

        One that does not answer while another leads is tried a little less often, and logged once.
        """
        told = process = ""
        wait_s = look_s = REDIAL_S
        loop = asyncio.get_running_loop()
        while True:
            try:
                patience_s = REDIAL_STANDBY_S if self._leader else REDIAL_S
                link = await self._table.get(endpoint, CONTROLLER, patience_s)
            except LinkError as error:
                is_led = self._leader is not None
                if not told if is_led else str(error) != told:
                    told = str(error)
                    log.warning("no link to controller %s: %s", endpoint, error)
                look_s = min(2 * look_s, REDIAL_STANDBY_S) if is_led else REDIAL_S
                await asyncio.sleep(look_s)
                continue
            told = ""
            look_s = REDIAL_S
            if link.peer.process != process:
                # That was not this one: it has just been started, or leads anew.
                process, wait_s = link.peer.process, REDIAL_S
            linked_s = loop.time()
            await link.closed.wait()
            if loop.time() - linked_s >= SHORT_LINK_S:
                wait_s = REDIAL_S
                continue
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, REDIAL_MAX_S)

    # ---- links (LinkSink) ----

    def on_up(self, link: Link) -> None:
        """A link to a controller or an agent process is up."""
        self._driver.on_up(link)
        if link.peer.role == "controller":
            self._controllers[link.peer.process] = link
            log.info("linked to controller %s", link.peer.endpoint or link.peer.process)
            self._follow()

    def on_down(self, link: Link, reason: str) -> None:
        """The link is down."""
        if self._controllers.get(link.peer.process) is link:
            del self._controllers[link.peer.process]
            log.warning("the link to controller %s has ended: %s", link.peer.endpoint, reason)
            self._follow()
        if self._table.find_process(link.peer.process) is None:
            self._router.on_link_down(link.peer.process)
        self._book.forget(link)
        self._driver.on_down(link)

    def on_items(self, link: Link, items: Sequence[link_pb2.Item]) -> None:
        """Route broadcasts down, reports and calls up, and answers by the agent process's identity."""
        take = self._take_all if self._faulty is None else self._faulty.put
        take(link, items)

    def _is_behind(self) -> bool:
        return self._pulled > self._book.revision

    def _on_healed(self) -> None:
        # The answer to a pull may have been lost.
        self._pulled = 0

    def _take_all(self, link: Link, items: Sequence[link_pb2.Item]) -> None:
        self._pull_book(link)
        for item in items:
            try:
                self._take(link, item)
            except EnvelopeError as error:
                trace = {"trace": link.traceparent}
                log.warning("%s sent what cannot be read: %s", link.peer.process, error, extra=trace)
            except Exception:
                # A fault of our own ends this item, neither the link nor the daemon.
                trace = {"trace": link.traceparent}
                log.exception("an item of %s could not be taken", link.peer.process, extra=trace)

    def _find_endpoint(self, number: int) -> str | None:
        return self._book.find_endpoint(number)

    def _pull_book(self, link: Link) -> None:
        """Ask for the book: only the controller's is valid, and a peer has a newer one."""
        controller = self._controller()
        if controller is not None and link.peer_book_revision > max(self._book.revision, self._pulled):
            self._pulled = link.peer_book_revision
            controller.send(link_pb2.Item(book_pull=link_pb2.BookPull(revision=self._book.revision)))

    def _take(self, link: Link, item: link_pb2.Item) -> None:
        match item.WhichOneof("kind"):
            case "broadcast":
                self._driver.on_broadcast(link, item.broadcast)
            case "broadcast_ack":
                self._driver.on_ack(link, item.broadcast_ack)
            case "broadcast_reply":
                self._driver.on_reply(link, item.broadcast_reply)
            case "report":
                self._on_report(link, item.report)
            case "report_ack":
                for process, _ in self._router.on_acks((item.report_ack,)):
                    self._down(str(process), item)
            case "door_call":
                self._on_door_call(link, item)
            case "door_reply":
                self._asked.discard((item.door_reply.process, item.door_reply.call))
                self._down(item.door_reply.process, item)
            case "blob_request":
                self._blobs.on_request(link, item.blob_request)
            case "blob_chunk":
                self._loader.on_chunk(item.blob_chunk)
            case "satellite_ping":
                self._answer_ping(link, item.satellite_ping)
            case "book_pull":
                for part in self._book.since(item.book_pull.revision):
                    link.send(part)
            case "book":
                self._learn(link, item.book)

    def _answer_ping(self, link: Link, ping: link_pb2.SatellitePing) -> None:
        """Answer from the reading task: a satellite that is only slow must not look dead (X-11)."""
        relay = self._driver.relay
        status = link_pb2.SatelliteStatus(
            seq=ping.seq,
            tasks=relay.live,
            nodes=relay.live_nodes,
            rss_bytes=rss_bytes(),
            sockets=sockets(),
            lag_us=self._lag.take_us(),
            queued=relay.queued,
        )
        link.send(link_pb2.Item(satellite_status=status))

    def _learn(self, link: Link, book: link_pb2.Book) -> None:
        has_grown = self._book.apply(book, link)
        if not book.more:
            # The pull is answered, perhaps with an older book: a peer with a newer one triggers another pull.
            self._pulled = min(self._pulled, self._book.revision)
        if has_grown:
            self._local.book_revision = self._book.revision
            self._driver.on_book()

    def _on_report(self, link: Link, report: link_pb2.Report) -> None:
        if report.process != link.peer.process:
            log.warning("%s sent a report of %s: dropped", link.peer.process, report.process[:64])
            return
        report.origin.CopyFrom(_origin(link))
        self._router.on_reports(link.peer.process, (report,), self._driver.now_us())
        self._flush_soon()

    def _flush_soon(self) -> None:
        """Send items of one tick of the loop together."""
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        controller = self._controller()
        if controller is None or (self._faulty is not None and self._faulty.is_cut):
            return
        while batch := self._router.take(self._driver.now_us()):
            for report in batch:
                controller.send(link_pb2.Item(report=report))

    def _on_door_call(self, link: Link, item: link_pb2.Item) -> None:
        controller = self._controller()
        call = item.door_call
        if call.process != link.peer.process:
            log.warning("%s sent a call of %s: dropped", link.peer.process, call.process[:64])
            return
        call.origin.CopyFrom(_origin(link))
        if controller is not None and controller.send(item):
            self._asked.add((call.process, call.call))
        else:
            text = "no controller is linked to the satellite at present"
            self._send_away(call.process, call.call, text)

    def _send_away(self, process: str, call: int, text: str) -> None:
        """Refuse at once, so that the caller retries instead of waiting for its deadline."""
        reply = link_pb2.DoorReply(process=process, call=call, status=Status.UNAVAILABLE, text=text)
        self._down(process, link_pb2.Item(door_reply=reply))

    async def _load_blob(self, digest: bytes, source: Link | None) -> bytes:
        """Load a blob from the link that has it; when that link ends, from the leading controller."""
        link = source if source is not None and not source.closed.is_set() else self._controller()
        if link is not None:
            found = await self._loader.load_from(digest, link)
            if found is not None:
                return found
        with suppress(TimeoutError):
            async with asyncio.timeout(LEADER_WAIT_S):
                await self._led.wait()
        return await self._loader.load(digest, None)

    def _down(self, process: str, item: link_pb2.Item) -> None:
        link = self._table.find_process(process)
        if link is not None:
            link.send(item)

    def _controller(self) -> Link | None:
        """The controller with the highest epoch that is linked now; one without an epoch only stands by."""
        alive = [link for link in self._controllers.values() if link.peer.epoch and not link.closed.is_set()]
        return max(alive, key=lambda link: link.peer.epoch, default=None)

    def _follow(self) -> None:
        """Controllers have come or gone: route everything to the leader from here on."""
        leader = self._controller()
        if leader is self._leader:
            return
        self._leader = leader
        logs.set_always(epoch=leader.peer.epoch if leader is not None else None)
        if leader is None:
            self._led.clear()
        else:
            self._led.set()
        # A pull that was under way went with the link before.
        self._pulled = 0
        self._router.on_controller(leader is not None)
        # The former one may have fallen silent, or what it still says may come by no way.
        asked, self._asked = self._asked, set()
        for process, call in asked:
            self._send_away(process, call, "the controller that was asked leads no more")
        if leader is not None:
            log.info("controller %s leads, epoch %d", leader.peer.endpoint, leader.peer.epoch)
            self._flush_soon()


def _origin(link: Link) -> link_pb2.Origin:
    """The membership behind a link, whatever the peer claims."""
    return link_pb2.Origin(role=link.peer.role, names=link.peer.names, serial=link.peer.serial)
