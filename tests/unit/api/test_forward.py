"""A node's door: calls there and back over a link, and what becomes of them when the link ends."""

from __future__ import annotations

import asyncio

import pytest

from eslurm.api import methods
from eslurm.api.authoriser import Authoriser
from eslurm.api.forward import Forwarder, answer_door_call
from eslurm.core.model.job import Principal
from eslurm.ports.api import ApiError, Caller, Status
from eslurm.v1 import controller_pb2, link_pb2
from tests.kits.api import ALICE, REQUEST_ID, Service, anyone_operates
from tests.support.loops import run

CALLER = Caller(ALICE, REQUEST_ID, True, 5_000_000, "socket")


class FakeLink:
    """Takes items, or has ended."""

    def __init__(self) -> None:
        self.sent: list[link_pb2.Item] = []
        self.ended = False

    def send(self, item: link_pb2.Item) -> bool:
        if not self.ended:
            self.sent.append(item)
        return not self.ended


async def tick() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_a_call_goes_to_the_controller_and_its_answer_comes_back() -> None:
    async def scenario() -> None:
        link, service = FakeLink(), Service()
        forwarder = Forwarder("agent-1", lambda: link, lambda: 17)
        asked = asyncio.create_task(forwarder.answer(methods.SUBMIT, b"", CALLER))
        await tick()
        call = link.sent[0].door_call
        assert (call.uid, call.gid, call.node, call.request_id, call.retry) == (
            4001,
            4001,
            17,
            REQUEST_ID,
            True,
        )
        reply = await answer_door_call(call, ALICE, Authoriser(service, anyone_operates))
        forwarder.on_reply(reply)
        answered = await asked
        assert answered.status is Status.OK
        assert controller_pb2.SubmitReply.FromString(answered.reply).job_ids == [1]
        assert service.calls[0][1].via == "agent"
        forwarder.on_reply(reply)

    run(scenario())


@pytest.mark.parametrize(("via", "said"), [("agent", "through nodes"), ("login", "through login hosts")])
def test_through_a_node_an_operator_is_a_user(via: str, said: str) -> None:
    """Also for what is decided later: the principal itself says which way it came."""

    async def scenario() -> None:
        service = Service()
        gate = Authoriser(service, anyone_operates)
        call = link_pb2.DoorCall(
            process="a", call=3, method="Cancel", deadline_us=5_000_000, request_id=REQUEST_ID
        )
        assert (await answer_door_call(call, ALICE, gate, via)).status == Status.OK
        [(_, caller)] = service.calls
        assert (caller.via, caller.principal.via) == (via, via)
        call.method = "UpdateNodes"
        drained = await answer_door_call(call, ALICE, gate, via)
        assert drained.status == Status.PERMISSION_DENIED and said in drained.text
        call.method = "Cancel"
        assert said in (await answer_door_call(call, Principal("root", 0, 0), gate, via)).text

    run(scenario())


def test_replies_for_others_are_left_alone_and_refusals_pass() -> None:
    async def scenario() -> None:
        link = FakeLink()
        forwarder = Forwarder("agent-1", lambda: link, lambda: 17)
        asked = asyncio.create_task(forwarder.answer(methods.PING, b"", CALLER))
        await tick()
        forwarder.on_reply(link_pb2.DoorReply(process="agent-2", call=1, reply=b"not mine"))
        forwarder.on_reply(link_pb2.DoorReply(process="agent-1", call=9, reply=b"not asked"))
        assert not asked.done()
        forwarder.on_reply(link_pb2.DoorReply(process="agent-1", call=1, status=5, text="no such job"))
        answered = await asked
        assert (answered.status, answered.text) == (Status.NOT_FOUND, "no such job")

    run(scenario())


def test_calls_fail_as_unavailable_without_a_link() -> None:
    async def scenario() -> None:
        link, other = FakeLink(), FakeLink()
        forwarder = Forwarder("agent-1", lambda: link, lambda: 17)
        asked = asyncio.create_task(forwarder.answer(methods.PING, b"", CALLER))
        await tick()
        forwarder.on_link_down(other)
        await tick()
        assert not asked.done()
        forwarder.on_link_down(link)
        assert (await asked).status is Status.UNAVAILABLE
        link.ended = True
        assert (await forwarder.answer(methods.PING, b"", CALLER)).status is Status.UNAVAILABLE
        unlinked = Forwarder("agent-1", lambda: None, lambda: 17)
        assert (await unlinked.answer(methods.PING, b"", CALLER)).status is Status.UNAVAILABLE
        large = await forwarder.answer(methods.SUBMIT, bytes(3 << 20), CALLER)
        assert large.status is Status.RESOURCE_EXHAUSTED

    run(scenario())


def test_the_controller_keeps_the_deadline_and_its_own_rules() -> None:
    async def scenario() -> None:
        service = Service(hold=True)
        gate = Authoriser(service, anyone_operates)
        call = link_pb2.DoorCall(process="a", call=3, method="Ping", deadline_us=10_000)
        reply = await answer_door_call(call, ALICE, gate)
        assert (reply.process, reply.call, reply.status) == ("a", 3, Status.DEADLINE_EXCEEDED)
        assert service.cancelled == 1
        for changes, principal, status in (
            ({"deadline_us": 0}, ALICE, Status.INVALID_ARGUMENT),
            ({"method": "Reboot"}, ALICE, Status.UNIMPLEMENTED),
            ({}, Principal("root", 0, 0), Status.PERMISSION_DENIED),
        ):
            changed = link_pb2.DoorCall()
            changed.CopyFrom(call)
            for name, value in changes.items():
                setattr(changed, name, value)
            assert (await answer_door_call(changed, principal, gate)).status == status

    run(scenario())


def test_when_to_come_again_passes_through_a_node() -> None:
    async def scenario() -> None:
        def refuse() -> None:
            raise ApiError(Status.RESOURCE_EXHAUSTED, "alice asks too much", 1.25)

        link = FakeLink()
        forwarder = Forwarder("agent-1", lambda: link, lambda: 17)
        asked = asyncio.create_task(forwarder.answer(methods.SUBMIT, b"", CALLER))
        await tick()
        gate = Authoriser(Service(misbehave=[refuse]), anyone_operates)
        forwarder.on_reply(await answer_door_call(link.sent[0].door_call, ALICE, gate))
        answered = await asked
        assert (answered.status, answered.retry_after_s) == (Status.RESOURCE_EXHAUSTED, 1.25)

    run(scenario())
