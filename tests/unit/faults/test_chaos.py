"""Struck nodes in a relay's driver: what their neighbours and requesters get to see, and what comes after the healing."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import msgspec
import pytest

from eslurm.core.relay.messages import Broadcast, RunLocal
from eslurm.core.relay.relay import Relay
from eslurm.core.relay.results import OK, Outcome, Status
from eslurm.faults.chaos_socket import NAME, ChaosReply, ChaosRequest, ChaosSocket, TooEarly
from eslurm.faults.relay import FaultyRelayServer
from eslurm.faults.switches import Mode, Switch
from eslurm.links.relay_envelopes import broadcast_item, read_ack, read_reply
from eslurm.ports.link import ANYBODY, Wanted
from eslurm.v1 import link_pb2
from tests.support.loops import both_loops, run

PATIENCE_S = 50.0
DELAY_US = 30_000


class Peer(msgspec.Struct):
    process: str = "parent"
    endpoint: str = "parent:1"


class FakeLink:
    """A link to the requester; keeps what is sent."""

    def __init__(self) -> None:
        self.peer = Peer()
        self.closed = asyncio.Event()
        self.acks: list[tuple[tuple[int, ...], str]] = []
        self.outcomes: dict[int, Outcome] = {}
        self.final = asyncio.Event()

    def send(self, item: link_pb2.Item, traceparent: str = "") -> bool:
        if item.WhichOneof("kind") == "broadcast_ack":
            ack = read_ack(item.broadcast_ack)
            self.acks.append((ack.heads, ack.refused))
        else:
            reply = read_reply(item.broadcast_reply)
            self.outcomes |= reply.results.expand()
            if reply.final:
                self.final.set()
        return True

    def statuses(self) -> dict[int, Status]:
        return {node: outcome.status for node, outcome in self.outcomes.items()}


class NoLinks:
    """Every node is in this process: nobody is ever dialled."""

    def find(self, endpoint: str, _wanted: Wanted = ANYBODY) -> None:
        raise AssertionError(f"{endpoint} was looked for")


class Site:
    """Nodes 1 to 7 in one process. Commands are done at once, or kept in `runs` when `is_manual`."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.ran: list[int] = []
        self.healed: list[int] = []
        self.healing = asyncio.Event()
        self.is_manual = False
        self.link = FakeLink()
        self.server = FaultyRelayServer(
            Relay(range(1, 8)), NoLinks(), lambda _node: None, self._run, on_healed=self._on_healed
        )
        self.server.on_up(self.link)

    def _run(self, action: RunLocal) -> None:
        self.ran += action.nodes
        if not self.is_manual:
            self.server.on_local_result(action.broadcast_id, action.nodes, OK)

    def _on_healed(self, nodes: list[int]) -> None:
        self.healed += nodes
        self.healing.set()

    def ask(self, *nodes: int, broadcast_id: int = 9) -> None:
        order = Broadcast(broadcast_id, nodes, 2, 60_000_000, "k", b"c")
        self.server.on_broadcast(self.link, broadcast_item(order).broadcast)

    async def answer(self) -> dict[int, Status]:
        async with asyncio.timeout(PATIENCE_S):
            await self.link.final.wait()
        return self.link.statuses()


def test_a_dead_addressee_refuses_at_once() -> None:
    async def scenario() -> None:
        site = Site()
        site.server.strike([1], Switch(Mode.DEAD))
        site.ask(1, 2, 3)
        assert site.link.acks == [((1,), "connection refused")]
        await site.server.close()

    run(scenario())


@pytest.mark.parametrize("mode", [Mode.SILENT, Mode.PARTITIONED])
def test_a_silent_addressee_says_nothing(mode: Mode) -> None:
    async def scenario() -> None:
        site = Site()
        site.server.strike([1], Switch(mode))
        site.ask(1, 2, 3)
        assert site.link.acks == []
        assert site.server.relay.live == 0
        await site.server.close()

    run(scenario())


@both_loops
@pytest.mark.parametrize("mode", [Mode.DEAD, Mode.SILENT])
def test_neighbours_of_the_same_process_miss_it_and_do_its_work(uvloop: bool, mode: Mode) -> None:
    async def scenario() -> None:
        site = Site()
        site.server.strike([2, 5], Switch(mode))
        site.ask(1, 2, 3, 4, 5, 6, 7)
        found = await site.answer()
        assert {node for node, status in found.items() if status is Status.UNREACHED} == {2, 5}
        assert sorted(site.ran) == [1, 3, 4, 6, 7]
        await site.server.close()

    run(scenario(), uvloop=uvloop)


def test_a_node_that_is_struck_before_it_is_served_is_served_once_it_is_healed() -> None:
    """Its number is known before it is durable, and the relay hears of it afterwards."""

    async def scenario() -> None:
        site = Site()
        site.server.strike([8], Switch(Mode.DEAD))
        site.server.serve([8])
        site.ask(1, 8, 2)
        found = await site.answer()
        assert {node for node, status in found.items() if status is Status.UNREACHED} == {8}
        assert sorted(site.ran) == [1, 2]

        site.server.heal([8])
        site.link.final.clear()
        site.ask(8, broadcast_id=10)
        assert (await site.answer())[8] is Status.OK
        await site.server.close()

    run(scenario())


def test_a_slow_addressee_acknowledges_late_and_is_exact() -> None:
    async def scenario() -> None:
        site = Site()
        site.server.strike([1], Switch(Mode.SLOW, delay_us=DELAY_US))
        began_s = site.loop.time()
        site.ask(1, 2, 3)
        assert site.link.acks == []
        assert set((await site.answer()).values()) == {Status.OK}
        assert site.loop.time() - began_s >= DELAY_US / 1e6
        assert site.link.acks == [((1,), "")]
        assert sorted(site.ran) == [1, 2, 3]
        await site.server.close()

    run(scenario())


def test_a_slow_node_in_the_middle_does_its_part_late() -> None:
    async def scenario() -> None:
        site = Site()
        site.server.strike([3], Switch(Mode.SLOW, delay_us=DELAY_US))
        site.ask(1, 2, 3, 4)
        await asyncio.sleep(0)
        assert 3 not in site.ran
        assert (await site.answer())[3] is Status.OK
        assert site.ran[-1] == 3
        assert sorted(site.ran) == [1, 2, 3, 4]
        await site.server.close()

    run(scenario())


def test_what_a_node_did_is_told_after_the_healing() -> None:
    async def scenario() -> None:
        site = Site()
        site.is_manual = True
        site.ask(1, 2, 3)
        await asyncio.sleep(0)
        site.server.strike([2], Switch(Mode.PARTITIONED))
        site.server.on_local_result(9, (1, 2, 3), OK)
        assert await site.answer() == {1: Status.OK, 2: Status.UNREACHED, 3: Status.OK}
        assert site.server.heal([2, 3]) == [2]
        assert site.healed == [2]

        # A second copy of the same command: it is not done again, and its outcome is known now.
        site.link.final.clear()
        site.ask(2)
        assert (await site.answer())[2] is Status.OK
        assert site.ran.count(2) == 1
        await site.server.close()

    run(scenario())


def test_a_node_whose_way_out_is_cut_does_its_part_and_passes_nothing_on() -> None:
    async def scenario() -> None:
        site = Site()
        site.server.strike([1], Switch(Mode.CUT_OUT))
        site.ask(1, 2, 3)
        await asyncio.sleep(0)
        assert (site.ran, site.link.acks, site.link.outcomes) == ([1], [], {})
        site.server.heal([1])
        site.ask(1, 2, 3)
        assert set((await site.answer()).values()) == {Status.OK}
        assert set(site.ran) == {1, 2, 3}
        await site.server.close()

    run(scenario())


@both_loops
def test_neighbours_do_not_hear_it_either(uvloop: bool) -> None:
    async def scenario() -> None:
        site = Site()
        site.server.strike([2], Switch(Mode.CUT_OUT))
        site.ask(1, 2, 3, 4)
        found = await site.answer()
        assert {node for node, status in found.items() if status is Status.UNREACHED} == {2}
        assert 2 in site.ran
        await site.server.close()

    run(scenario(), uvloop=uvloop)


def test_a_node_whose_way_in_is_cut_tells_what_it_did_before() -> None:
    async def scenario() -> None:
        site = Site()
        site.is_manual = True
        site.ask(1, 2, 3)
        await asyncio.sleep(0)
        site.server.strike([2], Switch(Mode.CUT_IN))
        site.server.on_local_result(9, (1, 2, 3), OK)
        assert set((await site.answer()).values()) == {Status.OK}
        site.ask(2, broadcast_id=10)
        await asyncio.sleep(0)
        assert site.ran.count(2) == 1
        await site.server.close()

    run(scenario())


@both_loops
def test_a_failure_ends_by_itself(uvloop: bool) -> None:
    async def scenario() -> None:
        site = Site()
        site.server.strike([1, 2], Switch(Mode.DEAD, site.server.now_us() + DELAY_US))
        site.server.strike([3], Switch(Mode.DEAD))
        async with asyncio.timeout(PATIENCE_S):
            await site.healing.wait()
        assert site.healed == [1, 2]
        assert site.server.switches.all().keys() == {3}
        site.ask(1, 2)
        assert set((await site.answer()).values()) == {Status.OK}
        await site.server.close()

    run(scenario(), uvloop=uvloop)


def test_a_process_that_is_cut_off_says_nothing() -> None:
    async def scenario() -> None:
        site = Site()
        site.server.is_cut = True
        site.ask(1, 2)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert sorted(site.ran) == [1, 2]
        assert site.link.acks == []
        assert site.link.outcomes == {}
        await site.server.close()

    run(scenario())


# ---- the socket ----


async def exchange(path: Path, *lines: bytes) -> list[ChaosReply]:
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        replies = []
        for line in lines:
            writer.write(line + b"\n")
            replies.append(msgspec.json.decode(await reader.readline(), type=ChaosReply))
        return replies
    finally:
        writer.close()
        await writer.wait_closed()


def answer(request: ChaosRequest) -> ChaosReply:
    if request.nodes == "bad":
        raise ValueError("no such node")
    if request.nodes == "fresh":
        raise TooEarly("not yet")
    return ChaosReply(len(request.nodes))


@both_loops
def test_the_socket_is_private_and_refuses_with_words(uvloop: bool, state_dir: Path) -> None:
    async def scenario() -> None:
        path = state_dir / NAME
        path.touch()  # What a killed process has left there is no obstacle.
        door = ChaosSocket(path, answer)
        await door.start()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        good, bad, early, no_json, other = await exchange(
            path,
            b'{"action": "dead", "nodes": "abc"}',
            b'{"action": "dead", "nodes": "bad"}',
            b'{"action": "dead", "nodes": "fresh"}',
            b"hello",
            b'{"action": 3}',
        )
        assert good == ChaosReply(3)
        assert (bad.error, bad.is_early) == ("no such node", False)
        assert (early.error, early.is_early) == ("not yet", True)
        assert "JSON" in no_json.error
        assert "action" in other.error
        await door.stop()
        assert not path.exists()

    run(scenario(), uvloop=uvloop)
