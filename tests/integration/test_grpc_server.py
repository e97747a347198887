"""The gRPC door with its client: tokens, deadlines, statuses, retries, TLS. And the guard's refusals."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from eslurm.api import methods
from eslurm.api.authoriser import Authoriser
from eslurm.api.grpc_client import GrpcClient
from eslurm.api.grpc_server import door_handler
from eslurm.api.interceptor import Interceptor
from eslurm.api.server import RpcServer
from eslurm.api.tokens import Identified, TokenAuthenticator
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.ports.api import ApiError, ApiRefused, ApiUnreachable, Status
from eslurm.transport.options import DOOR_MESSAGE_BYTES_MAX
from eslurm.transport.tls import Tls
from eslurm.transport.tls_options import TlsFiles
from eslurm.v1 import controller_pb2 as pb
from tests.kits.api import ALICE, PATIENCE_S, Service, calls_ending, nobody_operates, until
from tests.kits.api_tokens import SITE, Office
from tests.support.certificates import KEPT, place, replace_file
from tests.support.loops import both_loops, run

NOW_US = 1000
OFFICE = Office()
TOKEN = OFFICE.token(NOW_US + 1, ALICE, "admin")
SHORT_S = 1.4


class Authenticator(TokenAuthenticator):
    """Remembers what it was told about the connections."""

    def __init__(self) -> None:
        super().__init__(lambda: SITE.ring, OFFICE.ledger, lambda: NOW_US)
        self.encrypted: list[bool] = []

    async def identify(self, metadata: Mapping[str, str], peer: str, *, encrypted: bool) -> Identified:
        self.encrypted.append(encrypted)
        return await super().identify(metadata, peer, encrypted=encrypted)


@asynccontextmanager
async def door(
    service: Service,
    *,
    tls: Tls | None = None,
    authenticator: Authenticator | None = None,
    links_only: bool = False,
) -> AsyncIterator[str]:
    authenticator = None if links_only else authenticator or Authenticator()
    gate = Authoriser(service, nobody_operates)
    handlers = [] if links_only else [door_handler(gate)]
    server = RpcServer(handlers, Interceptor(authenticator), message_bytes_max=DOOR_MESSAGE_BYTES_MAX)
    endpoint = await server.listen("127.0.0.1:0", tls)
    await server.start()
    try:
        yield endpoint
    finally:
        await server.stop(0.5)


class Calls:
    """A client, which blocks, called from the loop of its server."""

    def __init__(self, client: GrpcClient) -> None:
        self._client = client

    async def call(self, *words: Any) -> Any:
        return await asyncio.to_thread(self._client.call, *words)


@asynccontextmanager
async def client(endpoint: str, token: str = TOKEN, tls: Tls | None = None) -> AsyncIterator[Calls]:
    with GrpcClient(endpoint, token, tls) as one:
        yield Calls(one)
    await until(lambda: not calls_ending())


@both_loops
def test_a_token_says_who_calls(uvloop: bool) -> None:
    async def scenario() -> None:
        async with door(service := Service()) as endpoint, client(endpoint) as one:
            reply = await one.call(methods.PING, pb.PingRequest(), PATIENCE_S)
            assert (reply.cluster, reply.now_us) == ("alice", 4001)
            _name, caller = service.calls[0]
            assert (caller.via, caller.principal.via, caller.retry) == ("token", "token", False)
            assert (caller.token, caller.principal.scope) == ("00" * 15 + "01", "admin")
            # gRPC rounds time-outs up on their way.
            assert caller.deadline_us is not None and 0 < caller.deadline_us <= PATIENCE_S * 1.1e6

    run(scenario(), uvloop=uvloop)


def test_unavailable_is_retried_with_the_same_request_id() -> None:
    async def scenario() -> None:
        async with door(service := Service()) as endpoint, client(endpoint) as one:

            def fail() -> None:
                raise ApiError(Status.UNAVAILABLE, "not yet")

            service.misbehave = [fail]
            reply = await one.call(methods.SUBMIT, pb.SubmitRequest(), PATIENCE_S)
            assert reply.job_ids == [1]
            first, second = (caller for _name, caller in service.calls)
            assert first.request_id == second.request_id and len(service.effects) == 1
            assert (first.retry, second.retry) == (False, True)

    run(scenario())


@pytest.mark.parametrize("token", ["", "es2.AAAA", OFFICE.token(NOW_US)])
def test_without_a_valid_token_nothing_is_open(token: str) -> None:
    async def scenario() -> None:
        async with door(service := Service()) as endpoint, client(endpoint, token) as one:
            with pytest.raises(ApiRefused) as refused:
                await one.call(methods.PING, pb.PingRequest(), PATIENCE_S)
            assert refused.value.status is Status.UNAUTHENTICATED
            assert not service.calls

    run(scenario())


def test_a_server_of_links_takes_no_calls() -> None:
    async def scenario() -> None:
        async with door(Service(), links_only=True) as endpoint, client(endpoint) as one:
            with pytest.raises(ApiRefused, match="takes links only: name the port of a controller"):
                await one.call(methods.PING, pb.PingRequest(), PATIENCE_S)

    run(scenario())


def test_refusals_and_bugs_arrive_as_statuses() -> None:
    async def scenario() -> None:
        async with door(service := Service()) as endpoint, client(endpoint) as one:
            for error, status in (
                (Refused(RefusalCode.INFEASIBLE, "no node has 900 cores"), Status.INVALID_ARGUMENT),
                (Refused(RefusalCode.EXHAUSTED, "too many jobs"), Status.RESOURCE_EXHAUSTED),
                (ApiError(Status.ABORTED, "stale"), Status.ABORTED),
                (KeyError("secret"), Status.INTERNAL),
            ):
                service.misbehave = [lambda error=error: (_ for _ in ()).throw(error)]
                with pytest.raises(ApiRefused) as refused:
                    await one.call(methods.PING, pb.PingRequest(), PATIENCE_S)
                assert refused.value.status is status
                assert "secret" not in refused.value.text

    run(scenario())


def test_the_deadline_holds_and_cancels_the_handler() -> None:
    async def scenario() -> None:
        async with door(service := Service()) as endpoint, client(endpoint) as one:
            await one.call(methods.PING, pb.PingRequest(), PATIENCE_S)
            service.hold = True
            with pytest.raises(ApiUnreachable, match="may have taken effect"):
                await one.call(methods.SUBMIT, pb.SubmitRequest(), 1.0)
            await until(lambda: service.cancelled == 1)

    run(scenario())


def test_nobody_there_is_told_when_the_time_is_over() -> None:
    async def scenario() -> None:
        async with client("127.0.0.1:1") as one:
            with pytest.raises(ApiUnreachable, match="is a controller running there"):
                await one.call(methods.PING, pb.PingRequest(), SHORT_S)

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
            code, _text = await raw_call(endpoint, f"/{methods.SERVICE}/Reboot", PATIENCE_S)
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
            "eslurm.v1.Other", {"Read": grpc.stream_unary_rpc_method_handler(open_by_mistake)}
        )
        leak = grpc.method_handlers_generic_handler(
            methods.SERVICE, {"Ping": grpc.stream_unary_rpc_method_handler(leaks)}
        )
        server = RpcServer([mistake, leak], Interceptor(OFFICE.authenticator(lambda: NOW_US)))
        endpoint = await server.listen("127.0.0.1:0")
        await server.start()
        code, _text = await raw_call(endpoint, "/eslurm.v1.Other/Read", PATIENCE_S)
        assert code is grpc.StatusCode.PERMISSION_DENIED
        code, text = await raw_call(endpoint, methods.PING.path, PATIENCE_S)
        assert code is grpc.StatusCode.UNAVAILABLE and "interrupted inside" in text
        await server.stop(0.5)

    run(scenario())


def test_over_tls_the_token_is_taken(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = place(tmp_path)
        trusting = Tls(TlsFiles(files.ca))
        authenticator = Authenticator()
        async with door(Service(), authenticator=authenticator) as plain, client(plain) as one:
            await one.call(methods.PING, pb.PingRequest(), PATIENCE_S)
        async with door(Service(), tls=Tls(files), authenticator=authenticator) as endpoint:
            async with client(endpoint, tls=trusting) as one:
                assert (await one.call(methods.PING, pb.PingRequest(), PATIENCE_S)).cluster == "alice"
            assert authenticator.encrypted == [False, True]

    run(scenario())


@pytest.mark.parametrize(
    ("pair", "ca", "words"),
    [
        ("server", "other-ca", "certificate there is not trusted"),
        ("elsewhere", "ca", "for other names"),
    ],
)
def test_a_door_that_is_not_trusted_is_told_of_at_once(
    tmp_path: Path, pair: str, ca: str, words: str
) -> None:
    async def scenario() -> None:
        stranger = Tls(TlsFiles(KEPT / f"{ca}.pem"))
        tls = Tls(place(tmp_path, pair))
        async with door(Service(), tls=tls) as endpoint, client(endpoint, tls=stranger) as one:
            # Not after trying for as long as the call may take.
            with pytest.raises(ApiUnreachable, match=f"^{endpoint}: .*{words}") as error:
                await one.call(methods.PING, pb.PingRequest(), 3600)
            assert not error.value.maybe_done

    run(scenario())


def test_a_name_that_all_certificates_have_stands_for_the_host(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = place(tmp_path, "named", name="eslurm.test")
        trusting = Tls(TlsFiles(files.ca, name="eslurm.test"))
        async with door(Service(), tls=Tls(files)) as endpoint, client(endpoint, tls=trusting) as one:
            assert (await one.call(methods.PING, pb.PingRequest(), PATIENCE_S)).cluster == "alice"

    run(scenario())


def test_tls_on_one_side_only_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = place(tmp_path)
        async with door(Service(), tls=Tls(files)) as endpoint, client(endpoint) as one:
            with pytest.raises(ApiUnreachable, match="if it speaks TLS, give its authority's certificate"):
                await one.call(methods.PING, pb.PingRequest(), SHORT_S)
        async with door(Service()) as endpoint, client(endpoint, tls=Tls(TlsFiles(files.ca))) as one:
            with pytest.raises(ApiUnreachable, match="no TLS is spoken there"):
                await one.call(methods.PING, pb.PingRequest(), 3600)

    run(scenario())


def test_a_client_shows_its_certificate_where_one_is_required(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = place(tmp_path, required=True)
        async with door(Service(), tls=Tls(files)) as endpoint:
            async with client(endpoint, tls=Tls(TlsFiles(files.ca))) as one:
                with pytest.raises(ApiUnreachable, match="one of yours if it requires that"):
                    await one.call(methods.PING, pb.PingRequest(), SHORT_S)
            async with client(endpoint, tls=Tls(files)) as one:
                assert (await one.call(methods.PING, pb.PingRequest(), PATIENCE_S)).cluster == "alice"

    run(scenario())


def test_a_client_takes_other_authorities_without_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = [0.0]
        files = place(tmp_path, ca="other-ca")
        # Files that are a while old by then.
        tls = Tls(TlsFiles(files.ca), wall_s=lambda: time.time() + 60, clock_s=lambda: clock[0])
        (tmp_path / "door").mkdir()
        async with (
            door(Service(), tls=Tls(place(tmp_path / "door"))) as endpoint,
            client(endpoint, tls=tls) as one,
        ):
            with pytest.raises(ApiUnreachable, match="not trusted"):
                await one.call(methods.PING, pb.PingRequest(), PATIENCE_S)
            replace_file(files.ca, (KEPT / "ca.pem").read_bytes())
            clock[0] += 60
            assert (await one.call(methods.PING, pb.PingRequest(), PATIENCE_S)).cluster == "alice"

    run(scenario())


def test_a_token_never_leaves_the_host_in_the_clear() -> None:
    with pytest.raises(ValueError, match="over TLS only"):
        GrpcClient("192.0.2.1:6817", TOKEN)


def test_a_taken_port_is_named() -> None:
    async def scenario() -> None:
        async with door(Service()) as endpoint:
            server = RpcServer([], Interceptor())
            with pytest.raises(OSError, match=f"cannot listen at {endpoint}"):
                await server.listen(endpoint)
            await server.stop(0)

    run(scenario())
