"""Helpers of the tests of links and API servers: recording sinks, a process to talk to, a service that remembers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from eslurm.api.interceptor import Interceptor
from eslurm.api.methods import Method
from eslurm.api.server import RpcServer
from eslurm.core.control.rights import Level
from eslurm.core.model.job import Principal
from eslurm.links.hello import LocalPeer
from eslurm.links.kinds import ALL
from eslurm.links.link_server import LinkServer
from eslurm.links.links import LinkTable
from eslurm.ports.api import Caller
from eslurm.ports.link import Link, LinkUnreachable
from eslurm.security.credentials import Credentials
from eslurm.security.membership import Role
from eslurm.transport.options import LinkSettings, TableSettings
from eslurm.transport.peers import Peers, PeerSettings
from eslurm.transport.tls import Tls
from eslurm.v1 import controller_pb2, link_pb2
from tests.support.trust import Site

PATIENCE_S = 50.0
PATIENT = LinkSettings(connect_timeout_s=PATIENCE_S, hello_timeout_s=PATIENCE_S)
"""Of a process that nothing on a busy machine takes too long for."""
SITE = Site()
"""Of tokens."""
ALICE = Principal("alice", 4001, 4001, (4001,), "socket")
REQUEST_ID = bytes(range(1, 17))


def anyone_operates(_principal: Principal) -> Level:
    return Level.ADMINISTRATOR


def nobody_operates(_principal: Principal) -> Level:
    return Level.USER


def root_operates(principal: Principal) -> Level:
    return Level.USER if principal.uid else Level.ADMINISTRATOR


def report(number: int, size_bytes: int = 8) -> link_pb2.Item:
    """An item that can be told from others."""
    return link_pb2.Item(report=link_pb2.Report(process="p", seq=number, body=b"x" * size_bytes))


def answer(*numbers: int) -> link_pb2.Item:
    """The item that settles the reports of these numbers."""
    return link_pb2.Item(report_ack=link_pb2.ReportAck(process="p", seqs=numbers))


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something is so; fail after a while."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - conditions of any kind, seen from outside
            await asyncio.sleep(0.001)


async def linked(table: LinkTable, endpoint: str) -> Link:
    """A link, also where the machine stands still for longer than a handshake may take."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await table.get(endpoint)
            except LinkUnreachable as error:
                await asyncio.sleep(error.retry_after_s)


class Recorder:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.items: list[link_pb2.Item] = []
        self.ups: list[Link] = []
        self.downs: list[tuple[Link, str]] = []
        self.traces: list[str] = []
        self.answer: Callable[[Link, link_pb2.Item], None] | None = None

    @property
    def numbers(self) -> list[int]:
        return [item.report.seq for item in self.items if item.WhichOneof("kind") == "report"]

    def kinds(self, kind: str) -> list[link_pb2.Item]:
        return [item for item in self.items if item.WhichOneof("kind") == kind]

    def on_items(self, link: Link, items: Sequence[link_pb2.Item]) -> None:
        self.items += items
        self.traces.append(link.traceparent)
        if self.answer is not None:
            for item in items:
                self.answer(link, item)

    def on_up(self, link: Link) -> None:
        self.ups.append(link)

    def on_down(self, link: Link, reason: str) -> None:
        self.downs.append((link, reason))


@dataclass
class Process:
    """One end: a table of links and, when it listens, a server."""

    local: LocalPeer
    sink: Recorder
    table: LinkTable
    server: LinkServer
    endpoint: str


_open: set[str] = set()
"""The processes that a test has opened and not closed yet."""


@asynccontextmanager
async def process(
    name: str,
    *,
    listens: bool = False,
    role: Role = "agent",
    credentials: Credentials | None = None,
    cluster: str = "test",
    protocol: tuple[int, int] = (2, 2),
    at: str = "127.0.0.1:0",
    link_settings: LinkSettings = PATIENT,
    table_settings: TableSettings | None = None,
    connections_max: int = 0,
    peer_settings: PeerSettings | None = None,
    tls: Tls | None = None,
) -> AsyncIterator[Process]:
    """A process of the cluster, stopped in good order at the end. It says and hears any kind of item."""
    credentials = credentials or SITE.credentials(role, name.rsplit(".", 1)[0])
    local = LocalPeer(cluster, role, name, protocol_min=protocol[0], protocol_max=protocol[1])
    sink = Recorder()
    table = LinkTable(
        *(local, credentials, sink, random.Random(7), table_settings),
        link_settings=link_settings,
        tls=tls,
        kinds=lambda _sender, _receiver: ALL,
    )
    server = LinkServer(local, credentials, table, link_settings, table.counters)
    rpc = (
        RpcServer(
            [server.handler()], Interceptor(peers=Peers(peer_settings)), connections_max=connections_max
        )
        if listens
        else None
    )
    _open.add(name)
    if rpc is not None:
        local.endpoint = await rpc.listen(at, tls)
        await rpc.start()
    try:
        yield Process(local, sink, table, server, local.endpoint)
    finally:
        await table.close("the test is over")
        await server.close_links("the test is over")
        if rpc is not None:
            await rpc.stop(0.5)
        _open.discard(name)
        # While another process lives its calls go on: the last one waits for all.
        await until(lambda: bool(_open) or not calls_ending())


def calls_ending() -> list[asyncio.Task[Any]]:
    """gRPC's own tasks for calls, which live or were cancelled; nothing public waits for them."""
    return [task for task in asyncio.all_tasks() if "_handle_status_once_received" in repr(task)]


@dataclass
class Service:
    """A `ApiService` that counts what took effect, once per request id, and can be told to misbehave."""

    calls: list[tuple[str, Caller]] = field(default_factory=list)
    effects: dict[bytes, int] = field(default_factory=dict)
    misbehave: list[Callable[[], Any]] = field(default_factory=list)
    cancelled: int = 0
    gate_open: asyncio.Event = field(default_factory=asyncio.Event)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    hold: bool = False

    async def call(self, method: Method[Any, Any], request: Any, caller: Caller) -> Any:
        self.calls.append((method.name, caller))
        self.entered.set()
        if method.mutating:
            self.effects.setdefault(caller.request_id, len(self.effects) + 1)
        if self.misbehave:
            result = self.misbehave.pop(0)()
            if asyncio.iscoroutine(result):
                await result
        if self.hold:
            try:
                await self.gate_open.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if method.mutating:
            return controller_pb2.SubmitReply(job_ids=[self.effects[caller.request_id]])
        return controller_pb2.PingReply(cluster=caller.principal.name, now_us=caller.principal.uid)
