"""Hostile and broken peers at both doors and at the link port, while an ordinary one goes on being served.

Goal of all: whatever a connection brings ends at worst that connection, with a reason where one can be told; memory
stays within the stated bounds; nothing is left behind.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import grpc
import grpc.aio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.ports.door import Status
from eslurm.rpc import methods
from eslurm.rpc.codec import encode_frame
from eslurm.rpc.dial import BULK_METHOD, CONTROL_METHOD
from eslurm.rpc.framing import NO_REQUEST_ID, REQUEST_HEADER, VERSION
from eslurm.rpc.guard import REQUEST_ID_KEY
from eslurm.rpc.hello import LocalPeer, Session, first_frame, make_hello, only_item
from eslurm.rpc.options import CONTROL_FRAME_BYTES_MAX, LinkSettings
from eslurm.rpc.unix_door import UnixDoor, UnixDoorSettings
from eslurm.v1 import controller_pb2 as pb
from eslurm.v1 import link_pb2
from tests.integration.test_doors import door, ping, raw
from tests.integration.test_grpc_door import TOKEN
from tests.integration.test_grpc_door import door as grpc_door
from tests.property.mutation import damaged
from tests.support.loops import both_loops, run
from tests.support.quiet import quiet
from tests.unit.rpc.kit import (
    KEYRING,
    PATIENCE_S,
    REQUEST_ID,
    Process,
    Service,
    answer,
    calls_ending,
    process,
    report,
    until,
)

KIB = 1024


def request(
    stream: int, number: int = 1, body: bytes = b"", length: int | None = None, version: int = VERSION
) -> bytes:
    """A frame, its length a lie if wanted."""
    told = len(body) if length is None else length
    return REQUEST_HEADER.pack(told, version, 0, number, stream, 20_000, NO_REQUEST_ID) + body


async def serve_on(one: UnixDoor, trouble: Awaitable[None]) -> None:
    """Ordinary calls all the time while the trouble lasts; each is answered."""
    task = asyncio.ensure_future(trouble)
    while not task.done():
        assert (await ping(one)).cluster == "me"
        await asyncio.sleep(0)
    await task


async def is_clean(one: UnixDoor) -> None:
    """Nothing is left of those who are gone."""
    await until(lambda: not one.connections and not one.tasks)
    assert (one.calls_now, one.bytes_now, one.by_uid, one.bytes_by_uid) == (0, 0, {}, {})


# ---- the Unix door ----

VALID = [
    request(1) + request(2),
    request(7, methods.SUBMIT.number, pb.SubmitRequest(jobs=[pb.JobRequest(name="a")]).SerializeToString()),
    request(3, methods.JOBS.number, pb.JobsRequest(user="ann").SerializeToString()) + request(3),
    request(1, length=2**32 - 1),
    request(1, version=9),
    request(0),
    request(5, 999),
]


@settings(max_examples=30)
@given(st.lists(damaged(VALID) | st.binary(max_size=60), min_size=1, max_size=12), st.booleans())
def test_no_frames_harm_the_door_or_those_beside(streams: list[bytes], hang_up: bool) -> None:
    async def scenario() -> None:
        async def trouble(data: bytes) -> None:
            async with raw(one) as connection:
                connection.writer.write(data)
                with suppress(OSError):
                    await connection.writer.drain()
                if hang_up:
                    connection.writer.transport.abort()

        async def all_trouble() -> None:
            await asyncio.gather(*map(trouble, streams))

        async with door(Service(), UnixDoorSettings(request_bytes_max=64 * KIB)) as one:
            await serve_on(one, all_trouble())
            await is_clean(one)

    run(scenario())


@both_loops
def test_who_never_finishes_a_request_is_told_and_dropped(uvloop: bool) -> None:
    """Goal: no slow client holds a place. Method: bytes drip in, one at a time, beyond the time a request has."""

    async def scenario() -> None:
        bounds = UnixDoorSettings(request_timeout_s=0.2)
        async with door(Service(), bounds) as one:

            async def drip() -> None:
                async with raw(one) as connection:
                    for byte in request(1, body=bytes(10_000)):
                        connection.writer.write(bytes([byte]))
                        if connection.reader.at_eof() or one.counters.broken_frames:
                            break
                        await asyncio.sleep(0.001)
                    stream, status, text = await connection.reply()
                    assert (stream, status) == (0, Status.INVALID_ARGUMENT)
                    assert text == b"a request that was not whole within 0.2 s"
                    assert await connection.ended()

            await serve_on(one, drip())
            await is_clean(one)

    run(scenario(), uvloop=uvloop)


@both_loops
def test_whole_requests_reset_the_time_and_idle_connections_stay(uvloop: bool) -> None:
    async def scenario() -> None:
        async with door(Service(), UnixDoorSettings(request_timeout_s=0.6)) as one, raw(one) as connection:
            whole = request(1)
            for _ in range(4):
                # Each time the rest of one request and the beginning of the next.
                connection.writer.write(whole[:20])
                await asyncio.sleep(0.2)
                connection.writer.write(whole[20:])
                assert (await connection.reply())[:2] == (1, Status.OK)
            await asyncio.sleep(0.8)
            connection.ask(2)
            assert (await connection.reply())[:2] == (2, Status.OK)

    run(scenario(), uvloop=uvloop)


@both_loops
def test_unfinished_requests_are_bounded_in_bytes(uvloop: bool) -> None:
    """Goal: a user cannot fill the memory. Method: many connections, each with nearly all of a large request."""

    async def scenario() -> None:
        size_bytes, bound_bytes = 1024 * KIB, 4096 * KIB
        bounds = UnixDoorSettings(bytes_per_uid_max=bound_bytes, request_bytes_max=size_bytes)
        async with door(Service(), bounds) as one:
            told: list[bytes] = []
            highest = 0

            async def hoard() -> None:
                nonlocal highest
                async with raw(one) as connection:
                    connection.writer.write(request(1, body=bytes(size_bytes - 1), length=size_bytes))
                    with suppress(OSError):
                        await connection.writer.drain()
                    highest = max(highest, one.bytes_now)
                    with suppress(TimeoutError, asyncio.IncompleteReadError, ConnectionError):
                        async with asyncio.timeout(0.5):
                            told.append((await connection.reply())[2])

            async def all_hoard() -> None:
                await asyncio.gather(*(hoard() for _ in range(12)))

            await serve_on(one, all_hoard())
            # Who still writes when the door closes may see a broken pipe first, which asyncio takes for the end.
            assert set(told) <= {b"too much of unfinished requests; try again later"}
            assert one.counters.calls_refused >= 8
            # What is read at once may go above the bound before it is seen.
            assert highest <= bound_bytes + 12 * 256 * KIB
            await is_clean(one)

    run(scenario(), uvloop=uvloop)


def test_large_calls_under_way_are_bounded_and_small_ones_go_on() -> None:
    async def scenario() -> None:
        bounds = UnixDoorSettings(bytes_per_uid_max=800 * KIB)
        async with door(service := Service(hold=True), bounds) as one, raw(one) as connection:
            body = pb.JobsRequest(user="x" * 300 * KIB).SerializeToString()
            connection.ask(1, methods.JOBS.number, body)
            await until(lambda: len(service.calls) == 1)
            connection.ask(2, methods.JOBS.number, body)
            assert (await connection.reply())[:2] == (2, Status.RESOURCE_EXHAUSTED)
            connection.ask(3)
            await until(lambda: len(service.calls) == 2)
            service.gate_open.set()
            assert {(await connection.reply())[:2] for _ in range(2)} == {(1, Status.OK), (3, Status.OK)}
            assert one.bytes_now == 0

    run(scenario())


@both_loops
def test_who_reads_no_answers_is_not_read_from(uvloop: bool) -> None:
    """Goal: unread answers take no memory without bound. Method: questions at full speed, answers left lying."""

    async def scenario() -> None:
        async with door(service := Service()) as one:
            loop = asyncio.get_running_loop()
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as greedy:
                greedy.setblocking(False)
                await loop.sock_connect(greedy, str(one.path))

                async def ask() -> None:
                    stream = 0
                    with suppress(TimeoutError):
                        while True:
                            calls = b"".join(request(stream + more) for more in range(1, 257))
                            stream += 256
                            async with asyncio.timeout(0.3):
                                await loop.sock_sendall(greedy, calls)

                await serve_on(one, ask())
                asked = len(service.calls)
                await ping(one)
                await until(lambda: one.calls_now == 0)
                assert len(service.calls) <= asked + 1
                assert one.bytes_now < 512 * KIB
            await is_clean(one)

    run(scenario(), uvloop=uvloop)


@both_loops
def test_half_open_connections_hold_nothing(uvloop: bool) -> None:
    async def scenario() -> None:
        async with door(service := Service(hold=True)) as one:

            async def half() -> None:
                async with raw(one) as connection:
                    connection.ask(1)
                    connection.writer.write_eof()
                    assert await connection.ended()

            async with raw(one), raw(one):
                await half()
                await until(lambda: len(one.connections) == 2)
                assert (one.calls_now, service.cancelled) == (0, 1)
            await is_clean(one)

    run(scenario(), uvloop=uvloop)


def test_streams_may_come_in_any_order_and_be_used_again() -> None:
    async def scenario() -> None:
        async with door(Service()) as one, raw(one) as connection:
            for streams in ((9, 2**32 - 1, 3), (3, 1, 9)):
                for stream in streams:
                    connection.ask(stream)
                assert {(await connection.reply())[0] for _ in streams} == set(streams)

    run(scenario())


# ---- the link port ----


@asynccontextmanager
async def pair(
    bounds: LinkSettings | None = None,
) -> AsyncIterator[tuple[Process, Callable[[], Awaitable[None]]]]:
    """A listening process, and a call that proves that an ordinary link to it still works."""
    async with process("a", listens=True, link_settings=bounds) as a, process("b") as b:
        a.sink.answer = lambda link, item: link.send(answer(item.report.seq)) if item.report.seq else None
        asked = 0

        async def works() -> None:
            nonlocal asked
            asked += 1
            number = asked
            link = await b.table.get(a.endpoint)
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


def hello(stage: str, name: str = "evil", keyring: object = KEYRING, challenge: bytes = b"") -> bytes:
    local = LocalPeer("test", "agent", name)
    made = make_hello(local, keyring, Session(challenge=challenge), stage)  # type: ignore[arg-type]
    return first_frame(link_pb2.Item(hello=made))


FIRST = [
    hello("dial"),
    hello("confirm", challenge=b"c" * 16),
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

    with quiet("eslurm.rpc.link_server"):
        run(scenario())


@asynccontextmanager
async def joined(endpoint: str, name: str) -> AsyncIterator[grpc.aio.StreamStreamCall[bytes, bytes]]:
    """A control lane of a peer that knows the key, and does with it what it likes."""
    local, session = LocalPeer("test", "agent", name), Session()
    async with grpc.aio.insecure_channel(endpoint) as channel, asyncio.timeout(PATIENCE_S):
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(CONTROL_METHOD)()
        await call.write(first_frame(link_pb2.Item(hello=make_hello(local, KEYRING, session, "dial"))))
        reply = only_item(await call.read(), "hello_reply").hello_reply
        session.challenge = reply.hello.nonce
        await call.write(first_frame(link_pb2.Item(hello=make_hello(local, KEYRING, session, "confirm"))))
        yield call


ITEMS = [
    encode_frame([report(7).SerializeToString(), answer(1).SerializeToString()], "00-trace", 9),
    encode_frame([link_pb2.Item(credit=link_pb2.Credit(bytes=2**64 - 1)).SerializeToString()]),
    encode_frame([link_pb2.Item(open_bulk=link_pb2.OpenBulk()).SerializeToString()]),
    encode_frame([link_pb2.Item(unsupported=link_pb2.Unsupported(field=77)).SerializeToString()]),
    encode_frame([b"\xa2\x06\x00", b""]),
    hello("dial"),
]


@settings(max_examples=12)
@given(st.lists(damaged(ITEMS) | st.binary(max_size=40), min_size=1, max_size=6))
def test_no_frames_on_a_link_harm_others(frames: list[bytes]) -> None:
    async def scenario() -> None:
        async with pair(LinkSettings(bulk_open_timeout_s=0.5)) as (a, works):
            async with joined(a.endpoint, "evil") as call:
                with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
                    for frame in frames:
                        await call.write(frame)
                await works()
                call.cancel()
            await until(lambda: any(link.peer.process == "evil" for link, _reason in a.sink.downs))
            await works()
            assert a.table.counters.sink_errors == 0

    run(scenario())


def test_a_frame_that_cannot_be_decoded_ends_its_link_with_that_reason() -> None:
    async def scenario() -> None:
        async with pair() as (a, works):
            async with joined(a.endpoint, "evil") as call:
                await call.write(b"\x1a\xff\xff\xff\xff\xff")
                await until(lambda: bool(a.sink.downs))
                link, reason = a.sink.downs[0]
                assert (link.peer.process, reason) == ("evil", "a frame that cannot be decoded")
            await works()

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
        bounds = LinkSettings(hello_timeout_s=0.5, handshakes_max=4)
        async with pair(bounds) as (a, works):

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


# ---- the remote door ----


async def call_door(
    endpoint: str,
    path: str,
    body: bytes,
    metadata: tuple[tuple[str, str | bytes], ...],
    timeout_s: float | None,
) -> grpc.StatusCode:
    async with grpc.aio.insecure_channel(endpoint) as channel:
        try:
            await channel.unary_unary(path)(body, metadata=metadata, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            assert error.details()
            return error.code()
    return grpc.StatusCode.OK


BEARER = ("authorization", f"Bearer {TOKEN}")
CALLS = [pb.SubmitRequest(jobs=[pb.JobRequest(name="a")]).SerializeToString(), b"\xff\xff", b""]


@settings(max_examples=10)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([methods.SUBMIT.path, methods.JOBS.path, "/eslurm.v1.Controller/None", "/x"]),
            damaged(CALLS),
            st.sampled_from(
                ["", "Bearer", f"Bearer {TOKEN[:-2]}", f"bearer {TOKEN}", "Basic eDp5", "Bearer es1.AAAA"]
            ),
            st.sampled_from([REQUEST_ID, b"", b"short", bytes(16), bytes(5000)]),
            st.sampled_from([None, 20.0]),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_no_calls_harm_the_remote_door(calls: list[tuple[str, bytes, str, bytes, float | None]]) -> None:
    async def scenario() -> None:
        async with grpc_door(service := Service()) as endpoint:
            codes = await asyncio.gather(
                *(
                    call_door(
                        endpoint,
                        path,
                        body,
                        (("authorization", token), (REQUEST_ID_KEY, request_id)),
                        timeout_s,
                    )
                    for path, body, token, request_id, timeout_s in calls
                )
            )
            assert grpc.StatusCode.INTERNAL not in codes
            ordinary = await call_door(endpoint, methods.PING.path, b"", (BEARER,), PATIENCE_S)
            assert ordinary is grpc.StatusCode.OK
            assert all(caller.principal.name == "alice" for _name, caller in service.calls)

    run(scenario())


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ((BEARER, ("x-long", "y" * 100_000)), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (((BEARER[0], "Bearer " + "A" * 5_000),), grpc.StatusCode.UNAUTHENTICATED),
    ],
)
def test_long_headers_are_refused(metadata: tuple[tuple[str, str], ...], code: grpc.StatusCode) -> None:
    async def scenario() -> None:
        async with grpc_door(Service()) as endpoint:
            assert await call_door(endpoint, methods.PING.path, b"", metadata, PATIENCE_S) is code
            assert (
                await call_door(endpoint, methods.PING.path, b"", (BEARER,), PATIENCE_S) is grpc.StatusCode.OK
            )

    run(scenario())
