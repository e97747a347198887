"""The agent's way up: opened on demand, parked without fuss, waited for when satellites are busy."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from eslurm.api.methods import BY_NAME
from eslurm.ports.api import Answered, Caller, Status
from eslurm.ports.link import (
    ANYBODY,
    CLOSED_BY_PEER,
    IDLE,
    Link,
    LinkBusy,
    LinkRefused,
    LinkSilent,
    LinkUnreachable,
    PeerInfo,
    Wanted,
)
from eslurm.v1 import link_pb2
from esnoded import uplink as uplink_module
from esnoded.uplink import OnDemand, Uplink
from tests.kits.api import ALICE, until
from tests.support.loops import run

S1, S2, CONTROLLER = "s1:1", "s2:1", "c:1"


class FakeLink:
    traceparent = ""
    peer_book_revision = 0

    def __init__(self, endpoint: str) -> None:
        self.peer = PeerInfo("test", "satellite", endpoint, endpoint, frozenset(), 1, 0)
        self.closed = asyncio.Event()
        self.close_reason = ""

    def send(self, item: link_pb2.Item, traceparent: str = "") -> bool:
        return not self.closed.is_set()

    async def send_bulk(self, item: link_pb2.Item) -> None:
        raise NotImplementedError

    def close(self, reason: str) -> None:
        self.close_reason = reason
        self.closed.set()


class FakeLinks:
    """Dials succeed unless `answers` names an error for the endpoint; each dial is remembered."""

    def __init__(self) -> None:
        self.dials: list[str] = []
        self.answers: dict[str, Exception] = {}
        self.live: dict[str, FakeLink] = {}

    def find(self, endpoint: str, _wanted: Wanted = ANYBODY) -> Link | None:
        link = self.live.get(endpoint)
        return None if link is None or link.closed.is_set() else link

    async def get(self, endpoint: str, _wanted: Wanted = ANYBODY) -> Link:
        found = self.find(endpoint)
        if found is not None:
            return found
        self.dials.append(endpoint)
        if endpoint in self.answers:
            raise self.answers[endpoint]
        link = self.live[endpoint] = FakeLink(endpoint)
        return link


class Agent:
    """An uplink, what it dialled and what it told."""

    def __init__(self, satellites: Sequence[str], controllers: Sequence[str]) -> None:
        self.links = FakeLinks()
        self.told: list[Link | None] = []
        self.uplink = Uplink(self.links, satellites, controllers, 0, self.told.append, random.Random(1))

    def up(self) -> str:
        return self.uplink.link.peer.endpoint if self.uplink.link is not None else ""


@asynccontextmanager
async def agent(
    satellites: Sequence[str] = (S1, S2),
    controllers: Sequence[str] = (CONTROLLER,),
    prepare: Callable[[FakeLinks], None] | None = None,
) -> AsyncIterator[Agent]:
    made = Agent(satellites, controllers)
    if prepare is not None:
        prepare(made.links)
    task = asyncio.create_task(made.uplink.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_the_first_contact_is_made_at_once() -> None:
    async def scenario() -> None:
        async with agent() as a:
            await until(lambda: a.up() == S1)
            assert a.links.dials == [S1] and a.told == [a.links.live[S1]]

    run(scenario())


@pytest.mark.parametrize("reason", [IDLE, CLOSED_BY_PEER + IDLE])
def test_a_parked_way_is_no_loss_and_stays_closed_until_it_is_wanted(reason: str) -> None:
    async def scenario() -> None:
        async with agent() as a:
            await until(lambda: a.up() == S1)
            a.links.live[S1].close(reason)
            await until(lambda: a.up() == "")
            for _ in range(20):
                await asyncio.sleep(0)
            assert a.links.dials == [S1] and len(a.told) == 1, "neither dialled anew nor told as a loss"
            a.uplink.want()
            await until(lambda: a.up() == S1)
            assert a.links.dials == [S1, S1] and a.told[-1] is a.links.live[S1]

    run(scenario())


def test_a_lost_way_is_told_and_replaced_at_once() -> None:
    async def scenario() -> None:
        async with agent() as a:
            await until(lambda: a.up() == S1)
            a.links.answers[S1] = LinkUnreachable("gone")
            a.links.live[S1].close("the peer is gone")
            await until(lambda: a.up() == S2)
            assert a.told[1] is None and a.told[2] is a.links.live[S2]

    run(scenario())


def test_a_satellite_that_has_a_link_to_us_is_not_dialled() -> None:
    async def scenario() -> None:
        async with agent(prepare=lambda links: links.live.update({S2: FakeLink(S2)})) as a:
            await until(lambda: a.up() == S2)
            assert a.links.dials == []

    run(scenario())


def test_the_controller_is_the_last_resort() -> None:
    async def scenario() -> None:
        def prepare(links: FakeLinks) -> None:
            links.answers = {S1: LinkUnreachable("refused"), S2: LinkUnreachable("refused")}

        async with agent(prepare=prepare) as a:
            await until(lambda: a.up() == CONTROLLER)
            assert a.links.dials == [S1, S2, CONTROLLER]

    run(scenario())


def test_controllers_are_asked_in_turn_and_the_one_that_answered_first() -> None:
    async def scenario() -> None:
        refused = LinkUnreachable("refused")

        def prepare(links: FakeLinks) -> None:
            links.answers = dict.fromkeys((S1, S2, "c1:1"), refused)

        async with agent(controllers=("c1:1", "c2:1"), prepare=prepare) as a:
            await until(lambda: a.up() == "c2:1")
            assert a.links.dials == [S1, S2, "c1:1", "c2:1"]
            # It was handed over: the other one listens now.
            del a.links.answers["c1:1"]
            a.links.answers["c2:1"] = refused
            a.links.live["c2:1"].close("the controller stops")
            await until(lambda: a.up() == "c1:1")
            assert a.links.dials[-2:] == ["c2:1", "c1:1"]

    run(scenario())


def test_a_link_to_a_controller_ends_when_another_one_leads() -> None:
    async def scenario() -> None:
        async with agent(satellites=(), controllers=("c1:1", "c2:1")) as a:
            await until(lambda: a.up() == "c1:1")
            silent = a.links.live["c1:1"]
            silent.peer = msgspec.structs.replace(silent.peer, role="controller", owner="us", epoch=3)
            for owner, epoch in (("us", 3), ("us", 2), ("others", 9)):
                a.uplink.on_epoch(owner, epoch)
            assert not silent.closed.is_set()
            a.links.answers["c1:1"] = LinkSilent("no handshake")
            a.uplink.on_epoch("us", 4)
            await until(lambda: a.up() == "c2:1")
            assert silent.close_reason == "another controller leads"
            assert a.told == [silent, None, a.links.live["c2:1"]]

        async with agent() as a:
            await until(lambda: a.up() == S1)
            a.uplink.on_epoch("", 9)
            assert a.up() == S1, "a satellite finds the one that leads by itself"

    run(scenario())


def test_busy_satellites_are_waited_for_and_the_controller_is_spared() -> None:
    async def scenario() -> None:
        def prepare(links: FakeLinks) -> None:
            links.answers = {S1: LinkBusy("busy", retry_after_s=0.01), S2: LinkUnreachable("refused")}

        async with agent(prepare=prepare) as a:
            await until(lambda: len(a.links.dials) >= 3)
            assert set(a.links.dials) == {S1}, "its turn is near: nobody else is asked"
            del a.links.answers[S1]
            await until(lambda: a.up() == S1)

    run(scenario())


def test_with_a_long_line_the_next_satellite_is_asked() -> None:
    async def scenario() -> None:
        def prepare(links: FakeLinks) -> None:
            links.answers = {S1: LinkBusy("busy", retry_after_s=4.0)}

        async with agent(prepare=prepare) as a:
            await until(lambda: a.up() == S2)
            assert a.links.dials == [S1, S2]

    run(scenario())


def test_silence_opens_the_way_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uplink_module, "SILENCE_S", 0.05)

    async def scenario() -> None:
        async with agent() as a:
            await until(lambda: a.up() == S1)
            a.links.live[S1].close(IDLE)
            await until(lambda: len(a.links.dials) == 2)
            await until(lambda: a.up() == S1)

    run(scenario())


def test_a_call_waits_for_the_way_up() -> None:
    async def scenario() -> None:
        async with agent() as a:
            await until(lambda: a.up() == S1)
            a.links.live[S1].close(IDLE)
            await until(lambda: a.up() == "")
            seen: list[str] = []

            class Forwarding:
                async def answer(self, method: Any, payload: bytes, caller: Caller) -> Answered:
                    seen.append(a.up())
                    return Answered(Status.OK, "", b"")

            caller = Caller(ALICE, b"", False, None, "socket")
            answered = await OnDemand(a.uplink, Forwarding()).answer(BY_NAME["Ping"], b"", caller)
            assert answered.status is Status.OK and seen == [S1]

    run(scenario())


def test_a_way_that_has_just_ended_is_not_given_out_again() -> None:
    async def scenario() -> None:
        async with agent() as a:
            await until(lambda: a.up() == S1)
            a.links.answers[S1] = LinkUnreachable("gone")
            a.links.live[S1].close("the peer is gone")
            found = await a.uplink.get()
            assert found is a.links.live[S2]

    run(scenario())


def test_a_call_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uplink_module, "WAIT_S", 0.02)

    async def scenario() -> None:
        def prepare(links: FakeLinks) -> None:
            links.answers = dict.fromkeys((S1, S2, CONTROLLER), LinkUnreachable("refused"))

        async with agent(prepare=prepare) as a:
            assert await a.uplink.get() is None

    run(scenario())


def test_satellites_that_stay_silent_lead_to_the_controller_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        def prepare(links: FakeLinks) -> None:
            silent = LinkSilent("no Hello", retry_after_s=0.01)
            links.answers = {S1: silent, S2: silent}

        async with agent(prepare=prepare) as a:
            await until(lambda: len(a.links.dials) > 3)
            assert CONTROLLER not in a.links.dials, "they are asked again first"
            loop = asyncio.get_running_loop()
            time_s = loop.time
            monkeypatch.setattr(loop, "time", lambda: time_s() + uplink_module.HOPE_S)
            await until(lambda: a.up() == CONTROLLER)

    run(scenario())


def test_a_wrong_key_is_one_line_however_many_places_refuse_it(caplog: pytest.LogCaptureFixture) -> None:
    reason = "refused by the peer: wrong cluster key"

    def prepare(links: FakeLinks) -> None:
        links.answers = {place: LinkRefused(f"{place}: {reason}") for place in (S1, S2, CONTROLLER)}
        links.answers["c2:1"] = LinkUnreachable("c2:1: connection refused")

    async def scenario() -> None:
        async with agent(controllers=(CONTROLLER, "c2:1"), prepare=prepare) as a:
            await until(lambda: a.links.dials.count("c2:1") >= 1)
            # As the table says it while it leaves a peer alone.
            a.links.answers[CONTROLLER] = LinkUnreachable(f"{CONTROLLER}: {reason}")
            await until(lambda: a.links.dials.count("c2:1") >= 3)

    run(scenario())
    assert [record.getMessage() for record in caplog.records] == [f"no link to {S1}: {S1}: {reason}"]


def test_a_controller_that_does_not_listen_is_told_of_when_none_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    places = ("c1:1", "c2:1")

    def prepare(links: FakeLinks) -> None:
        links.answers = {place: LinkUnreachable(f"{place}: connection refused") for place in places}

    async def scenario() -> None:
        async with agent(satellites=(), controllers=places, prepare=prepare) as a:
            await until(lambda: a.links.dials.count("c1:1") >= 3)

    run(scenario())
    said = sorted(record.getMessage() for record in caplog.records)
    assert said == [f"no link to {place}: {place}: connection refused" for place in places]
