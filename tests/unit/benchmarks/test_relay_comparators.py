"""The comparators of the relay benchmark do what they claim. Method: star in virtual time, ring and pull over fake links."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from benchmarks.relay import ring
from benchmarks.relay.control import Switch
from benchmarks.relay.host import Acts, Graves
from benchmarks.relay.pull import Board, Poller
from benchmarks.relay.ring import RingRoot, Station
from benchmarks.relay.star import TRIES, Star
from eslurm.core.relay.messages import Ack, Action, Broadcast, Reply, SendBroadcast
from eslurm.core.relay.results import OK, Status, from_mapping
from eslurm.links.relay_envelopes import read_reply
from eslurm.ports.link import ANYBODY, PeerInfo, Wanted
from eslurm.v1 import link_pb2
from tests.kits.api import until


def sends(actions: Sequence[Action]) -> Iterator[int]:
    for action in actions:
        assert isinstance(action, SendBroadcast)
        yield action.to_node


class StarRun:
    """A star whose nodes are dead or answer at once, in virtual time."""

    def __init__(self, nodes: int, dead: dict[int, str], cap: int) -> None:
        self.answer: Reply | None = None
        self.tries: Counter[int] = Counter()
        self.most_out = 0
        self._dead = dead
        self._star = Star(self._on_done, cap)
        broadcast = Broadcast(1, tuple(range(1, nodes + 1)), 1, 60_000_000, "x", b"")
        self._run(self._star.start(broadcast, 0))

    def _on_done(self, reply: Reply) -> None:
        self.answer = reply

    def _run(self, actions: Sequence[Action]) -> None:
        now_us = 0
        due = list(sends(actions))
        while self.answer is None:
            self.most_out = max(self.most_out, len(due))
            told: list[Action] = []
            for node in due:
                self.tries[node] += 1
                told += self._tell(node, now_us)
            if not told and self.answer is None:
                due_us = self._star.next_timer_us()
                assert due_us is not None, "the star waits for nothing"
                now_us = max(now_us + 1, due_us)
                told = self._star.on_timer(now_us)
            due = list(sends(told))

    def _tell(self, node: int, now_us: int) -> list[Action]:
        mode = self._dead.get(node)
        if mode == "refused":
            return self._star.on_ack("host", Ack(1, (node,), "refused"), now_us)
        if mode == "silent":
            return []
        told = self._star.on_ack("host", Ack(1, (node,)), now_us)
        return told + self._star.on_reply("host", Reply(1, (node,), from_mapping({node: OK}), True), now_us)


def test_the_star_tries_each_dead_node_three_times_and_reports_it() -> None:
    run = StarRun(40, {3: "refused", 7: "silent", 8: "silent"}, cap=1000)
    assert run.answer is not None
    assert run.answer.results.nodes(Status.UNREACHED) == [3, 7, 8]
    assert run.answer.results.count(Status.OK) == 37
    assert [run.tries[node] for node in (3, 7, 8)] == [TRIES] * 3
    assert run.tries[1] == 1


def test_the_star_keeps_to_its_cap() -> None:
    run = StarRun(100, dict.fromkeys(range(1, 21), "silent"), cap=10)
    assert run.answer is not None
    assert run.most_out <= 10
    assert run.answer.results.count(Status.UNREACHED) == 20


class FakeLink:
    """Hands what is sent to `take`, in the next tick."""

    def __init__(self, process: str, take: object) -> None:
        self.peer = PeerInfo("", "agent", process, "", frozenset(), 0, 0)
        self.closed = asyncio.Event()
        self.close_reason = ""
        self.traceparent = ""
        self.peer_book_revision = 0
        self._take = take

    def send(self, item: link_pb2.Item, traceparent: str = "") -> bool:
        assert callable(self._take)
        asyncio.get_running_loop().call_soon(self._take, item)
        return True

    async def send_bulk(self, item: link_pb2.Item) -> None:
        raise AssertionError("nothing here is that large")

    def close(self, reason: str) -> None:
        self.closed.set()


class RingWorld:
    """A root and three stations; the endpoint of a node is its number modulo three."""

    def __init__(self, nodes: int, dead: dict[int, str]) -> None:
        self.acts: Counter[int] = Counter()
        self.lists: Counter[int] = Counter()
        self._nodes = nodes
        self._dead = dead
        self.root = RingRoot(self, self.endpoint)
        self._stations = [self._station(index) for index in range(3)]

    def endpoint(self, node: int) -> str:
        return str(node % 3)

    def _station(self, index: int) -> Station:
        station = Station(
            lambda node: node % 3 == index and node not in self._dead, self._act, self, self.endpoint
        )
        station.root = FakeLink("root", lambda item: self.root.on_reply(read_reply(item.broadcast_reply)))
        return station

    def _act(self, broadcast_id: int, nodes: Sequence[int]) -> None:
        self.acts.update(nodes)

    def find(self, endpoint: str, _wanted: Wanted = ANYBODY) -> FakeLink:
        return FakeLink(endpoint, lambda item: self._deliver(int(endpoint), item))

    async def get(self, endpoint: str, _wanted: Wanted = ANYBODY) -> FakeLink:
        return self.find(endpoint)

    def _deliver(self, index: int, item: link_pb2.Item) -> None:
        head = item.broadcast.nodes.start[0]
        self.lists[head] += 1
        if self._dead.get(head) == "silent":
            return
        if head in self._dead:
            refusal = link_pb2.BroadcastAck(id=item.broadcast.id, refused="refused")
            refusal.nodes.start.append(head)
            refusal.nodes.length.append(1)
            self._acknowledge(refusal)
            return
        # The way back of acknowledgements is shared: who waits for one knows it by its head.
        back = FakeLink("back", lambda ack: self._acknowledge(ack.broadcast_ack))
        self._stations[index].on_broadcast(back, item.broadcast)

    def _acknowledge(self, message: link_pb2.BroadcastAck) -> None:
        self.root.on_ack(message)
        for station in self._stations:
            station.on_ack(message)


def test_the_ring_skips_the_dead_after_three_tries_and_acts_once_on_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ring, "ACK_S", 0.05)
    monkeypatch.setattr(ring, "REFUSED_PAUSE_S", 0.001)

    async def scenario() -> tuple[RingWorld, Reply]:
        world = RingWorld(20, {1: "silent", 5: "refused", 6: "silent", 20: "refused"})
        return world, await world.root.run(1, range(1, 21))

    world, reply = asyncio.run(scenario())
    assert reply.results.nodes(Status.UNREACHED) == [1, 5, 6, 20]
    assert reply.results.count(Status.OK) == 16
    assert set(world.acts.values()) == {1}
    assert len(world.acts) == 16
    assert [world.lists[node] for node in (1, 5, 6, 20)] == [ring.TRIES] * 4


def test_pull_gives_each_asking_node_its_task_once_and_calls_the_others_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acts: Counter[int] = Counter()

    async def scenario() -> Reply:
        board = Board()
        poller = Poller(lambda _id, nodes: acts.update(nodes))

        def to_board(item: link_pb2.Item) -> None:
            if item.WhichOneof("kind") == "broadcast":
                board.on_ask(to_node_link, item.broadcast)
            else:
                board.on_reply(read_reply(item.broadcast_reply))

        def to_node(item: link_pb2.Item) -> None:
            assert poller.on_broadcast(to_board_link, item.broadcast)

        to_board_link, to_node_link = FakeLink("root", to_board), FakeLink("host", to_node)
        poller.board = to_board_link
        poller.start([1, 2, 3, 5], 0.05)
        answered = asyncio.ensure_future(board.run(9, range(1, 6), 3600.0))
        await until(lambda: acts.total() == 4 and board._owed == {4})
        # Now the time of the others is over.
        loop = asyncio.get_running_loop()
        time_s = loop.time
        monkeypatch.setattr(loop, "time", lambda: time_s() + 1e6)
        reply = await answered
        poller.stop()
        return reply

    reply = asyncio.run(scenario())
    assert reply.results.nodes(Status.UNREACHED) == [4]
    assert reply.results.nodes(Status.OK) == [1, 2, 3, 5]
    assert dict(acts) == {1: 1, 2: 1, 3: 1, 5: 1}


def test_pull_ends_as_soon_as_all_have_answered() -> None:
    async def scenario() -> Reply:
        board = Board()
        answered = asyncio.ensure_future(board.run(3, (1,), 1000.0))
        await asyncio.sleep(0)
        board.on_reply(Reply(3, (1,), from_mapping({1: OK}), True))
        return await answered

    assert asyncio.run(scenario()).results.count(Status.OK) == 1


def test_a_vanishing_node_acknowledges_one_list_and_is_silent_afterwards() -> None:
    graves = Graves()
    graves.set(Switch(refused=(1,), silent=(2,), vanishing=(3,)))
    refused = graves.answer(7, 1)
    assert refused is not None and refused.broadcast_ack.refused
    assert graves.answer(7, 2) is None
    first = graves.answer(7, 3)
    assert first is not None and not first.broadcast_ack.refused
    assert graves.answer(7, 3) is None
    assert 4 not in graves


def test_acts_are_counted_per_broadcast_and_late_ones_are_noticed() -> None:
    acts = Acts(5)
    acts.count(1, (2, 3))
    acts.count(1, (3,))
    acts.count(2, (2,))
    assert acts.take(1) == (bytes([0, 0, 1, 2, 0, 0]), 0)
    acts.count(1, (4,))
    assert acts.take(2) == (bytes([0, 0, 1, 0, 0, 0]), 1)
    assert acts.take(3) == (bytes(6), 0)
