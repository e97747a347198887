"""The controller's ends of links: what does not fit is refused with the time to come again, for good is for good."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from esctld import links as links_module
from esctld.leadership import Standbys
from esctld.links import RETRY_AFTER_MS, ControllerLinks
from eslurm.core.cluster import State
from eslurm.core.job.model import Principal
from eslurm.ports.door import Answered, Caller, Status
from eslurm.ports.link import PeerInfo
from eslurm.rpc.forward import CallParts
from eslurm.v1 import link_pb2
from tests.support.loops import run
from tests.unit.rpc.kit import until


class FakeLink:
    """One end of a link; keeps what is sent."""

    def __init__(self, role: str) -> None:
        self.peer = PeerInfo("test", role, "c2.abc", "c2:1", frozenset(), 1, 0)
        self.sent: list[link_pb2.DoorReply] = []

    def send(self, item: link_pb2.Item, traceparent: str = "") -> bool:
        self.sent.append(item.door_reply)
        return True


class Resolver:
    """Everybody is who they say they are."""

    async def resolve(self, uid: int, gid: int) -> Principal:
        return Principal(f"user{uid}", uid, gid)


class Held:
    """Answers once it may."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()

    async def answer(self, _method: Any, _payload: bytes, _caller: Caller) -> Answered:
        await self.may_answer.wait()
        return Answered(Status.OK, "", b"answer")


class Ends:
    """The controller's links, as far as calls go."""

    def __init__(self) -> None:
        anything: Any = None
        resolver: Any = Resolver()
        self.held = Held()
        self.links = ControllerLinks(State("main"), anything, anything, Standbys(), resolver, anything)
        self.links.attach(anything, anything, anything, self.held)

    def call(self, link: Any, number: int, request: bytes = b"", *, more: bool = False) -> None:
        call = link_pb2.DoorCall(process="c2.abc", call=number, method="Ping", request=request, more=more)
        self.links.on_items(link, [link_pb2.Item(door_call=call)])


def test_a_call_too_many_is_told_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "DOOR_CALLS_MAX", 2)

    async def main() -> None:
        ends, standby = Ends(), FakeLink("controller")
        ends.links.on_up(standby)  # type: ignore[arg-type]
        for number in (1, 2, 3):
            ends.call(standby, number)
        [refused] = standby.sent
        assert (refused.call, refused.status) == (3, Status.RESOURCE_EXHAUSTED)
        assert refused.retry_after_ms == RETRY_AFTER_MS > 0
        ends.held.may_answer.set()
        await until(lambda: len(standby.sent) == 3)
        assert [(one.status, one.retry_after_ms) for one in standby.sent[1:]] == [(Status.OK, 0)] * 2
        await ends.links.close()

    run(main())


def test_so_is_a_large_call_that_found_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "CallParts", lambda: CallParts(bytes_max=10))

    async def main() -> None:
        ends, standby = Ends(), FakeLink("controller")
        ends.links.on_up(standby)  # type: ignore[arg-type]
        ends.call(standby, 1, bytes(11), more=True)
        [refused] = standby.sent
        assert (refused.status, refused.retry_after_ms) == (Status.RESOURCE_EXHAUSTED, RETRY_AFTER_MS)

    run(main())


def test_a_refusal_for_good_names_no_time() -> None:
    async def main() -> None:
        ends, agent = Ends(), FakeLink("agent")
        ends.call(agent, 1)
        await until(lambda: bool(agent.sent))
        [refused] = agent.sent
        assert (refused.status, refused.retry_after_ms) == (Status.PERMISSION_DENIED, 0)

    run(main())
