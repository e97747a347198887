"""Peers that prove nothing, at a port that others need.

Goal of all: strangers of one address take few connections, no messages and no time, and those who can prove who they are
are served beside them.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import grpc
import grpc.aio
import pytest

from eslurm.api import methods
from eslurm.api.bodies import READING_MAX, USER_BYTES_MAX, Bodies
from eslurm.links.dial import CONTROL_METHOD
from eslurm.ports.api import ApiError, Status
from eslurm.telemetry.process import raise_open_files
from eslurm.transport import peers as peers_module
from eslurm.transport.peers import (
    HANDSHAKE_FRAME_BYTES_MAX,
    Connections,
    Peers,
    PeerSettings,
    StrangerWatch,
    TooMany,
    address_of,
    connections_room,
)
from eslurm.v1 import controller_pb2 as pb
from tests.integration.test_grpc_server import client
from tests.integration.test_grpc_server import door as grpc_door
from tests.integration.test_link_fuzz import pair
from tests.kits.api import PATIENCE_S, Service, until
from tests.support.loops import both_loops, run

SOON = PeerSettings(look_s=0.05, crowded_look_s=0.02)
MIB = 1024 * 1024


@contextmanager
def idle(endpoint: str, count: int) -> Iterator[list[socket.socket]]:
    """So many connections that say nothing."""
    host, _, port = endpoint.rpartition(":")
    connections = [socket.create_connection((host, int(port))) for _ in range(count)]
    try:
        yield connections
    finally:
        for one in connections:
            one.close()


def port_of(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


@both_loops
def test_idle_connections_of_one_address_keep_nobody_away(uvloop: bool) -> None:
    """Goal: 300 connections that say nothing are closed but for a few, and links are made beside them."""

    async def scenario() -> None:
        async with pair(peers=SOON) as (a, works):
            with idle(a.endpoint, 300):
                await works()
                # A quarter of what is left of 224, and the link's own.
                await until(lambda: len(Connections(port_of(a.endpoint)).look()) <= 46)
                await works()

    run(scenario(), uvloop=uvloop)


def test_whoever_proves_nothing_is_closed_in_time_and_whoever_has_is_not() -> None:
    async def scenario() -> None:
        async with pair() as (a, works):
            await works()
            port = port_of(a.endpoint)
            peers = Peers()
            watch, connections = StrangerWatch(peers, port), Connections(port)
            with idle(a.endpoint, 3) as strangers:
                await until(lambda: len(connections.look()) == 4)
                own = {one.getsockname()[:2] for one in strangers}
                (link,) = set(connections.look()) - own
                peers.prove(f"ipv4:{link[0]}:{link[1]}")
                assert not watch.look(0.0) and not watch.look(peers.settings.stranger_s - 0.1)
                assert watch.look(peers.settings.stranger_s) and watch.closed == 3
                await until(lambda: set(connections.look()) == {link})
                for one in strangers:
                    while one.recv(4096):
                        """Read gRPC's first bytes, up to the end."""
            await works()

    run(scenario())


def test_a_connection_is_asked_once_and_a_descriptor_that_became_another_s_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def counted(descriptor: int, port: int) -> peers_module.Address | None:
        asked.append(descriptor)
        return peer_at(descriptor, port)

    peer_at = peers_module._peer_at
    monkeypatch.setattr(peers_module, "_peer_at", counted)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as first, server.accept()[0] as here:
            connections = Connections(port)
            assert connections.look() == {first.getsockname(): here.fileno()}
            asked.clear()
            assert connections.look() == {first.getsockname(): here.fileno()}
            assert not asked, "each look asked all descriptors"
            with socket.create_connection(("127.0.0.1", port)) as second, server.accept()[0] as there:
                os.dup2(there.fileno(), here.fileno())
                assert set(connections.look()) == {second.getsockname()}
        assert connections.look() == {}


def test_a_port_is_not_proven_for_who_comes_after() -> None:
    peers = Peers()
    peers.prove("ipv4:10.0.0.1:5")
    peers.keep_only(set())
    assert not peers.is_proven(("10.0.0.1", 5))


def test_one_address_has_one_spelling() -> None:
    spellings = ("ipv4:10.0.0.1:5", "ipv6:%5B::ffff:10.0.0.1%5D:5")
    assert {address_of(one) for one in spellings} == {("10.0.0.1", 5)}
    assert address_of("ipv6:%5B::1%5D:7") == ("::1", 7)
    assert address_of("unix:") == ("", 0)


def test_handshakes_are_bounded_per_address() -> None:
    async def scenario() -> None:
        peers = Peers(PeerSettings(handshakes_max=16))
        async with asyncio.TaskGroup() as group:
            over = asyncio.Event()
            held = 0

            async def shake(peer: str) -> None:
                nonlocal held
                async with peers.handshake(peer):
                    held += 1
                    await over.wait()

            for port in range(3):
                group.create_task(shake(f"ipv4:10.0.0.1:{port}"))
            await until(lambda: held == 3)
            with pytest.raises(TooMany):
                async with peers.handshake("ipv4:10.0.0.1:9"):
                    pass
            async with peers.handshake("ipv4:10.0.0.2:9"):
                pass
            over.set()

    run(scenario())


@both_loops
def test_a_first_frame_is_small(uvloop: bool) -> None:
    """Goal: a stranger's frame is neither kept nor decoded. Method: many of the largest, beside an ordinary link."""

    async def scenario() -> None:
        async with pair() as (a, works):

            async def shout() -> bool:
                options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", 4 * MIB)]
                async with grpc.aio.insecure_channel(a.endpoint, options) as channel:
                    call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(CONTROL_METHOD)()
                    said = None
                    with suppress(grpc.aio.AioRpcError):
                        await call.write(b"\x1a\x00" * (HANDSHAKE_FRAME_BYTES_MAX // 2 + 1))
                        said = await call.read()
                    return isinstance(said, bytes) and b"a first frame of 65538 bytes" in said

            assert all(await asyncio.gather(*(shout() for _ in range(20))))
            await works()

    run(scenario(), uvloop=uvloop)


@both_loops
def test_a_request_without_a_token_is_not_read(uvloop: bool) -> None:
    """Goal: strangers are refused by their headers alone. Method: 60 requests of 4 MiB at once, beside one with a token."""

    async def scenario() -> None:
        async with grpc_door(service := Service()) as endpoint, client(endpoint) as one:
            body = bytes(4 * MIB - 1024)

            async def shout(channel: grpc.aio.Channel, path: str) -> tuple[grpc.StatusCode, str]:
                call: Any = channel.unary_unary(path)
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call(body, timeout=PATIENCE_S)
                return caught.value.code(), caught.value.details() or ""

            async with grpc.aio.insecure_channel(endpoint) as channel:
                found = await asyncio.gather(*(shout(channel, methods.SUBMIT.path) for _ in range(60)))
                assert {code for code, _ in found} == {grpc.StatusCode.UNAUTHENTICATED}
                code, _text = await shout(channel, "/eslurm.v1.Controller/Unknown")
                assert code is grpc.StatusCode.UNIMPLEMENTED
            await one.call(methods.PING, pb.PingRequest(), PATIENCE_S)
            assert [name for name, _ in service.calls] == ["Ping"]

    run(scenario(), uvloop=uvloop)


class Call:
    """A call whose request comes when it is told to."""

    def __init__(self, payload: Any = b"") -> None:
        self.payload = payload
        self.come = asyncio.Event()
        self.reading = False

    async def read(self) -> Any:
        self.reading = True
        await self.come.wait()
        return self.payload


def test_requests_of_a_user_are_bounded_while_they_come_and_while_they_are_kept() -> None:
    async def scenario() -> None:
        bodies = Bodies()
        calls = [Call(b"x") for _ in range(READING_MAX + 3)]

        @asynccontextmanager
        async def kept(call: Call, uid: int) -> AsyncIterator[bytes]:
            context: Any = call
            async with bodies.of(uid, context) as payload:
                yield payload

        async def take(call: Call, uid: int = 1) -> bytes:
            async with kept(call, uid) as payload:
                return payload

        tasks = [asyncio.create_task(take(call)) for call in calls]
        await until(lambda: sum(call.reading for call in calls) == READING_MAX)
        other = Call(b"other")
        other.come.set()
        assert await take(other, 2) == b"other", "slow requests of one user do not hold up another's"
        for call in calls:
            call.come.set()
        assert await asyncio.gather(*tasks) == [b"x"] * len(calls)

        large = [Call(bytes(USER_BYTES_MAX // 2)) for _ in range(3)]
        for call in large:
            call.come.set()
        async with kept(large[0], 1), kept(large[1], 1):
            with pytest.raises(ApiError) as refused:
                await take(large[2])
            assert refused.value.status is Status.RESOURCE_EXHAUSTED and refused.value.retry_after_s
            assert await take(calls[0]) == b"x" and len(await take(large[2], 2)) == USER_BYTES_MAX // 2
        nothing = Call(grpc.aio.EOF)
        nothing.come.set()
        with pytest.raises(ApiError, match="carries no request"):
            await take(nothing)
        assert not bodies._calls and not bodies._bytes and not bodies._reading

    run(scenario())


def test_descriptors_are_raised_and_half_of_them_are_for_strangers_at_most() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
        assert connections_room() == 256
        raise_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
