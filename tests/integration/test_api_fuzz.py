"""Hostile and broken peers at both doors, while an ordinary one goes on being served.

Goal of all: whatever a connection brings ends at worst that connection, with a reason where one can be told; memory
stays within the stated bounds; nothing is left behind.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable
from contextlib import suppress

import grpc
import grpc.aio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.api import methods
from eslurm.api.interceptor import REQUEST_ID_KEY
from eslurm.api.unix_server import UnixServer, UnixServerSettings
from eslurm.ports.api import Status
from eslurm.transport.framing import NO_REQUEST_ID, REQUEST_HEADER, VERSION
from eslurm.v1 import controller_pb2 as pb
from tests.integration.test_api_servers import door, ping, raw
from tests.integration.test_grpc_server import TOKEN
from tests.integration.test_grpc_server import door as grpc_door
from tests.kits.api import PATIENCE_S, REQUEST_ID, Service, until
from tests.kits.mutation import damaged
from tests.support.loops import both_loops, run

KIB = 1024


def request(
    stream: int, number: int = 1, body: bytes = b"", length: int | None = None, version: int = VERSION
) -> bytes:
    """A frame, its length a lie if wanted."""
    told = len(body) if length is None else length
    return REQUEST_HEADER.pack(told, version, 0, number, stream, 20_000, NO_REQUEST_ID) + body


async def serve_on(one: UnixServer, trouble: Awaitable[None]) -> None:
    """Ordinary calls all the time while the trouble lasts; each is answered."""
    task = asyncio.ensure_future(trouble)
    while not task.done():
        assert (await ping(one)).cluster == "me"
        await asyncio.sleep(0)
    await task


async def is_clean(one: UnixServer) -> None:
    """Nothing is left of those who are gone."""
    await until(lambda: not one.connections and not one.tasks)
    assert (one.calls.taken, one.bytes_now, one.places.by_user, one.bytes_by_uid) == (0, 0, {}, {})


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

        async with door(Service(), UnixServerSettings(request_bytes_max=64 * KIB)) as one:
            await serve_on(one, all_trouble())
            await is_clean(one)

    run(scenario())


@both_loops
def test_who_never_finishes_a_request_is_told_and_dropped(uvloop: bool) -> None:
    """Goal: no slow client holds a place. Method: bytes drip in, one at a time, beyond the time a request has."""

    async def scenario() -> None:
        bounds = UnixServerSettings(request_timeout_s=0.2)
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
def test_whole_requests_reset_the_time_and_idle_connections_have_none(uvloop: bool) -> None:
    async def scenario() -> None:
        async with (
            door(Service(), UnixServerSettings(request_timeout_s=3600.0)) as one,
            raw(one) as connection,
        ):
            whole = request(1)
            connection.writer.write(whole)
            assert (await connection.reply())[:2] == (1, Status.OK)
            (served,) = one.connections
            assert served._due is None
            connection.writer.write(whole[:20])
            timers = []
            for _ in range(4):
                await until(lambda: served._due not in (None, *timers))
                timers.append(served._due)
                # Each time the rest of one request and the beginning of the next.
                connection.writer.write(whole[20:] + whole[:20])
                assert (await connection.reply())[:2] == (1, Status.OK)
            await until(lambda: served._due not in timers)
            assert all(timer is not None and timer.cancelled() for timer in timers)
            connection.writer.write(whole[20:])
            assert (await connection.reply())[:2] == (1, Status.OK)
            assert served._due is None

    run(scenario(), uvloop=uvloop)


@both_loops
def test_unfinished_requests_are_bounded_in_bytes(uvloop: bool) -> None:
    """Goal: a user cannot fill the memory. Method: many connections, each with nearly all of a large request."""

    async def scenario() -> None:
        size_bytes, bound_bytes = 1024 * KIB, 4096 * KIB
        bounds = UnixServerSettings(bytes_per_uid_max=bound_bytes, request_bytes_max=size_bytes)
        async with door(Service(), bounds) as one:
            told: list[bytes] = []
            highest = 0
            over = asyncio.Event()

            async def hoard() -> None:
                nonlocal highest
                async with raw(one) as connection:
                    connection.writer.write(request(1, body=bytes(size_bytes - 1), length=size_bytes))
                    with suppress(OSError):
                        await connection.writer.drain()
                    highest = max(highest, one.bytes_now)
                    hearing = asyncio.ensure_future(connection.reply())
                    waiting = asyncio.ensure_future(over.wait())
                    await asyncio.wait((hearing, waiting), return_when=asyncio.FIRST_COMPLETED)
                    hearing.cancel()
                    waiting.cancel()
                    with suppress(asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
                        told.append((await hearing)[2])

            async def all_hoard() -> None:
                hoarding = asyncio.gather(*(hoard() for _ in range(12)))
                await until(lambda: one.counters.calls_refused >= 8)
                over.set()
                await hoarding

            await serve_on(one, all_hoard())
            # Who still writes when the door closes may see a broken pipe first, which asyncio takes for the end.
            assert set(told) <= {b"too much of unfinished requests; try again later"}
            # What is read at once may go above the bound before it is seen.
            assert highest <= bound_bytes + 12 * 256 * KIB
            await is_clean(one)

    run(scenario(), uvloop=uvloop)


def test_large_calls_under_way_are_bounded_and_small_ones_go_on() -> None:
    async def scenario() -> None:
        bounds = UnixServerSettings(bytes_per_uid_max=800 * KIB)
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
                    while True:
                        calls = b"".join(request(stream + more) for more in range(1, 257))
                        stream += 256
                        await loop.sock_sendall(greedy, calls)

                asking = asyncio.ensure_future(ask())
                await serve_on(one, until(lambda: any(each._full for each in one.connections)))
                await until(lambda: one.calls.taken == 0)
                asked = len(service.calls)
                for _ in range(10):
                    await ping(one)
                assert len(service.calls) == asked + 10
                assert one.bytes_now < 512 * KIB
                assert not asking.done()
                asking.cancel()
                await asyncio.wait([asking])
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
                assert (one.calls.taken, service.cancelled) == (0, 1)
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
