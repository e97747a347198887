"""Messages to a satellite that is slow or cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from eslurm.core.relay.relay import Relay
from eslurm.faults.chaos_socket import ChaosRequest
from eslurm.faults.relay import FaultyRelayServer
from eslurm.ports.link import ANYBODY, Wanted
from eslurm.v1 import link_pb2
from essatd.chaos import FaultyInbox
from tests.support.loops import both_loops, run

DELAY_US = 20_000


class FakeLink:
    def __init__(self) -> None:
        self.closed = asyncio.Event()


class NoLinks:
    def find(self, endpoint: str, _wanted: Wanted = ANYBODY) -> None:
        raise AssertionError(f"{endpoint} was looked for")


class Site:
    """An inbox before nothing; `came` are the items that passed."""

    def __init__(self) -> None:
        self.driver = FaultyRelayServer(Relay(root=True), NoLinks(), lambda _: None)
        self.inbox = FaultyInbox(self.driver, self._take, self._on_healed)
        self.link = FakeLink()
        self.came: list[int] = []
        self.healed = asyncio.Event()
        self.changed = asyncio.Event()

    def _take(self, _link: object, items: Sequence[link_pb2.Item]) -> None:
        self.came += [item.book_pull.revision for item in items]
        self.changed.set()

    def _on_healed(self) -> None:
        self.healed.set()

    def put(self, number: int) -> None:
        self.inbox.put(self.link, [link_pb2.Item(book_pull=link_pb2.BookPull(revision=number))])

    async def wait(self, count: int) -> None:
        async with asyncio.timeout(50):
            while len(self.came) < count:
                self.changed.clear()
                await self.changed.wait()


def test_everything_passes_as_long_as_nothing_is_asked_for() -> None:
    async def scenario() -> None:
        site = Site()
        site.put(1)
        assert site.came == [1]
        assert site.inbox.answer(ChaosRequest("show")).struck == ()
        await site.driver.close()

    run(scenario())


@both_loops
def test_a_slow_satellite_keeps_the_order_also_after_its_healing(uvloop: bool) -> None:
    async def scenario() -> None:
        site = Site()
        site.inbox.answer(ChaosRequest("slow", delay_us=DELAY_US))
        site.put(1)
        site.put(2)
        assert site.inbox.answer(ChaosRequest("heal")).changed == 1
        site.put(3)
        assert site.came == []
        await site.wait(3)
        assert site.came == [1, 2, 3]
        assert not site.healed.is_set()
        await site.driver.close()

    run(scenario(), uvloop=uvloop)


def test_a_partition_loses_both_ways_and_ends_by_itself() -> None:
    async def scenario() -> None:
        site = Site()
        struck = site.inbox.answer(ChaosRequest("partitioned", for_us=DELAY_US)).struck
        assert [(one.mode, one.nodes) for one in struck] == [("partitioned", "")]
        site.put(1)
        assert site.driver.is_cut
        async with asyncio.timeout(50):
            await site.healed.wait()
        assert not site.driver.is_cut
        site.put(2)
        assert site.came == [2]
        await site.driver.close()

    run(scenario())


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (ChaosRequest("dead"), "signal"),
        (ChaosRequest("slow", "cn1"), "serves no nodes"),
        (ChaosRequest("explode"), "explode"),
    ],
)
def test_what_a_satellite_cannot_do_is_refused(request_: ChaosRequest, words: str) -> None:
    async def scenario() -> None:
        site = Site()
        with pytest.raises(ValueError, match=words):
            site.inbox.answer(request_)
        assert not site.inbox.is_cut
        await site.driver.close()

    run(scenario())
