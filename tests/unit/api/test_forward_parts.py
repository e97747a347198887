"""Calls and answers that are too large for one item: through a standby they go in parts, through a node not at all."""

from __future__ import annotations

import asyncio

import pytest

from eslurm.api import forward as forward_module
from eslurm.api import methods
from eslurm.api.authoriser import Authoriser
from eslurm.api.forward import CONTROL_CALL_BYTES_MAX, CallParts, Forwarder, answer_door_call, send_reply
from eslurm.ports.api import ApiError, Status
from eslurm.ports.link import LinkClosed
from eslurm.transport.options import BULK_ITEM_BYTES_MAX
from eslurm.v1 import controller_pb2, link_pb2
from tests.kits.api import ALICE, Service, anyone_operates
from tests.support.loops import run
from tests.unit.api.test_forward import CALLER, FakeLink, tick

LARGE = 3 * CONTROL_CALL_BYTES_MAX // 2


class BulkLink(FakeLink):
    """Takes items on both lanes."""

    def __init__(self) -> None:
        super().__init__()
        self.bulk: list[link_pb2.Item] = []

    async def send_bulk(self, item: link_pb2.Item) -> None:
        if self.ended:
            raise LinkClosed("ended")
        assert item.ByteSize() <= BULK_ITEM_BYTES_MAX
        self.bulk.append(link_pb2.Item.FromString(item.SerializeToString()))


def large_request() -> bytes:
    job = controller_pb2.JobRequest(script=bytes(LARGE))
    return controller_pb2.SubmitRequest(jobs=[job]).SerializeToString()


def part(number: int, at: int, data: bytes, *, more: bool) -> link_pb2.DoorCall:
    return link_pb2.DoorCall(process="p", call=number, part=at, request=data, more=more)


def test_a_large_request_arrives_whole() -> None:
    async def scenario() -> None:
        link, service = BulkLink(), Service()
        forwarder = Forwarder("c2", lambda: link, lambda: 0, in_parts=True)
        asked = asyncio.create_task(forwarder.answer(methods.SUBMIT, large_request(), CALLER))
        await tick()
        assert not link.sent and len(link.bulk) > 2
        parts = CallParts()
        joined = [parts.join(item.door_call, 0.0) for item in link.bulk]
        assert joined[:-1] == [None] * (len(joined) - 1)
        call = joined[-1]
        assert call is not None and call.request == large_request() and call.retry
        forwarder.on_reply(
            await answer_door_call(call, ALICE, Authoriser(service, anyone_operates), "socket")
        )
        assert (await asked).status is Status.OK
        assert service.calls[0][1].via == "socket"

    run(scenario())


def test_a_large_answer_arrives_whole() -> None:
    async def scenario() -> None:
        link = BulkLink()
        forwarder = Forwarder("c2", lambda: link, lambda: 0, in_parts=True)
        asked = asyncio.create_task(forwarder.answer(methods.PING, b"", CALLER))
        await tick()
        data = bytes(range(256)) * (LARGE // 256)
        await send_reply(link, link_pb2.DoorReply(process="c2", call=1, reply=data), in_parts=True)
        for item in link.bulk:
            assert not asked.done()
            forwarder.on_reply(item.door_reply)
        assert (await asked).reply == data

    run(scenario())


def test_a_node_gets_a_refusal_instead_of_silence() -> None:
    async def scenario() -> None:
        link = BulkLink()
        await send_reply(link, link_pb2.DoorReply(process="n", call=7, reply=bytes(LARGE)), in_parts=False)
        [item] = link.sent
        assert (item.door_reply.call, item.door_reply.status) == (7, Status.RESOURCE_EXHAUSTED)
        assert "login host" in item.door_reply.text

    run(scenario())


def test_a_link_that_ends_in_between_is_not_available() -> None:
    async def scenario() -> None:
        link = BulkLink()
        link.ended = True
        forwarder = Forwarder("c2", lambda: link, lambda: 0, in_parts=True)
        answered = await forwarder.answer(methods.SUBMIT, large_request(), CALLER)
        assert answered.status is Status.UNAVAILABLE
        await send_reply(link, link_pb2.DoorReply(process="c2", call=1, reply=bytes(LARGE)), in_parts=True)

    run(scenario())


def test_what_lacks_a_part_is_never_joined() -> None:
    parts = CallParts()
    assert parts.join(part(1, 0, b"a", more=True), 0.0) is None
    with pytest.raises(ApiError, match="lost") as refused:
        parts.join(part(1, 2, b"c", more=False), 0.0)
    assert refused.value.status is Status.UNAVAILABLE
    whole = parts.join(part(2, 0, b"small", more=False), 0.0)
    assert whole is not None and whole.request == b"small"


def test_parts_are_bounded_and_what_was_given_up_is_forgotten() -> None:
    parts = CallParts(bytes_max=10, patience_s=60.0)
    assert parts.join(part(1, 0, b"x" * 8, more=True), 0.0) is None
    with pytest.raises(ApiError, match="too many large requests"):
        parts.join(part(2, 0, b"x" * 8, more=True), 1.0)
    assert parts.join(part(3, 0, b"x" * 8, more=True), 61.0) is None
    with pytest.raises(ApiError, match="lost"):
        parts.join(part(1, 1, b"x", more=False), 62.0)


def test_an_empty_part_that_is_not_the_last_is_refused() -> None:
    parts = CallParts()
    with pytest.raises(ApiError, match="a part of the request is empty"):
        parts.join(part(1, 0, b"", more=True), 0.0)
    assert not parts._begun and not parts._moved_s
    assert parts.join(part(2, 0, b"a", more=True), 0.0) is None
    whole = parts.join(part(2, 1, b"", more=False), 0.0)
    assert whole is not None and whole.request == b"a"


def test_calls_that_are_begun_and_their_parts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward_module, "CALL_PARTS_MAX", forward_module.CALLS_BEGUN_MAX + 1)
    parts = CallParts(patience_s=60.0)
    for number in range(forward_module.CALLS_BEGUN_MAX):
        assert parts.join(part(number, 0, b"a", more=True), number / 10) is None
    with pytest.raises(ApiError, match="too many large requests"):
        parts.join(part(1_000, 0, b"a", more=True), 60.0)
    assert len(parts._begun) == forward_module.CALLS_BEGUN_MAX
    # One that is begun goes on, as far as its parts have room.
    assert parts.join(part(5, 1, b"b", more=True), 60.0) is None
    with pytest.raises(ApiError, match="too many large requests"):
        parts.join(part(5, 2, b"c", more=True), 60.0)
    # The oldest have expired meanwhile: that makes room.
    assert parts.join(part(1_000, 0, b"a", more=True), 60.25) is None
    assert {0, 1, 2, 5}.isdisjoint(parts._moved_s) and {3, 4, 1_000} <= set(parts._moved_s)
    whole = parts.join(part(1_000, 1, b"z", more=False), 60.25)
    assert whole is not None and whole.request == b"az"


def test_the_room_of_parts_is_free_again_behind_each_end_of_a_call() -> None:
    parts = CallParts(bytes_max=10)
    for number in range(50):
        assert parts.join(part(number, 0, b"x" * 8, more=True), 0.0) is None
        if number % 2:
            assert parts.join(part(number, 1, b"yy", more=False), 0.0) is not None
        else:
            with pytest.raises(ApiError):
                parts.join(part(number, 1 + number % 4, b"yyy", more=False), 0.0)
    assert (len(parts._begun), parts._begun._bytes_now, parts._begun._parts_now) == (0, 0, 0)


@pytest.mark.parametrize(("data", "text"), [(b"", "an empty part"), (b"a", "or 100 parts: ask for less")])
def test_parts_of_an_answer_are_bounded(monkeypatch: pytest.MonkeyPatch, data: bytes, text: str) -> None:
    monkeypatch.setattr(forward_module, "REPLY_PARTS_MAX", 100)

    async def scenario() -> None:
        link = BulkLink()
        forwarder = Forwarder("c2", lambda: link, lambda: 0, in_parts=True)
        asked = asyncio.create_task(forwarder.answer(methods.PING, b"", CALLER))
        await tick()
        for _ in range(101):
            forwarder.on_reply(link_pb2.DoorReply(process="c2", call=1, reply=data, more=True))
        await tick()
        assert asked.done() and text in asked.result().text
        assert not forwarder._begun and not forwarder._begun._parts_now

    run(scenario())
