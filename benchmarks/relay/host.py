"""One agent process of the benchmark: a relay and the product's links, thousands of nodes, a trivial local action.

Invariants: what a node does is counted where it is done; a dead node is dead for its neighbours in the same process
too, and nothing that comes for it reaches the relay.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.relay.control import Collect, Collected, Done, Order, Pull, Switch, read_order, write_answer
from benchmarks.relay.plan import home
from benchmarks.relay.pull import Poller
from benchmarks.relay.ring import RING, Station
from eslurm.api.interceptor import Interceptor
from eslurm.api.server import RpcServer
from eslurm.core.relay.messages import Ack, RunLocal
from eslurm.core.relay.relay import Relay
from eslurm.core.relay.results import OK
from eslurm.links.hello import LocalPeer
from eslurm.links.kinds import ALL
from eslurm.links.link_server import LinkServer
from eslurm.links.links import LinkTable
from eslurm.links.relay_driver import RelayServer
from eslurm.links.relay_envelopes import ack_item
from eslurm.ports.link import ANYBODY, Link, PeerInfo, Wanted
from eslurm.security.credentials import read_credentials
from eslurm.telemetry.process import announce, logging_to_stderr, run_daemon, stop_on_signals
from eslurm.v1 import link_pb2

BROADCASTS_KEPT = 16
STOP_GRACE_S = 0.5
REFUSED = "connection refused"


class HostPlan(msgspec.Struct, frozen=True):
    """Which host this is, of which; it serves its share of the nodes 1..`nodes`."""

    cluster: str
    home: str
    endpoints: tuple[str, ...]
    index: int
    nodes: int
    socket: str


class Graves:
    """The fate of lists whose head is a dead node of this process."""

    def __init__(self) -> None:
        self._modes: dict[int, str] = {}

    def set(self, order: Switch) -> None:
        """These nodes are dead, and no others."""
        self._modes = dict.fromkeys(order.refused, "refused")
        self._modes.update(dict.fromkeys(order.silent, "silent"))
        self._modes.update(dict.fromkeys(order.vanishing, "vanishing"))

    def __contains__(self, node: int) -> bool:
        return node in self._modes

    def answer(self, broadcast_id: int, head: int) -> link_pb2.Item | None:
        """The answer to the sender of such a list."""
        mode = self._modes[head]
        if mode == "refused":
            return ack_item(Ack(broadcast_id, (head,), REFUSED))
        if mode == "vanishing":
            self._modes[head] = "silent"
            return ack_item(Ack(broadcast_id, (head,)))
        return None


class OwnLink:
    """Target of the relay's sends to nodes of this very process: only dead ones get any."""

    def __init__(self, host: Host, process: str) -> None:
        self.peer = PeerInfo("", "agent", process, "", frozenset(), 0, 0)
        self.closed = asyncio.Event()
        self.close_reason = ""
        self.traceparent = ""
        self.peer_book_revision = 0
        self._host = host

    def send(self, item: link_pb2.Item, traceparent: str = "") -> bool:
        """As if it had come over a link; not at once, for the relay is still speaking."""
        asyncio.get_running_loop().call_soon(self._host.on_items, self, [item])
        return True

    async def send_bulk(self, item: link_pb2.Item) -> None:
        """Nothing here is that large."""
        raise NotImplementedError

    def close(self, reason: str) -> None:
        """It lives as long as the process."""


class Acts:
    """The number of times that each node acted on each of the latest broadcasts."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._acts: OrderedDict[int, bytearray] = OrderedDict()
        self._collected = 0
        self._late = 0

    def count(self, broadcast_id: int, nodes: Sequence[int]) -> None:
        """These nodes act now."""
        acts = self._acts.get(broadcast_id)
        if acts is None:
            acts = self._acts[broadcast_id] = bytearray(self._nodes + 1)
            if len(self._acts) > BROADCASTS_KEPT:
                self._acts.popitem(last=False)
        for node in nodes:
            acts[node] = min(acts[node] + 1, 255)
        if broadcast_id <= self._collected:
            self._late += len(nodes)

    def take(self, broadcast_id: int) -> tuple[bytes, int]:
        """The counts of a broadcast, and what was done for earlier ones after they had been taken."""
        late, self._late = self._late, 0
        self._collected = max(self._collected, broadcast_id)
        return bytes(self._acts.get(broadcast_id, bytes(self._nodes + 1))), late


class Host:
    """The process: implements `LinkSink` for its links and `Links` for its relay."""

    def __init__(self, plan: HostPlan) -> None:
        self._plan = plan
        hosts = len(plan.endpoints)
        self._homes = [plan.endpoints[home(number, hosts)] for number in range(plan.nodes + 1)]
        self._endpoint = plan.endpoints[plan.index]
        self._nodes = [n for n in range(1, plan.nodes + 1) if self._homes[n] == self._endpoint]
        process = f"host{plan.index}.{secrets.token_hex(6)}"
        local = LocalPeer(plan.cluster, "agent", process, self._endpoint)
        credentials = read_credentials(Path(plan.home))
        self._table = LinkTable(
            local, credentials, self, random.Random(), kinds=lambda _sender, _receiver: ALL
        )
        self._server = LinkServer(local, credentials, self._table, counters=self._table.counters)
        self._own = OwnLink(self, process)
        self._relay = Relay(self._nodes)
        self._driver = RelayServer(self._relay, self, self._homes.__getitem__, self._run)
        self._graves = Graves()
        self._dead: set[int] = set()
        self._acts = Acts(plan.nodes)
        self._station = Station(self._is_here, self._act, self, self._homes.__getitem__)
        self._poller = Poller(self._act)
        self._lists = 0
        self._frames_between = 0
        self._orders: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()

    # ---- life ----

    async def run(self, ready_fd: int | None) -> None:
        """Serve until stopped."""
        rpc = RpcServer([self._server.handler()], Interceptor())
        await rpc.listen(self._endpoint)
        await rpc.start()
        control = await asyncio.start_unix_server(self._obey, self._plan.socket)
        announce(self._endpoint, ready_fd)
        await self._stopped.wait()
        control.close()
        self._poller.stop()
        await self._driver.close()
        await self._table.close("the benchmark is over")
        await self._server.close_links("the benchmark is over")
        await rpc.stop(STOP_GRACE_S)

    def stop(self) -> None:
        """End `run`."""
        self._stopped.set()

    async def _obey(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await write_answer(writer, self._do(await read_order(reader)))
        # The benchmark has gone, however it went: nobody else will end this process.
        self.stop()
        writer.close()

    def _do(self, order: Order) -> Done | Collected:
        match order:
            case Switch():
                self._switch(order)
            case Pull(period_s, nodes):
                asking = [node for node in self._nodes if node <= nodes and node not in self._dead]
                self._poller.start(asking, period_s)
            case Collect(broadcast_id):
                return self._collect(broadcast_id)
        return Done()

    def _switch(self, order: Switch) -> None:
        self._relay.add_local(self._dead)
        self._dead = set(self._nodes).intersection(order.refused + order.silent + order.vanishing)
        self._driver.perform(self._relay.remove_local(self._dead, self._driver.now_us()))
        self._graves.set(order)

    def _collect(self, broadcast_id: int) -> Collected:
        counters = self._table.counters
        acts, late = self._acts.take(broadcast_id)
        return Collected(
            acts=acts,
            lists=self._lists,
            late_acts=late,
            frames_in=counters.frames_in,
            frames_out=counters.frames_out,
            frames_between=self._frames_between,
            cpu_s=time.process_time(),
        )

    # ---- links ----

    def on_up(self, link: Link) -> None:
        """A peer is there."""
        self._driver.on_up(link)
        if link.peer.role == "controller":
            self._poller.board = self._station.root = link

    def on_down(self, link: Link, reason: str) -> None:
        """A peer is gone."""
        self._driver.on_down(link)

    def on_items(self, link: Link, items: Sequence[link_pb2.Item]) -> None:
        """One frame."""
        if link.peer.role != "satellite" and link is not self._own:
            self._frames_between += 1
        for item in items:
            match item.WhichOneof("kind"):
                case "broadcast":
                    self._on_broadcast(link, item.broadcast)
                case "broadcast_ack":
                    if not self._station.on_ack(item.broadcast_ack):
                        self._driver.on_ack(link, item.broadcast_ack)
                case "broadcast_reply":
                    self._driver.on_reply(link, item.broadcast_reply)

    def _on_broadcast(self, link: Link, message: link_pb2.Broadcast) -> None:
        self._lists += 1
        head = message.nodes.start[0]
        if head in self._graves:
            answer = self._graves.answer(message.id, head)
            if answer is None:
                return
            if link is self._own:
                self._on_own_answer(answer)
            else:
                link.send(answer)
        elif message.kind == RING:
            self._station.on_broadcast(link, message)
        elif not self._poller.on_broadcast(link, message):
            self._driver.on_broadcast(link, message)

    def _on_own_answer(self, answer: link_pb2.Item) -> None:
        if not self._station.on_ack(answer.broadcast_ack):
            self._driver.on_ack(self._own, answer.broadcast_ack)

    def find(self, endpoint: str, wanted: Wanted = ANYBODY) -> Link | None:
        """See `ports.link.Links`."""
        return self._own if endpoint == self._endpoint else self._table.find(endpoint)

    async def get(self, endpoint: str, wanted: Wanted = ANYBODY) -> Link:
        """See `ports.link.Links`."""
        return self._own if endpoint == self._endpoint else await self._table.get(endpoint)

    # ---- what nodes do ----

    def _is_here(self, node: int) -> bool:
        return self._homes[node] == self._endpoint and node not in self._dead

    def _run(self, run: RunLocal) -> None:
        assert isinstance(run.broadcast_id, int)
        self._act(run.broadcast_id, run.nodes)
        self._driver.on_local_result(run.broadcast_id, run.nodes, OK)

    def _act(self, broadcast_id: int, nodes: Sequence[int]) -> None:
        self._acts.count(broadcast_id, nodes)


def main() -> None:
    """One host process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("plan")
    parser.add_argument("--ready-fd", type=int)
    arguments = parser.parse_args()
    logging_to_stderr("warning")
    plan = msgspec.json.decode(arguments.plan, type=HostPlan)

    async def body() -> None:
        host = Host(plan)
        stop_on_signals(host.stop)
        await host.run(arguments.ready_fd)

    run_daemon("host", body, "uvloop")


if __name__ == "__main__":
    main()
