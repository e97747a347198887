"""The ring of E-33: each node hands the rest of the list to the next one that acknowledges, `TRIES` tries for each.

The list travels with those who were skipped; the last node tells the root. Nodes of one process are walked through
without a message, as in the product's relay. Invariant: a list is in one process at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from eslurm.core.relay.messages import Ack, Broadcast, Reply
from eslurm.core.relay.results import OK, from_mapping, unreached
from eslurm.links.relay_envelopes import ack_item, broadcast_item, read_broadcast, reply_item
from eslurm.ports.link import Link, LinkError, Links
from eslurm.v1 import link_pb2

RING = "ring"
TRIES = 3
ACK_S = 0.25
REFUSED_PAUSE_S = 0.01


class Station:
    """The ring's part of one host process. `root` gets the last node's answer."""

    def __init__(
        self,
        is_here: Callable[[int], bool],
        act: Callable[[int, Sequence[int]], None],
        links: Links,
        find_endpoint: Callable[[int], str],
    ) -> None:
        self.root: Link | None = None
        self._is_here = is_here
        self._act = act
        self._links = links
        self._find_endpoint = find_endpoint
        self._waiting: dict[tuple[int, int], asyncio.Future[bool]] = {}
        self._walks: set[asyncio.Task[None]] = set()

    def on_broadcast(self, link: Link, message: link_pb2.Broadcast) -> None:
        """The list has come round to here."""
        broadcast = read_broadcast(message)
        link.send(ack_item(Ack(broadcast.broadcast_id, broadcast.nodes[:1])))
        self.begin(broadcast)

    def begin(self, broadcast: Broadcast) -> None:
        """Hand the list on."""
        walk = asyncio.get_running_loop().create_task(self._walk(broadcast), name="ring")
        self._walks.add(walk)
        walk.add_done_callback(self._walks.discard)

    def on_ack(self, message: link_pb2.BroadcastAck) -> bool:
        """Check whether it was for a list of the ring."""
        waiting = self._waiting.get((message.id, message.nodes.start[0]))
        if waiting is None:
            return False
        if not waiting.done():
            waiting.set_result(not message.refused)
        return True

    async def _walk(self, broadcast: Broadcast) -> None:
        skipped = list(msgspec.msgpack.decode(broadcast.command, type=list[int]))
        nodes = broadcast.nodes
        assert isinstance(broadcast.broadcast_id, int)
        for at, node in enumerate(nodes):
            if self._is_here(node):
                self._act(broadcast.broadcast_id, (node,))
                continue
            rest = Broadcast(
                broadcast.broadcast_id,
                nodes[at:],
                1,
                broadcast.deadline_us,
                RING,
                msgspec.msgpack.encode(skipped),
            )
            if await self._hand_on(rest):
                return
            skipped.append(node)
        assert self.root is not None
        lost = from_mapping(dict.fromkeys(skipped, unreached("skipped")))
        self.root.send(reply_item(Reply(broadcast.broadcast_id, (), lost, True)))

    async def _hand_on(self, rest: Broadcast) -> bool:
        """Check whether the next node has taken the list."""
        assert isinstance(rest.broadcast_id, int)
        key = (rest.broadcast_id, rest.nodes[0])
        item = broadcast_item(rest)
        try:
            for _ in range(TRIES):
                answer = self._waiting[key] = asyncio.get_running_loop().create_future()
                try:
                    link = await self._links.get(self._find_endpoint(rest.nodes[0]))
                    link.send(item)
                    async with asyncio.timeout(ACK_S):
                        if await answer:
                            return True
                    await asyncio.sleep(REFUSED_PAUSE_S)
                except (TimeoutError, LinkError):
                    continue
            return False
        finally:
            del self._waiting[key]


class RingRoot:
    """The root's part: hand the list to the first node that takes it, wait for the last one's word."""

    def __init__(self, links: Links, find_endpoint: Callable[[int], str]) -> None:
        self._done: asyncio.Future[Reply] | None = None
        self._ring = Station(lambda _node: False, lambda _id, _nodes: None, links, find_endpoint)

    async def run(self, broadcast_id: int, nodes: Sequence[int]) -> Reply:
        """The answer for every node."""
        self._done = asyncio.get_running_loop().create_future()
        none_skipped = msgspec.msgpack.encode([])
        self._ring.begin(Broadcast(broadcast_id, tuple(nodes), 1, 60_000_000, RING, none_skipped))
        return _complete(await self._done, nodes)

    def on_ack(self, message: link_pb2.BroadcastAck) -> None:
        """The first node has, or has not, the list."""
        self._ring.on_ack(message)

    def on_reply(self, reply: Reply) -> None:
        """The last node's word."""
        if self._done is not None and not self._done.done():
            self._done.set_result(reply)


def _complete(reply: Reply, nodes: Sequence[int]) -> Reply:
    """The ring reports only who was skipped."""
    outcomes = dict.fromkeys(nodes, OK) | reply.results.expand()
    return Reply(reply.broadcast_id, (), from_mapping(outcomes), True)
