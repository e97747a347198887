"""Limits on requests through real doors: what a flood gets, who is kept waiting, what clients make of it."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from eslurm.api import methods
from eslurm.api.authoriser import Authoriser
from eslurm.api.grpc_client import GrpcClient
from eslurm.api.grpc_server import door_handler
from eslurm.api.interceptor import Interceptor
from eslurm.api.limits import LimitSettings, RequestLimits
from eslurm.api.principals import Principals
from eslurm.api.server import RpcServer
from eslurm.api.unix_client import Client
from eslurm.api.unix_server import UnixServer
from eslurm.core.control.rights import Level
from eslurm.core.model.job import Principal
from eslurm.ports.api import ApiError, ApiRefused, Caller, Status
from eslurm.transport.framing import NO_REQUEST_ID, REPLY_HEADER, REQUEST_HEADER, VERSION, retry_s
from eslurm.v1 import controller_pb2 as pb
from tests.kits.api import ALICE, PATIENCE_S, calls_ending, until
from tests.kits.api_tokens import Office
from tests.support.loops import both_loops, run

NOW_US = 1000
OFFICE = Office()
TOKEN = OFFICE.token(NOW_US + 1, ALICE, "admin")
COST_S = 0.1
HELD_S, SHORT_S = 10.0, 19.0
"""Of two refusals that last so long a client has time for one."""
SETTINGS = LimitSettings(read_share_percent=20.0, read_share_user_percent=10.0)


class Busy:
    """A service of which each answer takes `COST_S` by its own clock, which stands still otherwise."""

    def __init__(self) -> None:
        self.answered = 0

    def time_s(self) -> float:
        return self.answered * COST_S

    async def call(self, _method: Any, _request: Any, _caller: Caller) -> bytes:
        self.answered += 1
        return b""


class Later:
    """A service that tells everybody to come again, `times` times."""

    def __init__(self, times: int, after_s: float) -> None:
        self.calls: list[tuple[float, Caller]] = []
        self._times = times
        self._after_s = after_s

    async def call(self, method: Any, _request: Any, caller: Caller) -> Any:
        self.calls.append((time.monotonic(), caller))
        if len(self.calls) <= self._times:
            raise ApiError(Status.RESOURCE_EXHAUSTED, "alice asks too much", self._after_s)
        return method.reply()


def nobody(_principal: Principal) -> Level:
    return Level.USER


def me(uid: int, gid: int) -> Principal:
    return Principal("me", uid, gid, (gid,))


@asynccontextmanager
async def unix_door(gate: Authoriser) -> AsyncIterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        principals = Principals(lookup=me)
        door = UnixServer(Path(directory, "door"), gate, principals)
        await door.start()
        try:
            yield door.path
        finally:
            await door.stop()
            principals.close()


@asynccontextmanager
async def grpc_door(gate: Authoriser) -> AsyncIterator[str]:
    authenticator = OFFICE.authenticator(lambda: NOW_US)
    server = RpcServer([door_handler(gate)], Interceptor(authenticator))
    endpoint = await server.listen("127.0.0.1:0")
    await server.start()
    try:
        yield endpoint
    finally:
        await server.stop(0.5)


def frames(count: int, first: int = 1) -> bytes:
    return b"".join(
        REQUEST_HEADER.pack(0, VERSION, 0, methods.JOBS.number, stream, 20_000, NO_REQUEST_ID)
        for stream in range(first, first + count)
    )


async def reply(reader: asyncio.StreamReader) -> tuple[Status, float, str]:
    async with asyncio.timeout(PATIENCE_S):
        length, _version, status, after, _stream = REPLY_HEADER.unpack(
            await reader.readexactly(REPLY_HEADER.size)
        )
        return Status(status), retry_s(after), (await reader.readexactly(length)).decode()


@both_loops
def test_a_flood_without_manners_costs_the_controller_its_share_and_little_more(
    uvloop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50 connections ask on as soon as they have an answer, whatever it says."""
    refused: list[str] = []

    async def ask_on(path: Path, until_s: float) -> int:
        reader, writer = await asyncio.open_unix_connection(str(path))
        asked = 0
        while time.monotonic() < until_s or not refused:
            writer.write(frames(1))
            asked += 1
            await reply(reader)
        writer.close()
        await writer.wait_closed()
        return asked

    async def scenario() -> None:
        service = Busy()
        monkeypatch.setattr("eslurm.api.cpu_meter.thread_time", service.time_s)
        gate = Authoriser(service, nobody, RequestLimits(SETTINGS, refused.append))
        async with unix_door(gate) as path:
            began_s = time.monotonic()
            asked = await asyncio.gather(*(ask_on(path, began_s + 2.0) for _ in range(50)))
            took_s = time.monotonic() - began_s
        # The user's tenth, what was saved up, and one call too many.
        assert service.answered * COST_S <= 0.1 * (took_s + 5.0) + 2 * COST_S
        assert service.answered > 0 and refused
        # Held for about a second each once the budget is empty; without it they would ask thousands of times.
        assert sum(asked) - service.answered < 50 * (took_s / 0.05 + 2)

    run(scenario(), uvloop=uvloop)


def test_who_was_told_to_come_again_is_not_listened_to_until_then() -> None:
    async def scenario() -> None:
        service = Later(1, 0.3)
        async with unix_door(Authoriser(service, nobody)) as path:
            reader, writer = await asyncio.open_unix_connection(str(path))
            writer.write(frames(1))
            status, after_s, text = await reply(reader)
            assert (status, text) == (Status.RESOURCE_EXHAUSTED, "alice asks too much")
            assert after_s == pytest.approx(0.3, abs=0.011)
            writer.write(frames(3, 2))
            assert [(await reply(reader))[0] for _ in range(3)] == [Status.OK] * 3
            assert service.calls[1][0] - service.calls[0][0] >= 0.29
            writer.close()
            await writer.wait_closed()

    run(scenario())


def test_a_connection_that_is_held_may_end_meanwhile() -> None:
    async def scenario() -> None:
        async with unix_door(Authoriser(Later(10, 60.0), nobody)) as path:
            for _ in range(3):
                reader, writer = await asyncio.open_unix_connection(str(path))
                writer.write(frames(1))
                assert (await reply(reader))[1] == pytest.approx(60.0)
                writer.write(frames(5, 2))
                writer.close()
                await writer.wait_closed()

    run(scenario())


def test_a_command_comes_again_when_it_was_told_to() -> None:
    async def scenario() -> None:
        service = Later(2, 0.1)
        async with unix_door(Authoriser(service, nobody)) as path:
            with Client(path) as client:
                await asyncio.to_thread(client.call, methods.SUBMIT, pb.SubmitRequest(), PATIENCE_S)
            moments = [moment for moment, _caller in service.calls]
            assert len(moments) == 3 and moments[1] - moments[0] >= 0.09 and moments[2] - moments[1] >= 0.09
            assert len({caller.request_id for _moment, caller in service.calls}) == 1

    run(scenario())


def test_a_command_that_cannot_wait_so_long_is_told_why() -> None:
    async def scenario() -> None:
        async with unix_door(Authoriser(Later(100, HELD_S), nobody)) as path:
            with Client(path) as client, pytest.raises(ApiRefused, match="alice asks too much"):
                await asyncio.to_thread(client.call, methods.JOBS, pb.JobsRequest(), SHORT_S)

    run(scenario())


def test_remote_clients_are_kept_waiting_and_come_again() -> None:
    async def scenario() -> None:
        service = Later(2, 0.2)
        async with grpc_door(Authoriser(service, nobody)) as endpoint:
            with GrpcClient(endpoint, TOKEN) as client:
                await asyncio.to_thread(client.call, methods.JOBS, pb.JobsRequest(), PATIENCE_S)
            assert len(service.calls) == 3
            assert service.calls[2][0] - service.calls[0][0] >= 0.39
            await until(lambda: not calls_ending())

    run(scenario())


def test_a_remote_client_without_manners_is_held_at_every_refusal() -> None:
    async def scenario() -> None:
        service = Later(1000, 0.2)
        async with (
            grpc_door(Authoriser(service, nobody)) as endpoint,
            grpc.aio.insecure_channel(endpoint) as channel,
        ):
            ask: Any = channel.unary_unary(methods.JOBS.path)
            metadata = (("authorization", f"Bearer {TOKEN}"),)
            began_s = time.monotonic()
            for _ in range(3):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await ask(b"", timeout=PATIENCE_S, metadata=metadata)
                assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert time.monotonic() - began_s >= 0.59
        await until(lambda: not calls_ending())

    run(scenario())


def test_a_remote_client_that_cannot_wait_so_long_is_told_why() -> None:
    async def scenario() -> None:
        async with grpc_door(Authoriser(Later(100, HELD_S), nobody)) as endpoint:
            with (
                GrpcClient(endpoint, TOKEN) as client,
                pytest.raises(ApiRefused, match="alice asks too much"),
            ):
                await asyncio.to_thread(client.call, methods.JOBS, pb.JobsRequest(), SHORT_S)
            await until(lambda: not calls_ending())

    run(scenario())
