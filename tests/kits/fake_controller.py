"""A controller for tests of the agent and the satellite: real links, scripted decisions, nothing durable."""

from __future__ import annotations

import asyncio
import hashlib
import random
import secrets
import time
from collections.abc import Callable, Sequence

import msgspec

from eslurm.api.interceptor import Interceptor
from eslurm.api.server import RpcServer
from eslurm.core.dispatch.broadcaster import Deliver
from eslurm.core.model.protocol import (
    Body,
    Command,
    NodeGone,
    Registration,
    RegistrationReply,
    Report,
    ReportAck,
    StepEnded,
)
from eslurm.core.relay.messages import Action, Broadcast, Leg, SendAck, SendReply
from eslurm.core.relay.relay import Relay
from eslurm.core.relay.results import Outcome, Results
from eslurm.links.blobs import BlobExchange, BlobUnavailable
from eslurm.links.codec import encode_command, report_ack_to_pb, report_from_pb
from eslurm.links.endpoint_directory import EndpointDirectory
from eslurm.links.hello import LocalPeer
from eslurm.links.link_server import LinkServer
from eslurm.links.links import LinkTable
from eslurm.links.relay_driver import RelayDriver
from eslurm.ports.link import Link, Links
from eslurm.security.sealing import Purpose
from eslurm.security.site_keys import new_site
from eslurm.v1 import link_pb2
from tests.support.trust import Site

CLUSTER = "test"
SITE = Site(CLUSTER)
OWNER = "main"
PATIENCE_S = 50.0
SATELLITE_FIRST = 1 << 30
NOT_SERVED_YET = "the node is not served here"


class RootDriver(RelayDriver):
    """The driver of a root that asks for its own sake: answers to itself go to whoever began the broadcast."""

    def __init__(self, links: Links, find_endpoint: Callable[[int], str | None]) -> None:
        self._relay = Relay(root=True)
        self._callers: dict[object, Callable[[Results], None]] = {}
        super().__init__(self._relay, links, find_endpoint)

    def begin(
        self,
        broadcast: Broadcast,
        legs: Sequence[Leg],
        on_results: Callable[[Results], None],
        blobs: tuple[link_pb2.Blob, ...],
    ) -> None:
        source = ("caller", broadcast.broadcast_id)
        self._callers[source] = on_results
        self.attach(broadcast.broadcast_id, blobs)
        if legs:
            self.perform(self._relay.start(source, broadcast, legs, self.now_us()))
        else:
            self.perform(self._relay.on_broadcast(source, broadcast, self.now_us()))

    def perform(self, actions: Sequence[Action | Deliver]) -> None:
        others = []
        for action in actions:
            if isinstance(action, SendReply) and action.to_source in self._callers:
                if action.reply.final:
                    self._callers.pop(action.to_source)(action.reply.results)
            elif not (isinstance(action, SendAck) and action.to_source in self._callers):
                others.append(action)
        super().perform(others)


class FakeController:
    """Registers whoever comes, numbers nodes by name, acknowledges unless `holds_acks`. Use with `async with`."""

    def __init__(self, epoch: int = 1) -> None:
        self.epoch = epoch
        self.holds_acks = False
        self.numbers: dict[str, int] = {}
        self.nodes: dict[int, Registration] = {}
        self.incarnations: dict[int, int] = {}
        self.registrations: list[Registration] = []
        self.ends: list[StepEnded] = []
        self.gone: list[NodeGone] = []
        self.held_back: list[Report] = []
        self.blobs: dict[bytes, bytes] = {}
        self.blobs_asked = 0
        self.door_calls: list[link_pb2.DoorCall] = []
        self.carriers: list[str] = []
        self._counter = 0
        self._book_revision = 0
        self._news = asyncio.Event()
        credentials = SITE.credentials("controller", "esctld")
        process = f"esctld.{secrets.token_hex(4)}"
        self._local = LocalPeer(CLUSTER, "controller", process, owner=OWNER, epoch=epoch)
        self._site_keys = SITE.keys
        self.table = LinkTable(self._local, credentials, self, random.Random(1))
        self._server = LinkServer(self._local, credentials, self.table)
        self._book = EndpointDirectory()
        self._satellites: dict[int, Link] = {}
        self._driver = RootDriver(self.table, self._find)
        self._exchange = BlobExchange(1 << 20, self._load)
        self._rpc = RpcServer([self._server.handler()], Interceptor())
        self.endpoint = ""

    async def __aenter__(self) -> FakeController:
        self.endpoint = await self._rpc.listen("127.0.0.1:0")
        self._local.endpoint = self.endpoint
        await self._rpc.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._server.stop_admitting("the test ends")
        await self._driver.close()
        await self._exchange.close()
        await self.table.close("the test ends")
        await self._server.close_links("the test ends")
        await self._rpc.stop(0.5)

    # ---- what tests do ----

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until something that arrived makes the condition true."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def registered(self, count: int) -> None:
        """Wait until this many nodes are registered."""
        await self.until(lambda: len(self.nodes) >= count)

    async def satellites(self, count: int) -> None:
        """Wait until so many satellites are linked."""
        await self.until(lambda: len(self._satellites) == count)

    async def order(
        self,
        body: Body,
        nodes: Sequence[int],
        *,
        revision: int = 1,
        deadline_s: float = 10.0,
        attachments: Sequence[bytes] = (),
        incarnation: int | None = None,
        direct: bool = False,
    ) -> dict[int, Outcome]:
        """Broadcast a command and wait for what became of it. Without satellites, or `direct`, it is the root.

        A command may overtake the answer to a registration, on another link: its node is asked again, as by a controller.
        """
        outcomes: dict[int, Outcome] = {}
        asked = tuple(nodes)
        async with asyncio.timeout(PATIENCE_S):
            while asked:
                signed = self._sign(body, asked, revision, incarnation)
                name = type(body).__name__.lower()
                outcomes |= await self._broadcast(name, signed, asked, deadline_s, attachments, direct=direct)
                asked = tuple([node for node in asked if outcomes[node].text == NOT_SERVED_YET])
        return outcomes

    async def _broadcast(
        self,
        name: str,
        signed: bytes,
        nodes: tuple[int, ...],
        deadline_s: float,
        attachments: Sequence[bytes],
        *,
        direct: bool,
    ) -> dict[int, Outcome]:
        found: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        self._counter += 1
        broadcast = Broadcast(
            (self.epoch << 32) | self._counter,
            nodes,
            2,
            int(deadline_s * 1e6),
            name,
            signed,
        )
        numbers = [] if direct else [number for number, link in self._satellites.items() if link]
        legs = [Leg(numbers[self._counter % len(numbers)], nodes)] if numbers else []
        blobs = tuple(link_pb2.Blob(sha256=self.add_blob(data), data=data) for data in attachments)
        self._driver.begin(broadcast, legs, found.set_result, blobs)
        return (await found).expand()

    def add_blob(self, data: bytes) -> bytes:
        """Make a blob available; its hash."""
        digest = hashlib.sha256(data).digest()
        self.blobs[digest] = data
        return digest

    def release_acks(self) -> None:
        """Acknowledge from now on, beginning with what was held back."""
        self.holds_acks = False
        held, self.held_back = self.held_back, []
        for report in held:
            for link in self.table.links:
                self._acknowledge(link, report)

    def forge(self) -> None:
        """Sign commands with another key from now on."""
        self._site_keys = new_site(CLUSTER, 2)

    # ---- links ----

    def on_up(self, link: Link) -> None:
        self._driver.on_up(link)
        if link.peer.role == "satellite":
            self._satellites[SATELLITE_FIRST + len(self.carriers) + len(self._satellites)] = link
        self._news.set()

    def on_down(self, link: Link, reason: str) -> None:
        self._satellites = {number: each for number, each in self._satellites.items() if each is not link}
        self._driver.on_down(link)
        self._news.set()

    def on_items(self, link: Link, items: Sequence[link_pb2.Item]) -> None:
        for item in items:
            match item.WhichOneof("kind"):
                case "broadcast_ack":
                    self._driver.on_ack(link, item.broadcast_ack)
                case "broadcast_reply":
                    self._driver.on_reply(link, item.broadcast_reply)
                case "book_pull":
                    for part in self._book.since(item.book_pull.revision):
                        link.send(part)
                case "blob_request":
                    self.blobs_asked += 1
                    self._exchange.on_request(link, item.blob_request)
                case "report":
                    self._on_report(link, report_from_pb(item.report))
                case "door_call":
                    self._on_door_call(link, item.door_call)
        self._news.set()

    def _on_report(self, link: Link, report: Report) -> None:
        body = report.body
        if isinstance(body, Registration):
            self._on_registration(link, report, body)
            return
        self.carriers.append(link.peer.process)
        if isinstance(body, StepEnded):
            self.ends.append(body)
        else:
            self.gone.append(body)
        if self.holds_acks:
            self.held_back.append(report)
        else:
            self._acknowledge(link, report)

    def _on_registration(self, link: Link, report: Report, body: Registration) -> None:
        number = self.numbers.setdefault(body.name, len(self.numbers))
        if body.epoch != self.epoch:
            refusal = RegistrationReply(body.name, number, 0, self.epoch, OWNER, "stale epoch")
            self._acknowledge(link, report, refusal)
            return
        before = self.nodes.get(number)
        if before is None or before.session != body.session:
            self.incarnations[number] = self.incarnations.get(number, 0) + 1
            self.registrations.append(body)
        self.nodes[number] = body
        self._book_revision += 1
        self._book.put(self._book_revision, [(number, body.name, body.endpoint, self.incarnations[number])])
        self._local.book_revision = self._book_revision
        reply = RegistrationReply(body.name, number, self.incarnations[number], self.epoch, OWNER)
        self._acknowledge(link, report, reply)

    def _on_door_call(self, link: Link, call: link_pb2.DoorCall) -> None:
        self.door_calls.append(call)
        reply = link_pb2.DoorReply(process=call.process, call=call.call, status=5, text="no such job")
        link.send(link_pb2.Item(door_reply=reply))

    def _acknowledge(self, link: Link, report: Report, *replies: RegistrationReply) -> None:
        ack = ReportAck(report.process, (report.seq,), replies)
        link.send(link_pb2.Item(report_ack=report_ack_to_pb(ack)))

    def _find(self, number: int) -> str | None:
        satellite = self._satellites.get(number)
        return satellite.peer.endpoint if satellite is not None else self._book.find_endpoint(number)

    def _sign(self, body: Body, nodes: Sequence[int], revision: int, incarnation: int | None) -> bytes:
        command = Command(
            cluster=CLUSTER,
            owner=OWNER,
            epoch=self.epoch,
            revision=revision,
            index=0,
            nodes=tuple((number, 1) for number in nodes),
            incarnations=tuple(
                self.incarnations[number] if incarnation is None else incarnation for number in nodes
            ),
            expires_us=time.time_ns() // 1000 + 60_000_000,
            body=body,
        )
        (sealed,) = self._site_keys.seal_together(Purpose.COMMAND, [encode_command(command)])
        return sealed

    async def _load(self, digest: bytes, _source: Link | None) -> bytes:
        if digest not in self.blobs:
            raise BlobUnavailable("there is no such blob")
        return self.blobs[digest]


def payload(outcome: Outcome, kind: type[msgspec.Struct]) -> msgspec.Struct:
    """Decode the payload of an ok answer."""
    return msgspec.msgpack.decode(outcome.payload, type=kind)
