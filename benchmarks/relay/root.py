"""The controller's part of a broadcast: relay, driver, links and address book as `esctld` has them, and nothing else.

Invariant: one broadcast is under way at a time; its time runs from the moment the list is known to the moment the
aggregated answer is.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from benchmarks.relay.plan import home
from benchmarks.relay.pull import ASK, Board
from benchmarks.relay.ring import RingRoot
from benchmarks.relay.star import Star
from eslurm.api.interceptor import Interceptor
from eslurm.api.server import RpcServer
from eslurm.core.dispatch.satellite_pool import legs_wanted, satellite_number
from eslurm.core.relay.construct import share_out
from eslurm.core.relay.messages import (
    Ack,
    Action,
    Broadcast,
    BroadcastId,
    Leg,
    Peer,
    Reallocated,
    Reply,
    SendAck,
    SendReply,
    Suspect,
    TookOver,
)
from eslurm.core.relay.relay import Relay
from eslurm.links.endpoint_directory import EndpointDirectory
from eslurm.links.hello import LocalPeer
from eslurm.links.kinds import ALL
from eslurm.links.link_server import LinkServer
from eslurm.links.links import LinkTable
from eslurm.links.relay_driver import RelayDriver
from eslurm.links.relay_envelopes import read_reply
from eslurm.ports.link import Link
from eslurm.security.credentials import Credentials
from eslurm.v1 import link_pb2

CALLER = "benchmark"
KIND = "benchmark"
COMMAND = bytes(range(200)) + b"as large as a launch's signed command"
DEADLINE_US = 60_000_000
LINK_S = 30.0
REALLOCATIONS_MAX = 2


class Answer(msgspec.Struct, frozen=True):
    """One broadcast: what came of it and what it cost. `lists` and `takeovers` are the root's own."""

    broadcast_id: int
    reply: Reply | None
    took_s: float
    lists: int = 0
    reallocations: int = 0
    takeovers: int = 0


class Caller:
    """Between the driver and a relay: keeps what is for the benchmark, passes the rest on."""

    def __init__(self, relay: Relay, on_done: Callable[[Reply], None]) -> None:
        self.relay = relay
        self._notices: Counter[str] = Counter()
        self._on_done = on_done

    @property
    def notices(self) -> Counter[str]:
        """The number of each kind."""
        return self._notices.copy()

    def start(self, broadcast: Broadcast, legs: Sequence[Leg], now_us: int) -> list[Action]:
        """Over satellites if there are any, else by itself."""
        if legs:
            return self._mine(self.relay.start(CALLER, broadcast, legs, now_us))
        return self._mine(self.relay.on_broadcast(CALLER, broadcast, now_us))

    def on_ack(self, peer: Peer, ack: Ack, now_us: int) -> list[Action]:
        return self._mine(self.relay.on_ack(peer, ack, now_us))

    def on_reply(self, peer: Peer, reply: Reply, now_us: int) -> list[Action]:
        return self._mine(self.relay.on_reply(peer, reply, now_us))

    def on_refused(
        self, broadcast_id: BroadcastId, heads: Iterable[int], why: str, now_us: int
    ) -> list[Action]:
        return self._mine(self.relay.on_refused(broadcast_id, heads, why, now_us))

    def on_link_down(self, peer: Peer, now_us: int) -> list[Action]:
        return self._mine(self.relay.on_link_down(peer, now_us))

    def on_timer(self, now_us: int) -> list[Action]:
        return self._mine(self.relay.on_timer(now_us))

    def next_timer_us(self) -> int | None:
        return self.relay.next_timer_us()

    def _mine(self, actions: Iterable[Action]) -> list[Action]:
        passed: list[Action] = []
        for action in actions:
            match action:
                case SendReply(source, reply) if source == CALLER:
                    if reply.final:
                        self._on_done(reply)
                case SendAck(source, ack) if source == CALLER:
                    assert not ack.refused, ack.refused
                case Suspect() | Reallocated() | TookOver():
                    self._notices[type(action).__name__] += 1
                case _:
                    passed.append(action)
        return passed


class Turns:
    """The satellite for nodes that another did not serve: the next linked one, `REALLOCATIONS_MAX` times (E-15, E-16)."""

    def __init__(self, find_linked: Callable[[], Sequence[int]]) -> None:
        self._find_linked = find_linked

    def on_leg_done(self, to_node: int, now_us: int) -> None:
        """Nothing is kept of a satellite."""

    def on_leg_failed(self, to_node: int, tries: int, why: str, now_us: int) -> int | None:
        """The next one, or None: the root sends itself."""
        others = [number for number in self._find_linked() if number != to_node]
        if tries >= REALLOCATIONS_MAX or not others:
            return None
        return next((number for number in others if number < to_node), others[0])


class Root:
    """The process' links and whatever answers on them. Make it inside the running loop."""

    def __init__(
        self, cluster: str, credentials: Credentials, endpoint: str, hosts: Sequence[str], nodes: int
    ) -> None:
        self._endpoint = endpoint
        self._hosts = hosts
        self._homes = [hosts[home(number, len(hosts))] for number in range(nodes + 1)]
        self._book = EndpointDirectory(epoch=1)
        revision = self._book.revision + 1
        self._book.put(revision, ((n, f"n{n}", self._homes[n], 1) for n in range(1, nodes + 1)))
        local = LocalPeer(cluster, "controller", f"root.{random.getrandbits(48):x}", endpoint, epoch=1)
        local.book_revision = self._book.revision
        self._table = LinkTable(
            local, credentials, self, random.Random(), kinds=lambda _sender, _receiver: ALL
        )
        self.counters = self._table.counters
        self._server = LinkServer(local, credentials, self._table, counters=self.counters)
        self._rpc = RpcServer([self._server.handler()], Interceptor())
        self._satellites: dict[str, Link] = {}
        self._numbers: dict[str, int] = {}
        self._caller = Caller(Relay(root=True, keeper=Turns(self._linked)), self._on_done)
        self._tree = RelayDriver(self._caller, self._table, self._find_endpoint)
        self._star = Star(self._on_done)
        self._star_driver = RelayDriver(self._star, self._table, self._find_endpoint)
        self._ring = RingRoot(self._table, self._homes.__getitem__)
        self._board = Board()
        self._driver = self._tree
        self._done: asyncio.Future[Reply] | None = None
        self._changed = asyncio.Event()
        self._last_id = 1 << 40
        self.frames_from_hosts = 0
        self.on_satellite_ack: Callable[[str], None] | None = None
        """Called once, when a satellite acknowledges its share."""

    # ---- life ----

    async def start(self, satellites: int) -> None:
        """Listen, link to all hosts, wait for the satellites."""
        await self._rpc.listen(self._endpoint)
        await self._rpc.start()
        for host in self._hosts:
            await self._table.get(host)
        await self.wait_for_satellites(satellites)

    async def warm_up(self) -> None:
        """Until every satellite has the address book: it asks for it when it first hears of a newer one."""
        async with asyncio.timeout(LINK_S):
            while any(link.peer_book_revision < self._book.revision for link in self._satellites.values()):
                await self.tree(4 * len(self._satellites), 4)

    async def wait_for_satellites(self, count: int) -> None:
        """Until so many are linked."""
        async with asyncio.timeout(LINK_S):
            while len(self._satellites) != count:
                self._changed.clear()
                await self._changed.wait()
        await self.warm_up()

    async def close(self) -> None:
        """End every link."""
        await self._tree.close()
        await self._star_driver.close()
        await self._table.close("the benchmark is over")
        await self._server.close_links("the benchmark is over")
        await self._rpc.stop(0.5)

    # ---- broadcasts ----

    async def tree(
        self, nodes: int, width: int, predicted: Sequence[int] = (), *, through_satellites: bool = True
    ) -> Answer:
        """The product's relay over the satellites; with `predicted` it is the FP-Tree."""
        self._driver = self._tree
        members = tuple(range(1, nodes + 1))
        began = time.perf_counter()
        legs = self._legs(members, width, predicted) if through_satellites else ()
        if legs:
            members = tuple(node for leg in legs for node in leg.nodes)
        broadcast = Broadcast(
            self._next_id(), members, width, DEADLINE_US, KIND, COMMAND, predicted=tuple(predicted)
        )
        self._done = asyncio.get_running_loop().create_future()
        before = self._caller.notices
        actions = self._caller.start(broadcast, legs, self._tree.now_us())
        self._tree.perform(actions)
        reply = await self._done
        took_s = time.perf_counter() - began
        notices = self._caller.notices - before
        return Answer(self._last_id, reply, took_s, len(legs), notices["Reallocated"], notices["TookOver"])

    async def star(self, nodes: int) -> Answer:
        """One message to each node."""
        self._driver = self._star_driver
        began = time.perf_counter()
        broadcast = Broadcast(self._next_id(), tuple(range(1, nodes + 1)), 1, DEADLINE_US, KIND, COMMAND)
        self._done = asyncio.get_running_loop().create_future()
        self._star_driver.perform(self._star.start(broadcast, self._star_driver.now_us()))
        reply = await self._done
        return Answer(self._last_id, reply, time.perf_counter() - began)

    async def ring(self, nodes: int, bound_s: float) -> Answer:
        """From node to node; without a reply when it took longer than the bound."""
        began = time.perf_counter()
        broadcast_id = self._next_id()
        reply: Reply | None = None
        try:
            async with asyncio.timeout(bound_s):
                reply = await self._ring.run(broadcast_id, range(1, nodes + 1))
        except TimeoutError:
            pass
        return Answer(broadcast_id, reply, time.perf_counter() - began)

    async def pull(self, nodes: int, period_s: float) -> Answer:
        """Nodes come and ask; `Pull` was said to the hosts before."""
        began = time.perf_counter()
        broadcast_id = self._next_id()
        reply = await self._board.run(broadcast_id, range(1, nodes + 1), period_s)
        return Answer(broadcast_id, reply, time.perf_counter() - began)

    def _legs(self, members: Sequence[int], width: int, predicted: Sequence[int]) -> tuple[Leg, ...]:
        up = self._linked()
        wanted = legs_wanted(len(members), width, len(up))
        shares = share_out(members, frozenset(predicted), wanted) if wanted else []
        return tuple(Leg(number, tuple(share)) for number, share in zip(up, shares, strict=False))

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _on_done(self, reply: Reply) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(reply)

    def _find_endpoint(self, number: int) -> str | None:
        if number >= 0:
            return self._homes[number]
        return next(
            (link.peer.endpoint for link in self._satellites.values() if self._number(link) == number), None
        )

    def _linked(self) -> list[int]:
        """The satellites that are linked, by number."""
        return sorted(map(self._number, self._satellites.values()), reverse=True)

    def _number(self, link: Link) -> int:
        """A satellite keeps its number when it comes again."""
        name = link.peer.process.partition(".")[0]
        return self._numbers.setdefault(name, satellite_number(len(self._numbers)))

    # ---- links ----

    def on_up(self, link: Link) -> None:
        """A satellite, or a host we dialled."""
        self._tree.on_up(link)
        self._star_driver.on_up(link)
        if link.peer.role == "satellite":
            self._satellites[link.peer.process] = link
            self._changed.set()

    def on_down(self, link: Link, reason: str) -> None:
        """It is gone."""
        self._satellites.pop(link.peer.process, None)
        self._changed.set()
        self._tree.on_down(link)
        self._star_driver.on_down(link)

    def on_items(self, link: Link, items: Sequence[link_pb2.Item]) -> None:
        """One frame."""
        if link.peer.role == "agent":
            self.frames_from_hosts += 1
        for item in items:
            match item.WhichOneof("kind"):
                case "broadcast_reply":
                    self._on_reply(link, item.broadcast_reply)
                case "broadcast_ack":
                    self._on_ack(link, item.broadcast_ack)
                case "broadcast" if item.broadcast.kind == ASK:
                    self._board.on_ask(link, item.broadcast)
                case "book_pull":
                    for part in self._book.since(item.book_pull.revision):
                        link.send(part)

    def _on_ack(self, link: Link, message: link_pb2.BroadcastAck) -> None:
        self._ring.on_ack(message)
        self._driver.on_ack(link, message)
        if self.on_satellite_ack is not None and link.peer.role == "satellite":
            called, self.on_satellite_ack = self.on_satellite_ack, None
            called(link.peer.process)

    def _on_reply(self, link: Link, message: link_pb2.BroadcastReply) -> None:
        self._driver.on_reply(link, message)
        reply = read_reply(message)
        self._board.on_reply(reply)
        self._ring.on_reply(reply)
