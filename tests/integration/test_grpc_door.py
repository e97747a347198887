"""The gRPC door with both of its clients: tokens, deadlines, statuses, retries, TLS. And the guard's refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from eslurm.core.job.model import Principal
from eslurm.core.messages import RefusalCode, Refused
from eslurm.ports.door import DoorError, DoorRefused, DoorUnreachable, Status
from eslurm.rpc import methods
from eslurm.rpc.gate import Gate
from eslurm.rpc.grpc_client import BlockingGrpcClient, GrpcClient
from eslurm.rpc.grpc_door import door_handler
from eslurm.rpc.guard import Guard
from eslurm.rpc.options import DOOR_MESSAGE_BYTES_MAX
from eslurm.rpc.server import RpcServer
from eslurm.rpc.tokens import TokenAuthenticator, mint_token
from eslurm.v1 import controller_pb2 as pb
from tests.support.loops import both_loops, run
from tests.unit.rpc.kit import ALICE, KEYRING, PATIENCE_S, REQUEST_ID, Service, calls_ending, until

NOW_US = 1000
TOKEN = mint_token(KEYRING, "test", ALICE, NOW_US + 1)

# Self-signed for localhost and 127.0.0.1 until 2120; it protects nothing but these tests.
TLS_KEY = b"""-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgTwf7VhSwCE0mU1ya
rpF6y2/5lvtFokxWY+gkBeqA3X6hRANCAAQ5ue3b5osxAuGscUS3FZrEUllXFuXv
Bcy5Q1IjPB/kZ77UY8zRHALxVle0BZNypYEn84Q1bMFbQfqiyGVxtUQt
-----END PRIVATE KEY-----
"""
TLS_CERTIFICATE = b"""-----BEGIN CERTIFICATE-----
MIIBZzCCAQ2gAwIBAgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAlsb2NhbGhv
c3QwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBQxEjAQBgNVBAMM
CWxvY2FsaG9zdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABDm57dvmizEC4axx
RLcVmsRSWVcW5e8FzLlDUiM8H+RnvtRjzNEcAvFWV7QFk3KlgSfzhDVswVtB+qLI
ZXG1RC2jTjBMMBoGA1UdEQQTMBGCCWxvY2FsaG9zdIcEfwAAATAPBgNVHRMBAf8E
BTADAQH/MB0GA1UdDgQWBBRT3GasmtXY4NAa6zwcpEGiQqt7sTAKBggqhkjOPQQD
AgNIADBFAiAnA80rplA/zuP1YicihvoZPOg39XDjgmZ8YNOo2oD/yAIhAPxsYZtM
zOoU08JM3Z5g8q8O1JOCNCsca0207gYZ7goF
-----END CERTIFICATE-----
"""


class Authenticator(TokenAuthenticator):
    """Remembers what it was told about the connections."""

    def __init__(self) -> None:
        super().__init__(KEYRING, "test", lambda: NOW_US)
        self.encrypted: list[bool] = []

    def principal(self, metadata: Mapping[str, str], peer: str, *, encrypted: bool) -> Principal:
        self.encrypted.append(encrypted)
        return super().principal(metadata, peer, encrypted=encrypted)


@asynccontextmanager
async def door(
    service: Service,
    *,
    tls: bool = False,
    authenticator: Authenticator | None = None,
    links_only: bool = False,
) -> AsyncIterator[str]:
    authenticator = None if links_only else authenticator or Authenticator()
    gate = Gate(service, lambda _principal: False)
    server = RpcServer([door_handler(gate)], Guard(authenticator), message_bytes_max=DOOR_MESSAGE_BYTES_MAX)
    credentials = grpc.ssl_server_credentials([(TLS_KEY, TLS_CERTIFICATE)]) if tls else None
    endpoint = await server.listen("127.0.0.1:0", credentials)
    await server.start()
    try:
        yield endpoint
    finally:
        await server.stop(0.5)


@asynccontextmanager
async def client(
    endpoint: str, token: str = TOKEN, credentials: grpc.ChannelCredentials | None = None
) -> AsyncIterator[GrpcClient]:
    one = GrpcClient(endpoint, token, credentials)
    try:
        yield one
    finally:
        await one.close()
        await until(lambda: not calls_ending())


@both_loops
def test_a_token_says_who_calls(uvloop: bool) -> None:
    async def scenario() -> None:
        async with door(service := Service()) as endpoint, client(endpoint) as one:
            reply = await one.call(methods.PING, pb.PingRequest(), PATIENCE_S)
            assert (reply.cluster, reply.now_us) == ("alice", 4001)
            _name, caller = service.calls[0]
            assert (caller.via, caller.principal.via, caller.retry) == ("token", "token", False)
            # gRPC rounds time-outs up on their way.
            assert caller.deadline_us is not None and 0 < caller.deadline_us <= PATIENCE_S * 1.1e6

    run(scenario(), uvloop=uvloop)


def test_the_blocking_client_says_the_same() -> None:
    async def scenario() -> None:
        async with door(service := Service()) as endpoint:

            def work() -> tuple[str, list[int]]:
                with BlockingGrpcClient(endpoint, TOKEN) as one:
                    cluster = one.call(methods.PING, pb.PingRequest(), PATIENCE_S).cluster
                    job_ids = one.call(methods.SUBMIT, pb.SubmitRequest(), PATIENCE_S, REQUEST_ID).job_ids
                    with pytest.raises(DoorRefused, match="for operators"):
                        one.call(methods.UPDATE_NODES, pb.UpdateNodesRequest(), PATIENCE_S)
                    return cluster, list(job_ids)

            service.misbehave = [
                lambda: None,
                lambda: (_ for _ in ()).throw(DoorError(Status.UNAVAILABLE, "not yet")),
            ]
            assert await asyncio.to_thread(work) == ("alice", [1])
            assert [caller.retry for _name, caller in service.calls] == [False, False, True]

    run(scenario())


def test_unavailable_is_retried_with_the_same_request_id() -> None:
    async def scenario() -> None:
        async with door(service := Service()) as endpoint, client(endpoint) as one:

            def fail() -> None:
                raise DoorError(Status.UNAVAILABLE, "not yet")

            service.misbehave = [fail]
            reply = await one.call(methods.SUBMIT, pb.SubmitRequest(), PATIENCE_S)
            assert reply.job_ids == [1]
            first, second = (caller for _name, caller in service.calls)
            assert first.request_id == second.request_id and len(service.effects) == 1
            assert (first.retry, second.retry) == (False, True)

    run(scenario())


@pytest.mark.parametrize("token", ["", "es1.AAAA", mint_token(KEYRING, "test", ALICE, NOW_US)])
def test_without_a_valid_token_nothing_is_open(token: str) -> None:
    async def scenario() -> None:
        async with door(service := Service()) as endpoint, client(endpoint, token) as one:
            with pytest.raises(DoorRefused) as refused:
                await one.call(methods.PING, pb.PingRequest(), PATIENCE_S)
            assert refused.value.status is Status.UNAUTHENTICATED
            assert not service.calls

    run(scenario())


def test_a_server_of_links_takes_no_calls() -> None:
    async def scenario() -> None:
        async with door(Service(), links_only=True) as endpoint, client(endpoint) as one:
            with pytest.raises(DoorRefused, match="takes links only"):
                await one.call(methods.PING, pb.PingRequest(), PATIENCE_S)

    run(scenario())


def test_refusals_and_bugs_arrive_as_statuses() -> None:
    async def scenario() -> None:
        async with door(service := Service()) as endpoint, client(endpoint) as one:
            for error, status in (
                (Refused(RefusalCode.INFEASIBLE, "no node has 900 cores"), Status.INVALID_ARGUMENT),
                (Refused(RefusalCode.EXHAUSTED, "too many jobs"), Status.RESOURCE_EXHAUSTED),
                (DoorError(Status.ABORTED, "stale"), Status.ABORTED),
                (KeyError("secret"), Status.INTERNAL),
            ):
                service.misbehave = [lambda error=error: (_ for _ in ()).throw(error)]
                with pytest.raises(DoorRefused) as refused:
                    await one.call(methods.PING, pb.PingRequest(), PATIENCE_S)
                assert refused.value.status is status
                assert "secret" not in refused.value.text

    run(scenario())


def test_the_deadline_holds_and_cancels_the_handler() -> None:
    async def scenario() -> None:
        async with door(service := Service()) as endpoint, client(endpoint) as one:
            await one.call(methods.PING, pb.PingRequest(), PATIENCE_S)
            service.hold = True
            with pytest.raises(DoorUnreachable, match="may have taken effect"):
                await one.call(methods.SUBMIT, pb.SubmitRequest(), 1.0)
            await until(lambda: service.cancelled == 1)

    run(scenario())


def test_nobody_there_is_told_when_the_time_is_over() -> None:
    async def scenario() -> None:
        async with client("127.0.0.1:1") as one:
            with pytest.raises(DoorUnreachable, match="is the controller running there"):
                await one.call(methods.PING, pb.PingRequest(), 0.5)

    run(scenario())


async def raw_call(endpoint: str, path: str, timeout_s: float | None) -> tuple[grpc.StatusCode, str]:
    async with grpc.aio.insecure_channel(endpoint) as channel:
        try:
            await channel.unary_unary(path)(
                b"", timeout=timeout_s, metadata=(("authorization", f"Bearer {TOKEN}"),)
            )
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
        return grpc.StatusCode.OK, ""


def test_a_call_without_deadline_and_an_unknown_method_are_refused() -> None:
    async def scenario() -> None:
        async with door(Service()) as endpoint:
            code, text = await raw_call(endpoint, methods.PING.path, None)
            assert code is grpc.StatusCode.INVALID_ARGUMENT and "no deadline" in text
            code, _text = await raw_call(endpoint, f"/{methods.SERVICE}/Reboot", 5)
            assert code is grpc.StatusCode.UNIMPLEMENTED

    run(scenario())


def test_a_handler_outside_the_table_is_closed_and_a_leaked_cancellation_is_answered() -> None:
    """Goal: the guard, not the handler, decides what is open and what a leak becomes."""

    async def scenario() -> None:
        async def open_by_mistake(_request: bytes, _context: object) -> bytes:
            return b"secret"

        async def leaks(_request: bytes, _context: object) -> bytes:
            raise asyncio.CancelledError

        mistake = grpc.method_handlers_generic_handler(
            "eslurm.v1.Other", {"Read": grpc.unary_unary_rpc_method_handler(open_by_mistake)}
        )
        leak = grpc.method_handlers_generic_handler(
            methods.SERVICE, {"Ping": grpc.unary_unary_rpc_method_handler(leaks)}
        )
        server = RpcServer([mistake, leak], Guard(TokenAuthenticator(KEYRING, "test", lambda: NOW_US)))
        endpoint = await server.listen("127.0.0.1:0")
        await server.start()
        code, _text = await raw_call(endpoint, "/eslurm.v1.Other/Read", 5)
        assert code is grpc.StatusCode.PERMISSION_DENIED
        code, text = await raw_call(endpoint, methods.PING.path, PATIENCE_S)
        assert code is grpc.StatusCode.UNAVAILABLE and "interrupted inside" in text
        await server.stop(0.5)

    run(scenario())


def test_over_tls_the_token_is_taken_and_a_stranger_is_not_trusted() -> None:
    async def scenario() -> None:
        trusted = grpc.ssl_channel_credentials(TLS_CERTIFICATE)
        authenticator = Authenticator()
        async with door(Service(), authenticator=authenticator) as plain, client(plain) as one:
            await one.call(methods.PING, pb.PingRequest(), PATIENCE_S)
        async with door(Service(), tls=True, authenticator=authenticator) as endpoint:
            async with client(endpoint, credentials=trusted) as one:
                assert (await one.call(methods.PING, pb.PingRequest(), PATIENCE_S)).cluster == "alice"
            assert authenticator.encrypted == [False, True]
            async with client(endpoint, credentials=grpc.ssl_channel_credentials()) as one:
                with pytest.raises(DoorUnreachable):
                    await one.call(methods.PING, pb.PingRequest(), 0.5)

    run(scenario())


def test_a_token_never_leaves_the_host_in_the_clear() -> None:
    for make in (GrpcClient, BlockingGrpcClient):
        with pytest.raises(ValueError, match="over TLS only"):
            make("192.0.2.1:6817", TOKEN)


def test_a_taken_port_is_named() -> None:
    async def scenario() -> None:
        async with door(Service()) as endpoint:
            server = RpcServer([], Guard())
            with pytest.raises(OSError, match=f"cannot listen at {endpoint}"):
                await server.listen(endpoint)
            await server.stop(0)

    run(scenario())
