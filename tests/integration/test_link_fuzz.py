"""Hostile and broken peers at the link port, while an ordinary one goes on being served.

Goal of all: whatever a connection brings ends at worst that connection, with a reason where one can be told; memory
stays within the stated bounds; nothing is left behind.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import grpc
import grpc.aio
from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.links.codec import encode_frame
from eslurm.links.dial import BULK_METHOD, CONTROL_METHOD
from eslurm.links.hello import HELLO_BYTES_MAX, Handshake, LocalPeer, first_frame, only_item
from eslurm.security.channel import LaneKeys
from eslurm.transport.options import CONTROL_FRAME_BYTES_MAX, LinkSettings
from eslurm.transport.peers import PeerSettings
from eslurm.v1 import link_pb2
from tests.kits.api import PATIENCE_S, SITE, Process, answer, calls_ending, linked, process, report, until
from tests.kits.mutation import damaged
from tests.support.loops import run
from tests.support.quiet import quiet


@asynccontextmanager
async def pair(
    bounds: LinkSettings | None = None,
    peers: PeerSettings | None = None,
) -> AsyncIterator[tuple[Process, Callable[[], Awaitable[None]]]]:
    """A listening process, and a call that proves that an ordinary link to it still works."""
    async with process("a", listens=True, link_settings=bounds, peer_settings=peers) as a, process("b") as b:
        a.sink.answer = lambda link, item: link.send(answer(item.report.seq)) if item.report.seq else None
        asked = 0

        async def works() -> None:
            nonlocal asked
            asked += 1
            number = asked
            link = await linked(b.table, a.endpoint)
            assert link.send(report(number))
            await until(lambda: any(number in item.report_ack.seqs for item in b.sink.kinds("report_ack")))

        await works()
        ordinary = set(calls_ending())
        yield a, works
        # gRPC forgets its own task for a call whose write failed because the other end ended the stream.
        for task in set(calls_ending()) - ordinary:
            _, pending = await asyncio.wait([task], timeout=0.1)
            for forgotten in pending:
                forgotten.cancel()
        await until(lambda: set(calls_ending()) <= ordinary)


async def speak(endpoint: str, method: str, frames: list[bytes]) -> tuple[grpc.StatusCode, list[bytes]]:
    """Say these frames on a stream of its own; how it ended and what was answered."""
    heard: list[bytes] = []
    async with grpc.aio.insecure_channel(endpoint) as channel, asyncio.timeout(PATIENCE_S):
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(method)()
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            for frame in frames:
                await call.write(frame)
            await call.done_writing()
        try:
            while (reply := await call.read()) is not grpc.aio.EOF:
                heard.append(reply)
        except grpc.aio.AioRpcError as error:
            if (error.details() or "").startswith("Internal error from Core"):
                # Our own end: it was still sending when the stream was ended.
                return grpc.StatusCode.OK, heard
        return await call.code(), heard


EVIL = SITE.credentials("agent", "evil")


def hello() -> bytes:
    return Handshake(LocalPeer("test", "agent", "evil"), EVIL).open()


def confirmation() -> bytes:
    item = link_pb2.Hello(process="evil", nonce=b"n" * 16, challenge=b"c" * 16, proof=b"p" * 64)
    return first_frame(link_pb2.Item(hello=item))


FIRST = [
    hello(),
    confirmation(),
    encode_frame([report(1).SerializeToString()]),
    encode_frame([]),
    first_frame(link_pb2.Item(bye=link_pb2.Bye(reason="x"))),
    first_frame(link_pb2.Item(hello_reply=link_pb2.HelloReply(refused="no"))),
]


@settings(max_examples=12)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([CONTROL_METHOD, BULK_METHOD]),
            st.lists(damaged(FIRST) | st.binary(max_size=40), min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_no_first_frames_become_a_link(talks: list[tuple[str, list[bytes]]]) -> None:
    async def scenario() -> None:
        async with pair(LinkSettings(hello_timeout_s=1.0)) as (a, works):
            ends = await asyncio.gather(*(speak(a.endpoint, method, frames) for method, frames in talks))
            await works()
            assert len(a.sink.ups) == 1
            for code, heard in ends:
                for frame in heard:
                    reply = only_item(frame, "hello_reply").hello_reply
                    assert reply.refused or reply.hello.process == "a"
                assert code in (grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED)
            await until(lambda: a.table.counters.sockets_now == 1)

    with quiet("eslurm.links.link_server"):
        run(scenario())


@asynccontextmanager
async def joined(endpoint: str) -> AsyncIterator[tuple[grpc.aio.StreamStreamCall[bytes, bytes], LaneKeys]]:
    """A control lane of a member, and its keys: it does with them what it likes."""
    handshake = Handshake(LocalPeer("test", "agent", "evil"), EVIL)
    async with grpc.aio.insecure_channel(endpoint) as channel, asyncio.timeout(PATIENCE_S):
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(CONTROL_METHOD)()
        await call.write(handshake.open())
        answered = await call.read()
        _peer, proof = handshake.on_answer(only_item(answered, "hello_reply").hello_reply, answered)
        await call.write(proof)
        yield call, handshake.finish(dialled=True).control


SEALED = link_pb2.SealedStatement(sealed=SITE.keys.ring.sealed)
ITEMS = [
    encode_frame([report(7).SerializeToString(), answer(1).SerializeToString()], "00-trace", 9),
    encode_frame([link_pb2.Item(credit=link_pb2.Credit(bytes=2**64 - 1)).SerializeToString()]),
    encode_frame([link_pb2.Item(open_bulk=link_pb2.OpenBulk()).SerializeToString()]),
    encode_frame([link_pb2.Item(unsupported=link_pb2.Unsupported(field=77)).SerializeToString()]),
    encode_frame([b"\xa2\x06\x00", b""]),
    encode_frame([link_pb2.Item(key_ring=SEALED).SerializeToString()]),
    encode_frame([link_pb2.Item(revoked=SEALED).SerializeToString()]),
    hello(),
]


@settings(max_examples=12)
@given(st.lists(damaged(ITEMS) | st.binary(max_size=40), min_size=1, max_size=6), st.integers(0, 6))
def test_no_frames_on_a_link_harm_others(frames: list[bytes], encrypted: int) -> None:
    """The first `encrypted` frames are under the link's keys; the others are what somebody on the path puts in."""

    async def scenario() -> None:
        async with pair(LinkSettings(bulk_open_timeout_s=0.5)) as (a, works):
            async with joined(a.endpoint) as (call, keys):
                with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
                    for at, frame in enumerate(frames):
                        await call.write(keys.sealer.seal(frame) if at < encrypted else frame)
                await works()
                call.cancel()
            await until(lambda: any(link.peer.process == "evil" for link, _reason in a.sink.downs))
            await works()
            assert a.table.counters.sink_errors == 0

    run(scenario())


def test_a_frame_that_cannot_be_decoded_ends_its_link_with_that_reason() -> None:
    async def scenario() -> None:
        async with pair() as (a, works):
            async with joined(a.endpoint) as (call, keys):
                await call.write(keys.sealer.seal(b"\x1a\xff\xff\xff\xff\xff"))
                await until(lambda: bool(a.sink.downs))
                link, reason = a.sink.downs[0]
                assert (link.peer.process, reason) == ("evil", "a frame that cannot be decoded")
            await works()

    run(scenario())


def test_a_first_frame_of_a_stranger_is_small() -> None:
    async def scenario() -> None:
        async with pair() as (a, works):
            large = first_frame(link_pb2.Item(hello=link_pb2.Hello(cluster="x" * HELLO_BYTES_MAX)))
            code, heard = await speak(a.endpoint, CONTROL_METHOD, [large])
            assert code is grpc.StatusCode.OK
            assert (
                f"a Hello at most {HELLO_BYTES_MAX}" in only_item(heard[0], "hello_reply").hello_reply.refused
            )
            await works()

    with quiet("eslurm.links.link_server"):
        run(scenario())


def test_a_frame_too_large_ends_its_stream_with_a_status() -> None:
    async def scenario() -> None:
        async with pair() as (a, works):
            code, _ = await speak(a.endpoint, CONTROL_METHOD, [bytes(CONTROL_FRAME_BYTES_MAX + 1)])
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            await works()

    run(scenario())


def test_silent_handshakes_are_bounded_in_number_and_time() -> None:
    async def scenario() -> None:
        # Long enough for all of them to come before the first is given up.
        bounds = LinkSettings(hello_timeout_s=3.0)
        async with pair(bounds, PeerSettings(handshakes_max=4)) as (a, works):

            async def silent() -> grpc.StatusCode:
                async with grpc.aio.insecure_channel(a.endpoint) as channel, asyncio.timeout(PATIENCE_S):
                    call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(CONTROL_METHOD)()
                    with suppress(grpc.aio.AioRpcError):
                        await call.read()
                    return await call.code()

            codes = await asyncio.gather(*(silent() for _ in range(8)), works())
            assert codes.count(grpc.StatusCode.RESOURCE_EXHAUSTED) >= 4
            assert codes.count(grpc.StatusCode.DEADLINE_EXCEEDED) >= 1
            await until(lambda: a.table.counters.sockets_now == 1)
            await works()

    run(scenario())


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NOISE = [
    b"",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    PREFACE,
    PREFACE + b"\xff" * 64,
    PREFACE + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\x00\x00\x06\x01\x05\x00\x00\x00\x01" + b"\xff" * 6,
    os.urandom(4096),
]


def test_what_is_no_http2_leaves_the_ports_as_they_were() -> None:
    """Links and the remote door share this server: bytes of other protocols, half a preface, and nothing at all."""

    async def scenario() -> None:
        async with pair() as (a, works):
            host, port = a.endpoint.rsplit(":", 1)
            writers = []
            for noise in NOISE:
                _reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(noise)
                writers.append(writer)
            await works()
            for writer in writers:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
            await works()

    run(scenario())
