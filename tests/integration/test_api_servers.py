"""The Unix door and its blocking client, on a real socket: who calls, retries, deadlines, garbage, bounds."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.api import methods
from eslurm.api.authoriser import Authoriser
from eslurm.api.principals import Principals, look_up
from eslurm.api.unix_client import Client
from eslurm.api.unix_server import UnixServer, UnixServerSettings
from eslurm.core.model.job import Principal
from eslurm.ports.api import ApiError, ApiRefused, ApiUnreachable, Status
from eslurm.transport.framing import NO_REQUEST_ID, REPLY_HEADER, REQUEST_HEADER, VERSION
from eslurm.v1 import controller_pb2 as pb
from tests.kits.api import PATIENCE_S, REQUEST_ID, Service, anyone_operates, until
from tests.support.loops import both_loops, run

ROOT = Path(__file__).parents[2]
Reply = tuple[int, Status, bytes]


def me(uid: int, gid: int) -> Principal:
    return Principal("me", uid, gid, (gid,))


@asynccontextmanager
async def door(
    service: Service,
    bounds: UnixServerSettings | None = None,
    lookup: Callable[[int, int], Principal] = me,
    path: Path | None = None,
) -> AsyncIterator[UnixServer]:
    with tempfile.TemporaryDirectory() as directory:
        principals = Principals(lookup=lookup)
        one = UnixServer(
            path or Path(directory, "run", "door"), Authoriser(service, anyone_operates), principals, bounds
        )
        await one.start()
        try:
            yield one
        finally:
            await one.stop()
            principals.close()


class Raw:
    """A connection that speaks frames by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def ask(
        self,
        stream: int,
        number: int = 1,
        body: bytes = b"",
        deadline_ms: int = 20_000,
        version: int = VERSION,
    ) -> None:
        request_id = REQUEST_ID if number == methods.SUBMIT.number else NO_REQUEST_ID
        header = REQUEST_HEADER.pack(len(body), version, 0, number, stream, deadline_ms, request_id)
        self.writer.write(header + body)

    async def reply(self) -> Reply:
        async with asyncio.timeout(PATIENCE_S):
            length, _version, status, _reserved, stream = REPLY_HEADER.unpack(
                await self.reader.readexactly(REPLY_HEADER.size)
            )
            return stream, Status(status), await self.reader.readexactly(length)

    async def ended(self) -> bool:
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read() == b""


@asynccontextmanager
async def raw(one: UnixServer) -> AsyncIterator[Raw]:
    reader, writer = await asyncio.open_unix_connection(str(one.path))
    try:
        yield Raw(reader, writer)
    finally:
        writer.close()
        try:
            await writer.wait_closed()
        except OSError:
            # The server closed it with our bytes unread, as the test wanted.
            return


async def ping(one: UnixServer) -> pb.PingReply:
    with Client(one.path) as client:
        return await asyncio.to_thread(client.call, methods.PING, pb.PingRequest(), PATIENCE_S)


@both_loops
def test_the_kernel_says_who_calls(uvloop: bool) -> None:
    async def scenario() -> None:
        async with door(service := Service(), lookup=look_up) as one:
            assert (await ping(one)).now_us == os.getuid()
            name, caller = service.calls[0]
            assert name == "Ping" and caller.via == "socket" and not caller.retry
            assert (caller.principal.uid, caller.principal.gid) == (os.getuid(), os.getgid())
            assert os.getgid() in caller.principal.groups
            assert caller.deadline_us is not None and 0 < caller.deadline_us <= PATIENCE_S * 1e6

    run(scenario(), uvloop=uvloop)


def test_an_unknown_uid_gets_its_number_for_a_name() -> None:
    assert look_up(987_654, 987_655) == Principal("987654", 987_654, 987_655, (987_655,))


def test_names_are_looked_up_once_and_outside_the_loop() -> None:
    async def scenario() -> None:
        asked: list[bool] = []

        def slow(uid: int, gid: int) -> Principal:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                asked.append(True)
            return me(uid, gid)

        async with door(Service(), lookup=slow) as one:
            await asyncio.gather(*(ping(one) for _ in range(4)))
            assert asked == [True]

    run(scenario())


def test_a_name_is_known_as_soon_as_its_lookup_is_over() -> None:
    """A call that comes at that very moment does not ask again."""

    async def scenario() -> None:
        over = threading.Event()

        def slow(uid: int, gid: int) -> Principal:
            over.wait(PATIENCE_S)
            return me(uid, gid)

        principals = Principals(lookup=slow)
        try:
            first = asyncio.ensure_future(principals.resolve(1, 2))
            await until(lambda: bool(principals._asking))
            known: list[Principal | None] = []
            principals._asking[1, 2].add_done_callback(lambda _: known.append(principals.cached(1, 2)))
            over.set()
            assert await first == me(1, 2)
            assert known == [me(1, 2)]
        finally:
            principals.close()

    run(scenario())


def test_a_failing_name_service_refuses_instead_of_guessing() -> None:
    async def scenario() -> None:
        def broken(_uid: int, _gid: int) -> Principal:
            raise ApiError(Status.UNAVAILABLE, "the directory is down")

        async with door(service := Service(), lookup=broken) as one, raw(one) as connection:
            stream, status, text = await connection.reply()
            assert (stream, status) == (0, Status.UNAVAILABLE) and b"could not be looked up" in text
            assert await connection.ended()
            assert not service.calls

    run(scenario())


@both_loops
def test_many_streams_share_a_connection_and_answers_overtake(uvloop: bool) -> None:
    async def scenario() -> None:
        async with door(service := Service()) as one, raw(one) as connection:
            service.misbehave = [service.gate_open.wait]
            for stream in range(1, 51):
                connection.ask(stream)
            order = [(await connection.reply())[0] for _ in range(49)]
            assert order == list(range(2, 51))
            service.gate_open.set()
            assert (await connection.reply())[0] == 1

    run(scenario(), uvloop=uvloop)


def test_a_frame_may_come_byte_by_byte() -> None:
    async def scenario() -> None:
        async with door(Service()) as one, raw(one) as connection:
            body = pb.JobsRequest(user="ann").SerializeToString()
            header = REQUEST_HEADER.pack(len(body), VERSION, 0, methods.JOBS.number, 7, 20_000, NO_REQUEST_ID)
            for byte in header + body:
                connection.writer.write(bytes([byte]))
                await connection.writer.drain()
                await asyncio.sleep(0)
            assert (await connection.reply())[:2] == (7, Status.OK)

    run(scenario())


@pytest.mark.parametrize(
    ("ask", "status", "text"),
    [
        ({"number": 999}, Status.UNIMPLEMENTED, b"knows no method 999"),
        ({"deadline_ms": 0}, Status.INVALID_ARGUMENT, b"Ping needs a deadline"),
        ({"number": 2, "body": b"\xff\xff"}, Status.INVALID_ARGUMENT, b"cannot be decoded"),
    ],
)
def test_a_wrong_call_is_refused_and_the_connection_stays(
    ask: dict[str, Any], status: Status, text: bytes
) -> None:
    async def scenario() -> None:
        async with door(Service()) as one, raw(one) as connection:
            connection.ask(1, **ask)
            stream, got, said = await connection.reply()
            assert (stream, got) == (1, status) and text in said
            connection.ask(2)
            assert (await connection.reply())[:2] == (2, Status.OK)

    run(scenario())


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        ([(1, {"version": 9})], b"of version 9; this server speaks version 1"),
        ([(1, {"body": bytes(2000)})], b"a request of 2000 bytes; at most 1000"),
        ([(0, {})], b"stream 0 is in use"),
        ([(5, {}), (5, {})], b"stream 5 is in use"),
    ],
)
def test_a_broken_frame_ends_its_connection_with_a_reason_and_no_other(
    frames: list[tuple[int, dict[str, Any]]], text: bytes
) -> None:
    async def scenario() -> None:
        async with (
            door(Service(), UnixServerSettings(request_bytes_max=1000)) as one,
            raw(one) as other,
            raw(one) as connection,
        ):
            for stream, ask in frames:
                connection.ask(stream, **ask)
            stream, status, said = await connection.reply()
            assert (stream, status) == (0, Status.INVALID_ARGUMENT) and text in said
            assert await connection.ended()
            other.ask(1)
            assert (await other.reply())[:2] == (1, Status.OK)
            assert one.counters.broken_frames == 1

    run(scenario())


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=80), max_size=6), st.booleans())
def test_no_garbage_harms_the_door(pieces: list[bytes], versioned: bool) -> None:
    async def scenario() -> None:
        async with door(Service(), UnixServerSettings(request_bytes_max=5000)) as one:
            async with raw(one) as connection:
                for piece in pieces:
                    # Half of the garbage gets past the first check.
                    connection.writer.write(bytes(4) + bytes([VERSION]) + piece if versioned else piece)
            assert (await ping(one)).cluster == "me"

    run(scenario())


def test_truncated_frames_and_lost_clients_leave_nothing() -> None:
    async def scenario() -> None:
        async with door(service := Service(hold=True)) as one:
            async with raw(one) as connection:
                connection.ask(1)
                connection.writer.write(
                    REQUEST_HEADER.pack(500, VERSION, 0, 1, 2, 100, NO_REQUEST_ID) + b"half"
                )
                await asyncio.wait_for(service.entered.wait(), PATIENCE_S)
            # A call that is given up ends in a turn of the loop of its own, after its connection has gone.
            await until(lambda: not one.connections and not one.tasks)
            assert service.cancelled == 1
            assert (one.calls.taken, one.places.by_user) == (0, {})

    run(scenario())


@both_loops
def test_a_call_that_takes_too_long_is_answered_at_its_deadline(uvloop: bool) -> None:
    async def scenario() -> None:
        async with door(service := Service(hold=True)) as one, raw(one) as connection:
            # Long enough for the call to begin before it.
            connection.ask(1, deadline_ms=300)
            stream, status, text = await connection.reply()
            assert (stream, status) == (1, Status.DEADLINE_EXCEEDED) and b"deadline passed" in text
            await until(lambda: service.cancelled == 1)
            connection.ask(1)
            service.gate_open.set()
            assert (await connection.reply())[:2] == (1, Status.OK), "the stream is free again"

    run(scenario(), uvloop=uvloop)


def test_calls_and_connections_are_bounded() -> None:
    async def scenario() -> None:
        bounds = UnixServerSettings(calls_per_connection_max=2, connections_per_uid_max=2)
        async with (
            door(service := Service(hold=True), bounds) as one,
            raw(one) as connection,
            raw(one),
        ):
            for stream in (1, 2, 3):
                connection.ask(stream)
            assert (await connection.reply())[:2] == (3, Status.RESOURCE_EXHAUSTED)
            async with raw(one) as third:
                stream, status, text = await third.reply()
                assert (stream, status) == (0, Status.UNAVAILABLE) and b"too many connections" in text
                assert await third.ended()
            service.gate_open.set()
            assert {(await connection.reply())[:2] for _ in range(2)} == {(1, Status.OK), (2, Status.OK)}

    run(scenario())


def test_the_socket_is_open_to_all_and_gone_after_the_stop() -> None:
    async def scenario() -> None:
        async with door(Service()) as one:
            mode = one.path.stat().st_mode
            assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o666
            assert stat.S_IMODE(one.path.parent.stat().st_mode) & 0o005 == 0o005
            path = one.path
        assert not path.exists()

    run(scenario())


def test_a_dead_socket_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "door"
        with closing(socket.socket(socket.AF_UNIX)) as dead:
            dead.bind(str(path))
        async with door(Service(), path=path) as one:
            assert (await ping(one)).cluster == "me"
            with pytest.raises(OSError, match="another process serves"):
                async with door(Service(), path=path):
                    pass
            assert (await ping(one)).cluster == "me"
        path.write_text("a file")
        with pytest.raises(OSError, match="is not a socket"):
            async with door(Service(), path=path):
                pass
        with pytest.raises(OSError, match="cannot listen at"):
            async with door(Service(), path=tmp_path / ("x" * 120)):
                pass

    run(scenario())


# ---- the blocking client ----


async def submit(one: UnixServer, timeout_s: float = PATIENCE_S, patience_s: float = 2.0) -> pb.SubmitReply:
    with Client(one.path, patience_s) as client:
        return await asyncio.to_thread(client.call, methods.SUBMIT, pb.SubmitRequest(), timeout_s, REQUEST_ID)


def test_a_lost_connection_is_retried_with_the_same_request_id() -> None:
    """Goal: at most one effect. Method: the door drops the connection after the effect, before the answer."""

    async def scenario() -> None:
        async with door(service := Service()) as one:

            def lose() -> None:
                for connection in list(one.connections):
                    connection.abort()

            service.misbehave = [lose, lose]
            assert (await submit(one)).job_ids == [1]
            assert [(caller.request_id, caller.retry) for _name, caller in service.calls] == [
                (REQUEST_ID, False),
                (REQUEST_ID, True),
                (REQUEST_ID, True),
            ]
            assert service.effects == {REQUEST_ID: 1}

    run(scenario())


def refuse(status: Status, retry_after_s: float = 0.0) -> Callable[[], None]:
    def fail() -> None:
        raise ApiError(status, "says the service", retry_after_s)

    return fail


def test_unavailable_is_retried_and_other_refusals_are_not() -> None:
    async def scenario() -> None:
        async with door(service := Service()) as one:
            service.misbehave = [refuse(Status.UNAVAILABLE), refuse(Status.UNAVAILABLE)]
            assert (await submit(one)).job_ids == [1]
            assert len(service.calls) == 3
            service.misbehave = [refuse(Status.NOT_FOUND)]
            with pytest.raises(ApiRefused, match=r"says the service \(NOT_FOUND\)") as refused:
                await submit(one)
            assert (refused.value.status, refused.value.maybe_done) == (Status.NOT_FOUND, False)
            service.calls.clear()
            # Three times at once, and then not before the time is over.
            service.misbehave = [refuse(Status.UNAVAILABLE)] * 3 + [refuse(Status.UNAVAILABLE, 600.0)]
            with pytest.raises(ApiRefused, match="UNAVAILABLE"):
                await submit(one)
            assert len(service.calls) == 4

    run(scenario())


def test_the_deadline_holds_and_says_that_the_effect_is_unknown() -> None:
    async def scenario() -> None:
        async with door(service := Service()) as one:

            def work() -> None:
                with Client(one.path) as client:
                    # Connected before: the call itself is on its way at once.
                    client.call(methods.PING, pb.PingRequest(), PATIENCE_S)
                    service.hold = True
                    client.call(methods.SUBMIT, pb.SubmitRequest(), 0.3)

            with pytest.raises(ApiUnreachable, match="may have taken effect") as unreachable:
                await asyncio.to_thread(work)
            assert unreachable.value.maybe_done

    run(scenario())


def test_no_door_is_told_with_the_path_and_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "door"
    with (
        Client(path, patience_s=0.05) as client,
        pytest.raises(ApiUnreachable, match="is the daemon running on this host") as unreachable,
    ):
        client.call(methods.PING, pb.PingRequest(), 10)
    assert str(path) in str(unreachable.value) and not unreachable.value.maybe_done
    path.write_text("no socket")
    path.chmod(0o444)
    with Client(tmp_path / "door" / "below") as client, pytest.raises(ApiUnreachable, match="may you enter"):
        client.call(methods.PING, pb.PingRequest(), 10)


def test_a_door_that_opens_late_is_found_by_a_patient_client(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "door"
        with Client(path, patience_s=PATIENCE_S) as client:
            asked = asyncio.create_task(
                asyncio.to_thread(client.call, methods.PING, pb.PingRequest(), PATIENCE_S)
            )
            await asyncio.sleep(0)
            async with door(Service(), path=path):
                assert (await asked).cluster == "me"

    run(scenario())


def test_one_client_makes_many_calls_on_one_connection_also_large_ones() -> None:
    async def scenario() -> None:
        async with door(service := Service()) as one:
            with Client(one.path) as client:
                for _ in range(3):
                    await asyncio.to_thread(client.call, methods.PING, pb.PingRequest(), PATIENCE_S)
                large = pb.SubmitRequest(jobs=[pb.JobRequest(script=b"#" * 3_000_000)])
                await asyncio.to_thread(client.call, methods.SUBMIT, large, PATIENCE_S)
            assert one.counters.connections == 1
            assert all(len(caller.request_id) == 16 for name, caller in service.calls if name == "Submit")

    run(scenario())


def test_an_oversized_request_is_refused_in_words() -> None:
    async def scenario() -> None:
        async with door(Service(), UnixServerSettings(request_bytes_max=1000)) as one:
            with Client(one.path) as client, pytest.raises(ApiRefused, match="at most 1000 are taken"):
                large = pb.SubmitRequest(jobs=[pb.JobRequest(script=b"#" * 3_000_000)])
                await asyncio.to_thread(client.call, methods.SUBMIT, large, PATIENCE_S)

    run(scenario())


def test_a_request_id_of_another_length_is_refused_at_once(tmp_path: Path) -> None:
    with Client(tmp_path / "door") as client, pytest.raises(ValueError, match="16 bytes, not 3"):
        client.call(methods.PING, pb.PingRequest(), 1, b"abc")


def test_the_client_imports_nothing_heavy() -> None:
    code = (
        "import sys, eslurm.api.unix_client\n"
        "print(*{'grpc', 'asyncio', 'click', 'msgspec', 'uvloop', 'logging', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
