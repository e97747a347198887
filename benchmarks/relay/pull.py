"""The pull of E-33, like a board in shared memory: every node asks the root's board each period and posts its result.

A node that did not ask for `PERIODS` periods is called dead. Invariant: asking is spread evenly over the period, as
it would be among nodes that started at different times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from eslurm.core.relay.messages import Broadcast, Reply
from eslurm.core.relay.results import OK, from_mapping, unreached
from eslurm.links.relay_envelopes import broadcast_item, reply_item
from eslurm.ports.link import Link
from eslurm.v1 import link_pb2

ASK = "pull-ask"
TASK = "pull-task"
PERIODS = 3
SLICES = 50


class Poller:
    """The nodes of one host process. `board` is the link to the root."""

    def __init__(self, act: Callable[[int, Sequence[int]], None]) -> None:
        self.board: Link | None = None
        self._act = act
        self._slices: list[list[link_pb2.Item]] = []
        self._slice_s = 0.0
        self._at = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self, nodes: Iterable[int], period_s: float) -> None:
        """These ask from now on, and no others; with a period of 0 none does."""
        self.stop()
        if period_s <= 0:
            return
        self._slices = [[] for _ in range(SLICES)]
        for at, node in enumerate(nodes):
            ask = Broadcast(0, (node,), 1, 0, ASK, b"")
            self._slices[at % SLICES].append(broadcast_item(ask))
        self._slice_s = period_s / SLICES
        self._ask(asyncio.get_running_loop().time())

    def stop(self) -> None:
        """The nodes stop asking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ask(self, due_s: float) -> None:
        if self.board is not None:
            for item in self._slices[self._at]:
                self.board.send(item)
        self._at = (self._at + 1) % SLICES
        due_s += self._slice_s
        self._timer = asyncio.get_running_loop().call_at(due_s, self._ask, due_s)

    def on_broadcast(self, link: Link, message: link_pb2.Broadcast) -> bool:
        """Check whether a node had asked for it: the node does it and posts its result."""
        if message.kind != TASK:
            return False
        node = message.nodes.start[0]
        self._act(message.id, (node,))
        link.send(reply_item(Reply(message.id, (node,), from_mapping({node: OK}), True)))
        return True


class Board:
    """The root's part."""

    def __init__(self) -> None:
        self._broadcast_id = 0
        self._owed: set[int] = set()
        self._given: set[int] = set()
        self._done: asyncio.Future[None] | None = None

    async def run(self, broadcast_id: int, nodes: Sequence[int], period_s: float) -> Reply:
        """The answer for every node."""
        loop = asyncio.get_running_loop()
        self._broadcast_id = broadcast_id
        self._owed = set(nodes)
        self._given = set()
        self._done = loop.create_future()
        timer = loop.call_later(PERIODS * period_s, self._finish)
        try:
            await self._done
        finally:
            timer.cancel()
            self._broadcast_id = 0
        results = dict.fromkeys(nodes, OK) | dict.fromkeys(self._owed, unreached("did not ask"))
        return Reply(broadcast_id, (), from_mapping(results), True)

    def on_ask(self, link: Link, message: link_pb2.Broadcast) -> None:
        """A node asks; it is given a task once."""
        node = message.nodes.start[0]
        if self._broadcast_id and node in self._owed and node not in self._given:
            self._given.add(node)
            link.send(broadcast_item(Broadcast(self._broadcast_id, (node,), 1, 0, TASK, b"")))

    def on_reply(self, reply: Reply) -> None:
        """A node has done it."""
        if reply.broadcast_id == self._broadcast_id:
            self._owed.difference_update(reply.heads)
            if not self._owed:
                self._finish()

    def _finish(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)
