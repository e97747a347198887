"""The client of remote commands: which of several controllers, how often, and what each kind of misfit is called.

Method: real gRPC servers in the test's own loop; the client, which blocks, in a thread.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import grpc
import pytest

from eslurm.api import methods
from eslurm.api.authoriser import Authoriser
from eslurm.api.client import Lost
from eslurm.api.grpc_client import REQUEST_BYTES_MAX, GrpcClient
from eslurm.api.grpc_server import door_handler
from eslurm.api.interceptor import Interceptor
from eslurm.api.server import RpcServer
from eslurm.ports.api import ApiError, ApiRefused, ApiUnreachable, Status
from eslurm.transport.tls import Tls
from eslurm.transport.tls_options import TlsFiles
from eslurm.v1 import controller_pb2 as pb
from tests.integration.test_grpc_server import TOKEN, Authenticator, door
from tests.kits.api import PATIENCE_S, REQUEST_ID, Service, nobody_operates
from tests.support.certificates import KEPT, place
from tests.support.loops import run
from tests.support.ports import free_port

FOR_EVER_S = 3600.0
"""Far longer than a test may take: who waited for its end would be seen."""


def absent() -> str:
    return f"127.0.0.1:{free_port()}"


def unavailable() -> None:
    raise ApiError(Status.UNAVAILABLE, "the controller stops: try again in a moment")


def submit(client: GrpcClient, timeout_s: float = FOR_EVER_S) -> list[int]:
    return list(client.call(methods.SUBMIT, pb.SubmitRequest(), timeout_s, REQUEST_ID).job_ids)


def ask(client: GrpcClient, timeout_s: float = FOR_EVER_S) -> pb.PingReply:
    reply: pb.PingReply = client.call(methods.PING, pb.PingRequest(), timeout_s)
    return reply


def in_thread(work: Callable[[GrpcClient], Any], *words: Any, **more: Any) -> Any:
    """Call `work` with a client that lives in a thread only; the result is that of `work`."""

    def call() -> Any:
        with GrpcClient(*words, **more) as client:
            return work(client)

    return asyncio.to_thread(call)


def test_the_next_controller_is_tried() -> None:
    async def scenario() -> None:
        async with door(service := Service()) as endpoint:

            def work(client: GrpcClient) -> None:
                assert submit(client) == [1]
                assert client.path == endpoint
                assert submit(client) == [1]

            await in_thread(work, [absent(), endpoint], TOKEN, patience_s=FOR_EVER_S)
            assert [caller.retry for _name, caller in service.calls] == [False, False]

    run(scenario())


def test_one_that_hands_over_sends_us_on_with_the_same_request() -> None:
    async def scenario() -> None:
        before, after = Service(misbehave=[unavailable]), Service()
        async with door(before) as first, door(after) as second:
            assert await in_thread(submit, [first, second], TOKEN) == [1]
        (_name, one), (_name, other) = before.calls + after.calls
        assert one.request_id == other.request_id == REQUEST_ID
        assert (one.retry, other.retry) == (False, True)

    run(scenario())


def test_one_that_dies_with_the_call_in_its_hands_is_followed_by_another() -> None:
    async def scenario() -> None:
        dying, after = Service(hold=True), Service()
        async with door(after) as second:
            async with door(dying) as first:
                calling = asyncio.create_task(in_thread(submit, [first, second], TOKEN))
                await dying.entered.wait()
            assert await calling == [1]
        assert [caller.retry for _name, caller in after.calls] == [True]

    run(scenario())


def test_one_that_falls_silent_is_left_for_one_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes connections in the name of a stopped process, and nobody ever answers."""
    monkeypatch.setattr(GrpcClient, "silence_s", 0.05)
    lives = [True, False]

    async def scenario() -> None:
        silent, after = Service(hold=True), Service()
        async with door(silent) as first, door(after) as second:
            # The other one may be slow enough to be asked as well.
            monkeypatch.setattr(GrpcClient, "_answers", lambda _client, door: door == second or lives.pop(0))
            assert await in_thread(submit, [first, second], TOKEN) == [1]
            assert lives == []
            silent.gate_open.set()

    run(scenario())


def test_whether_a_controller_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GrpcClient, "ping_s", PATIENCE_S)

    async def scenario() -> None:
        def answers(client: GrpcClient) -> bool:
            return client._answers(client.path)

        async with door(Service()) as endpoint:
            assert await in_thread(answers, endpoint, TOKEN)
            # One that does not know us lives as well.
            assert await in_thread(answers, endpoint, "es1.AAAA")
        monkeypatch.setattr(GrpcClient, "ping_s", 0.1)
        with closing(socket.create_server(("127.0.0.1", 0))) as silent:
            port = silent.getsockname()[1]
            assert not await in_thread(answers, f"127.0.0.1:{port}", TOKEN)

    run(scenario())


def test_all_are_named_when_none_is_there() -> None:
    endpoints = [absent(), absent()]
    with (
        GrpcClient(endpoints, TOKEN, patience_s=0.0) as client,
        pytest.raises(ApiUnreachable) as unreachable,
    ):
        submit(client)
    text = str(unreachable.value)
    assert text.startswith(f"{endpoints[0]}, {endpoints[1]}: Connection refused (tried for ")
    assert text.endswith("is a controller running there, and is this its port?")
    assert not unreachable.value.maybe_done and not unreachable.value.is_final


class Ended(Exception):
    """A call's end in gRPC's words."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return self._text

    def trailing_metadata(self) -> tuple[()]:
        return ()


NOT_CONNECTED = "failed to connect to all addresses; last error: "


@pytest.mark.parametrize(
    ("said", "told", "sent", "is_final"),
    [
        (
            f"{NOT_CONNECTED}UNKNOWN: ipv4:192.0.2.1:1: Failed to connect to remote host: No route to host",
            "No route to host",
            False,
            False,
        ),
        (
            f"{NOT_CONNECTED}UNKNOWN: ipv6:%5B::1%5D:1: connection attempt timed out before receiving SETTINGS frame",
            "no answer",
            False,
            False,
        ),
        (
            f"{NOT_CONNECTED}UNAVAILABLE: ipv4:127.0.0.1:1: Socket closed",
            "Socket closed (if it speaks TLS, give its authority's certificate, and one of yours if it requires that)",
            False,
            False,
        ),
        (
            "errors resolving ctl1:1: [field:hostname lookup error:address lookup failed for ctl1:1: Domain name not found]",
            "Domain name not found",
            False,
            True,
        ),
        ("keepalive watchdog timeout", "keepalive watchdog timeout", True, False),
    ],
)
def test_what_grpc_says_of_a_connection(said: str, told: str, sent: bool, is_final: bool) -> None:
    with GrpcClient("127.0.0.1:1", TOKEN) as client, pytest.raises(Lost) as lost:
        client._refusal(Ended(said))
    assert (str(lost.value), lost.value.sent, lost.value.is_final) == (told, sent, is_final)


def test_one_name_that_is_not_known_leaves_hope_for_the_others() -> None:
    said = "errors resolving ctl2:1: [field:hostname lookup error:address lookup failed for ctl2:1: Domain name not found]"
    with GrpcClient(["127.0.0.1:1", "127.0.0.1:2"], TOKEN) as client, pytest.raises(Lost) as lost:
        client._refusal(Ended(said))
    assert str(lost.value) == "Domain name not found" and not lost.value.is_final


@pytest.mark.parametrize(
    ("pair", "ca", "words"),
    [
        (
            "server",
            "other-ca",
            "the certificate there is not trusted (unable to get local issuer certificate)",
        ),
        ("elsewhere", "ca", "the certificate there is for other names"),
        ("", "ca", "no TLS is spoken there"),
    ],
)
def test_what_does_not_fit_is_told_at_once_though_standbys_are_closed(
    tmp_path: Path, pair: str, ca: str, words: str
) -> None:
    async def scenario() -> None:
        tls = Tls(place(tmp_path, pair)) if pair else None
        async with door(Service(), tls=tls) as endpoint:
            trusting = Tls(TlsFiles(KEPT / f"{ca}.pem"))
            with pytest.raises(ApiUnreachable) as unreachable:
                await in_thread(submit, [endpoint, absent()], TOKEN, trusting, patience_s=FOR_EVER_S)
            assert str(unreachable.value).startswith(f"{endpoint}: {words}")
            assert unreachable.value.is_final and not unreachable.value.maybe_done

    run(scenario())


def test_a_call_that_is_not_answered_may_have_taken_effect() -> None:
    async def scenario() -> None:
        service = Service(hold=True)
        async with door(service) as endpoint:

            def work(client: GrpcClient) -> None:
                ask(client)
                service.hold = True
                with pytest.raises(ApiUnreachable, match="no answer in time") as unreachable:
                    submit(client, 0.5)
                assert unreachable.value.maybe_done

            service.hold = False
            await in_thread(work, endpoint, TOKEN)

    run(scenario())


class Queue:
    """A `ApiService` with a long answer."""

    async def call(self, _method: Any, _request: Any, _caller: Any) -> Any:
        return pb.JobsReply(jobs=[pb.JobInfo(job_id=1, work_dir="x" * 2 * REQUEST_BYTES_MAX)])


@asynccontextmanager
async def controllers_door(service: Any) -> AsyncIterator[str]:
    """As a controller opens it."""
    server = RpcServer([door_handler(Authoriser(service, nobody_operates))], Interceptor(Authenticator()))
    endpoint = await server.listen("127.0.0.1:0")
    await server.start()
    try:
        yield endpoint
    finally:
        await server.stop(0.5)


def test_a_long_queue_arrives_and_a_huge_request_is_refused_in_words() -> None:
    async def scenario() -> None:
        async with controllers_door(Queue()) as endpoint:

            def work(client: GrpcClient) -> None:
                reply = client.call(methods.JOBS, pb.JobsRequest(), PATIENCE_S)
                assert len(reply.jobs[0].work_dir) == 2 * REQUEST_BYTES_MAX
                large = pb.SubmitRequest(jobs=[pb.JobRequest(script=b"#" * REQUEST_BYTES_MAX)])
                with pytest.raises(ApiRefused, match="from another host at most") as refused:
                    client.call(methods.SUBMIT, large, PATIENCE_S)
                assert refused.value.status is Status.RESOURCE_EXHAUSTED

            await in_thread(work, endpoint, TOKEN)

    run(scenario())


def test_another_thread_ends_a_call() -> None:
    async def scenario() -> None:
        async with door(service := Service(hold=True)) as endpoint:
            with GrpcClient(endpoint, TOKEN) as client:
                call = asyncio.create_task(asyncio.to_thread(ask, client))
                await service.entered.wait()
                client.abort()
                with pytest.raises((ApiUnreachable, ApiRefused)):
                    await call

    run(scenario())
