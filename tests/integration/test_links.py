"""Links between real gRPC endpoints on loopback: order, sharing of frames, refusals, loss, bulk, closing."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import grpc.aio
import pytest

from eslurm.api.interceptor import Interceptor
from eslurm.api.server import RpcServer
from eslurm.links.dial import BULK_METHOD, CONTROL_METHOD
from eslurm.links.hello import Handshake, LocalPeer, first_frame
from eslurm.ports.link import Link, LinkClosed, LinkRefused, LinkUnreachable
from eslurm.security.credentials import Credentials
from eslurm.security.membership import Identity
from eslurm.transport.options import LinkSettings, TableSettings
from eslurm.v1 import link_pb2
from tests.kits.api import PATIENCE_S, SITE, linked, process, report, until
from tests.support.loops import both_loops, run
from tests.support.ports import free_port
from tests.support.trust import Site

ROOT = Path(__file__).parents[2]


@both_loops
def test_ten_thousand_items_arrive_in_order_and_share_frames(uvloop: bool) -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a, process("b") as b:
            link = await b.table.get(a.endpoint)
            for number in range(10_000):
                assert link.send(report(number))
            await until(lambda: len(a.sink.items) == 10_000)
            assert a.sink.numbers == list(range(10_000))
            # One frame for the grant of bulk credit, and all reports were queued within one tick.
            assert a.table.counters.frames_in <= 4

    run(scenario(), uvloop=uvloop)


@both_loops
def test_both_ends_have_the_same_link_and_know_each_other(uvloop: bool) -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a, process("b") as b:
            b.local.epoch, b.local.owner, b.local.features = 7, "ctl", ("x",)
            link = await b.table.get(a.endpoint)
            await until(lambda: bool(a.sink.ups))
            back = a.table.find_process("b")
            assert back is not None
            assert (link.peer.process, link.peer.endpoint) == ("a", a.endpoint)
            assert (back.peer.process, back.peer.epoch, back.peer.owner) == ("b", 7, "ctl")
            assert back.peer.features == {"x"}
            back.send(report(1))
            await until(lambda: b.sink.numbers == [1])

    run(scenario(), uvloop=uvloop)


def test_an_item_may_be_reused_and_envelopes_carry_trace_and_revision() -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a, process("b") as b:
            link = await b.table.get(a.endpoint)
            b.local.book_revision = 41
            item = report(1)
            link.send(item, "00-trace-one-01")
            item.report.seq = 2
            link.send(item, "00-trace-two-01")
            await until(lambda: a.sink.numbers == [1, 2])
            assert a.sink.traces == ["00-trace-one-01", "00-trace-two-01"]
            back = a.table.find_process("b")
            assert back is not None and back.peer_book_revision == 41
            assert back.traceparent == ""

    run(scenario())


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"cluster": "elsewhere"}, "wrong cluster: this is 'test'"),
        ({"credentials": Site().credentials("agent", "b")}, "not of this cluster: unknown key"),
        ({"credentials": SITE.credentials("agent", "c")}, "says it is 'b'; its membership is for c"),
        ({"credentials": SITE.credentials("login", "b")}, "says it is a 'agent'; its membership says login"),
        ({"credentials": SITE.credentials("agent", "b", until_us=2)}, "has ended: issue a new one"),
        ({"protocol": (3, 4)}, "no common protocol: this side speaks 2 to 2, the peer 3 to 4"),
        ({"protocol": (1, 1)}, "the peer 1 to 1; .* is converted by `eslurm convert`"),
        ({"name": "a"}, "a process cannot have a link to itself"),
    ],
)
def test_a_peer_that_does_not_belong_is_refused_with_the_reason(
    other: dict[str, object], reason: str
) -> None:
    async def scenario() -> None:
        values: dict[str, object] = {"name": "b", **other}
        name = values.pop("name")
        async with process("a", listens=True) as a, process(name, **values) as b:  # type: ignore[arg-type]
            with pytest.raises(LinkRefused, match=reason):
                await b.table.get(a.endpoint)
            assert not a.sink.ups
            assert a.table.counters.hellos_refused == 1

    run(scenario())


def test_the_dialler_refuses_a_listener_that_only_repeats_a_membership() -> None:
    """Goal: the proof is mutual. Method: a listener with a member's membership, and without its key."""

    async def scenario() -> None:
        member = SITE.credentials("controller", "evil")
        thief = Credentials(Identity.generate(), member.membership, member.members)

        class Impostor(grpc.GenericRpcHandler):
            def service(self, _details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
                return grpc.stream_stream_rpc_method_handler(self.control)

            async def control(self, _requests: object, context: grpc.aio.ServicerContext) -> None:
                handshake = Handshake(LocalPeer("test", "controller", "evil"), thief)
                handshake.on_open(await context.read())
                await context.write(handshake.answer())
                await context.read()

        server = RpcServer([Impostor()], Interceptor())
        endpoint = await server.listen("127.0.0.1:0")
        await server.start()
        async with process("b") as b:
            with pytest.raises(LinkRefused, match="has not proved that it holds the key"):
                await b.table.get(endpoint)
            assert not b.sink.ups
        await server.stop(0.5)

    run(scenario())


def test_nobody_at_the_port_is_told_at_once() -> None:
    async def scenario() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
            async with process("b", link_settings=LinkSettings(connect_timeout_s=3_600)) as b:
                # Otherwise the test would not end in its time.
                with pytest.raises(LinkUnreachable, match="refused"):
                    await b.table.get(endpoint)

    run(scenario())


def test_a_silent_listener_is_given_up_in_time() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            endpoint = f"127.0.0.1:{silent.getsockname()[1]}"
            async with process("b", link_settings=LinkSettings(connect_timeout_s=0.2)) as b:
                with pytest.raises(LinkUnreachable, match=r"no connection within 0\.2 s"):
                    await b.table.get(endpoint)

    run(scenario())


@pytest.mark.parametrize("endpoint", ["nonsense", "127.0.0.1:x", "127.0.0.1:99999"])
def test_a_malformed_endpoint_is_named(endpoint: str) -> None:
    async def scenario() -> None:
        async with process("b") as b:
            with pytest.raises(LinkUnreachable, match=endpoint):
                await b.table.get(endpoint)

    run(scenario())


async def raw_stream(endpoint: str, method: str, frame: bytes | None) -> grpc.StatusCode:
    """Open a lane by hand, say one frame or nothing, and return how it ended."""
    async with grpc.aio.insecure_channel(endpoint) as channel, asyncio.timeout(PATIENCE_S):
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(method)()
        if frame is not None:
            await call.write(frame)
        with suppress(grpc.aio.AioRpcError):
            async for _reply in call:
                pass
        return await call.code()


def test_a_dialler_that_says_nothing_is_dropped() -> None:
    async def scenario() -> None:
        settings = LinkSettings(hello_timeout_s=0.1)
        async with process("a", listens=True, link_settings=settings) as a:
            for method in (CONTROL_METHOD, BULK_METHOD):
                assert await raw_stream(a.endpoint, method, None) is grpc.StatusCode.DEADLINE_EXCEEDED

    run(scenario())


def test_a_bulk_lane_needs_a_control_lane_and_garbage_is_no_hello() -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a:
            hello = link_pb2.Hello(process="b", nonce=b"m" * 16, challenge=b"n" * 16, proof=b"p" * 32)
            frame = first_frame(link_pb2.Item(hello=hello))
            for content in (frame, b"\xff\xff\xff", b""):
                code = await raw_stream(a.endpoint, BULK_METHOD, content)
                assert code is grpc.StatusCode.PERMISSION_DENIED
            assert await raw_stream(a.endpoint, CONTROL_METHOD, b"\xff\xff") is grpc.StatusCode.OK
            assert a.table.counters.hellos_refused == 1

    run(scenario())


def test_a_listener_that_stops_refuses_new_links() -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a, process("b") as b:
            a.server.stop_admitting("this satellite is going down")
            with pytest.raises(LinkRefused, match="this satellite is going down"):
                await b.table.get(a.endpoint)

    run(scenario())


@both_loops
def test_closing_delivers_what_was_queued_and_both_ends_hear_why(uvloop: bool) -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a, process("b") as b:
            for closer, other in ((b, a), (a, b)):
                await b.table.get(a.endpoint)
                await until(lambda: bool(a.table.links))
                link = closer.table.links[0]
                count = len(other.sink.items)
                for number in range(500):
                    link.send(report(number))
                link.close("enough")
                assert not link.send(report(501))
                await asyncio.wait_for(link.finished.wait(), PATIENCE_S)
                await until(lambda closer=closer, other=other: bool(other.sink.downs and closer.sink.downs))
                assert len(other.sink.items) == count + 500
                assert closer.sink.downs.pop()[1] == "enough"
                assert other.sink.downs.pop()[1] == "closed by the peer: enough"

    run(scenario(), uvloop=uvloop)


def test_a_full_control_queue_closes_the_link() -> None:
    async def scenario() -> None:
        settings = LinkSettings(queue_items_max=100)
        async with process("a", listens=True) as a, process("b", link_settings=settings) as b:
            link = await b.table.get(a.endpoint)
            await until(lambda: bool(a.sink.ups))
            sent = sum(link.send(report(number)) for number in range(200))
            assert sent <= 100
            assert link.closed.is_set() and "control queue full" in link.close_reason
            assert b.table.counters.queue_full_closes == 1
            assert not b.sink.downs, "told on the next turn, not in the midst of sending"
            await until(lambda: bool(b.sink.downs and a.sink.downs))
            assert b.table.find(a.endpoint) is None

    run(scenario())


def test_too_large_items_are_refused_and_the_link_stays() -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a, process("b") as b:
            link = await b.table.get(a.endpoint)
            assert not link.send(report(1, 4 << 20))
            assert b.table.counters.items_too_large == 1 and not link.closed.is_set()
            with pytest.raises(ValueError, match="in chunks"):
                await link.send_bulk(report(1, 1 << 20))
            link.send(report(2, 2 << 20))
            link.send(report(3, 2 << 20))
            await until(lambda: a.sink.numbers == [2, 3])

    run(scenario())


@both_loops
def test_an_unknown_kind_is_answered_and_the_link_stays(uvloop: bool) -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a, process("b") as b:
            link = await b.table.get(a.endpoint)
            # Field 900, length-delimited, two bytes: a kind of a later version.
            link.send_encoded(b"\xa2\x38\x02hi")
            link.send(report(5))
            await until(lambda: bool(b.sink.items))
            assert [item.unsupported.field for item in b.sink.items] == [900]
            assert a.sink.numbers == [5]

    run(scenario(), uvloop=uvloop)


def test_a_failing_sink_does_not_end_the_link(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        def fail_once(_link: Link, item: link_pb2.Item) -> None:
            if item.report.seq == 1:
                raise RuntimeError("a bug in the sink")

        async with process("a", listens=True) as a, process("b") as b:
            a.sink.answer = fail_once
            link = await b.table.get(a.endpoint)
            link.send(report(1))
            await until(lambda: a.table.counters.sink_errors == 1)
            link.send(report(2))
            await until(lambda: a.sink.numbers == [1, 2])

    run(scenario())
    assert "a bug in the sink" in caplog.text


@both_loops
@pytest.mark.parametrize("from_listener", [False, True], ids=["dialler", "listener"])
def test_five_megabytes_of_bulk_leave_the_control_lane_free(uvloop: bool, from_listener: bool) -> None:
    """Goal: bulk is paid with credits, control goes on meanwhile. Method: echo on the control lane all the time."""

    async def scenario() -> None:
        data = os.urandom(5 << 20)
        chunk_bytes = 200_000
        settings = LinkSettings(bulk_window_bytes=512 << 10)
        async with (
            process("a", listens=True, link_settings=settings) as a,
            process("b", link_settings=settings) as b,
        ):
            await b.table.get(a.endpoint)
            await until(lambda: bool(a.table.links))
            sender, receiver = (a, b) if from_listener else (b, a)
            link = sender.table.links[0]
            receiver.sink.answer = lambda back, item: (
                None if item.WhichOneof("kind") == "blob_chunk" else [back.send(item)].clear()
            )
            digest = hashlib.sha256(data).digest()
            transfer = asyncio.gather(
                *(
                    link.send_bulk(
                        link_pb2.Item(
                            blob_chunk=link_pb2.BlobChunk(
                                sha256=digest,
                                offset=offset,
                                total=len(data),
                                data=data[offset : offset + chunk_bytes],
                            )
                        )
                    )
                    for offset in range(0, len(data), chunk_bytes)
                )
            )
            echoes = 0
            while not transfer.done():
                link.send(report(echoes))
                echoes += 1
                await until(lambda sent=echoes: len(sender.sink.numbers) == sent)
            await transfer
            await until(
                lambda: (
                    sum(len(item.blob_chunk.data) for item in receiver.sink.kinds("blob_chunk")) == len(data)
                )
            )
            received = b"".join(item.blob_chunk.data for item in receiver.sink.kinds("blob_chunk"))
            assert hashlib.sha256(received).digest() == digest
            assert echoes >= 3, "each window of bulk lets control frames through"

    run(scenario(), uvloop=uvloop)


def test_bulk_that_waits_hears_when_the_link_ends() -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a, process("b") as b:
            link = await b.table.get(a.endpoint)
            waiting = asyncio.create_task(link.send_bulk(report(1)))
            await asyncio.sleep(0)
            link.abort("gone")
            with pytest.raises(LinkClosed, match="gone"):
                await waiting
            with pytest.raises(LinkClosed, match="gone"):
                await link.send_bulk(report(2))

    run(scenario())


# ---- peers in processes of their own ----


@contextmanager
def peer_process(name: str, port: int, dials: str = "") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A listening process, which may also dial; yields it with its endpoint."""
    seed = SITE.keys.signing.seed.hex()
    code = (
        "import asyncio, sys\n"
        "from tests.support.trust import Site\n"
        "from tests.kits import api as kit\n"
        f"kit.SITE = Site(seed=bytes.fromhex({seed!r}))\n"
        "async def main():\n"
        f"    async with kit.process({name!r}, listens=True, at='127.0.0.1:{port}') as p:\n"
        f"        if {dials!r}:\n"
        f"            await p.table.get({dials!r})\n"
        "        print(p.endpoint, flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        yield child, child.stdout.readline().strip()
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


@both_loops
def test_a_killed_peer_is_noticed_and_its_successor_found(uvloop: bool) -> None:
    async def scenario() -> None:
        settings = TableSettings(backoff_first_s=0.01, backoff_max_s=0.05)
        async with process("b", table_settings=settings) as b:
            port = free_port()
            with peer_process("first", port) as (child, endpoint):
                link = await b.table.get(endpoint)
                assert link.peer.process == "first"
                child.kill()
                await asyncio.wait_for(link.closed.wait(), PATIENCE_S)
                await until(lambda: len(b.sink.downs) == 1)
                assert not link.send(report(1))
                with pytest.raises(LinkUnreachable):
                    await b.table.get(endpoint)
            with peer_process("second", port) as (_child, again):
                assert again == endpoint
                again_link = await linked(b.table, endpoint)
                assert again_link.peer.process == "second"

    run(scenario(), uvloop=uvloop)


@both_loops
def test_the_listener_notices_a_killed_dialler(uvloop: bool) -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a:
            opened = peer_process("dialler", free_port(), dials=a.endpoint)
            child, _endpoint = await asyncio.to_thread(opened.__enter__)
            try:
                await until(lambda: len(a.sink.ups) == 1)
                child.kill()
                await until(lambda: len(a.sink.downs) == 1)
                assert a.server.links == [] and a.table.links == []
                assert not a.sink.ups[0].send(report(1))
            finally:
                await asyncio.to_thread(opened.__exit__, None, None, None)

    run(scenario(), uvloop=uvloop)


def test_a_peer_that_stops_reading_is_dropped_at_the_queue_bound() -> None:
    """Goal: memory stays bounded whatever the peer does. Method: stop the peer's process, then flood it."""

    async def scenario() -> None:
        settings = LinkSettings(queue_bytes_max=1 << 20, close_grace_s=0.2)
        async with process("b", link_settings=settings) as b:
            with peer_process("stopped", free_port()) as (child, endpoint):
                link = await b.table.get(endpoint)
                child.send_signal(signal.SIGSTOP)
                async with asyncio.timeout(PATIENCE_S):
                    while link.send(report(1, 60_000)):
                        assert link.queued_bytes <= 1 << 20
                        await asyncio.sleep(0)
                assert "control queue full" in link.close_reason
                began_s = time.monotonic()
                await asyncio.wait_for(link.finished.wait(), PATIENCE_S)
                # Were this the end of gRPC's last object, the loop would stand still for 5 s.
                assert time.monotonic() - began_s < 4

    run(scenario())
