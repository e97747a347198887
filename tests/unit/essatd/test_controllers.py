"""A satellite between several controllers: whoever has the highest epoch gets the reports, also those sent in vain."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from eslurm.api.interceptor import Interceptor
from eslurm.api.server import RpcServer
from eslurm.core.dispatch.report_router import ReportRouter
from eslurm.core.model.protocol import NodeGone, Report, ReportAck
from eslurm.links.hello import LocalPeer
from eslurm.links.link import GrpcLink
from eslurm.links.link_server import LinkServer
from eslurm.links.links import LinkTable
from eslurm.ports.api import Status
from eslurm.ports.link import Link, Wanted
from eslurm.v1 import link_pb2
from essatd import daemon
from essatd.daemon import Satellite, SatelliteOptions
from tests.kits.api import PATIENCE_S, SITE, Process, Recorder, process, until
from tests.support.loops import run
from tests.support.ports import free_port


@asynccontextmanager
async def controller(name: str, endpoint: str, epoch: int) -> AsyncIterator[Process]:
    """A process that takes links as a controller does, from its very first one on."""
    local = LocalPeer("test", "controller", name, endpoint, owner="main", epoch=epoch)
    sink = Recorder()
    credentials = SITE.credentials("controller", name.rsplit(".", 1)[0])
    table = LinkTable(local, credentials, sink, random.Random(7))
    server = LinkServer(local, credentials, table)
    rpc = RpcServer([server.handler()], Interceptor())
    await rpc.listen(endpoint)
    await rpc.start()
    try:
        yield Process(local, sink, table, server, endpoint)
    finally:
        await table.close("the test is over")
        await server.close_links("the test is over")
        await rpc.stop(0.5)


@asynccontextmanager
async def satellite(*controllers: str) -> AsyncIterator[str]:
    """A running satellite; its endpoint."""
    credentials = SITE.credentials("satellite", "sat1")
    one = Satellite(SatelliteOptions("test", "sat1", "127.0.0.1:0", controllers, credentials))
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(one.run(ready))
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield await ready
    finally:
        one.stop()
        await task


def report(seq: int) -> link_pb2.Item:
    return link_pb2.Item(report=link_pb2.Report(process="agent1", seq=seq, body=b"x"))


def ack(*seqs: int) -> link_pb2.Item:
    return link_pb2.Item(report_ack=link_pb2.ReportAck(process="agent1", seqs=seqs))


async def linked(made: Process) -> Link:
    """The satellite's link to a controller, once it is there."""
    await until(lambda: bool(made.sink.ups))
    return made.sink.ups[-1]


def test_a_new_leader_gets_what_the_old_one_did_not_acknowledge() -> None:
    async def scenario() -> None:
        c1, c2 = (f"127.0.0.1:{free_port()}" for _ in range(2))
        async with satellite(c1, c2) as endpoint, process("agent1") as agent:
            link = await agent.table.get(endpoint)
            async with controller("one", c1, 3) as first:
                down = await linked(first)
                link.send(report(1))
                link.send(report(2))
                await until(lambda: first.sink.numbers == [1, 2])
                down.send(ack(1))
                await until(lambda: bool(agent.sink.kinds("report_ack")))
                # The old leader is not gone, only paused: its link stays.
                async with controller("two", c2, 4) as second:
                    await until(lambda: second.sink.numbers == [2])
                    link.send(report(3))
                    await until(lambda: second.sink.numbers == [2, 3])
                    assert first.sink.numbers == [1, 2]
                    (await linked(second)).send(ack(2, 3))
                    await until(lambda: len(agent.sink.kinds("report_ack")) == 2)

    run(scenario())


def test_calls_that_a_former_leader_has_not_answered_are_to_be_made_again() -> None:
    async def scenario() -> None:
        c1, c2 = (f"127.0.0.1:{free_port()}" for _ in range(2))
        async with satellite(c1, c2) as endpoint, process("agent1") as agent:
            link = await agent.table.get(endpoint)
            # Paused, not gone: its link stays.
            async with controller("one", c1, 3) as first:
                down = await linked(first)
                for number in (1, 2):
                    call = link_pb2.DoorCall(process="agent1", call=number, method="Ping")
                    link.send(link_pb2.Item(door_call=call))
                await until(lambda: len(first.sink.kinds("door_call")) == 2)
                down.send(link_pb2.Item(door_reply=link_pb2.DoorReply(process="agent1", call=1)))
                await until(lambda: len(agent.sink.kinds("door_reply")) == 1)
                async with controller("two", c2, 4):
                    await until(lambda: len(agent.sink.kinds("door_reply")) == 2)
                told = agent.sink.kinds("door_reply")[1].door_reply
                assert (told.call, told.status) == (2, Status.UNAVAILABLE)

    run(scenario())


def test_a_blob_that_was_under_way_comes_from_the_new_leader() -> None:
    async def scenario() -> None:
        data = b"#!/bin/sh\n"
        digest = hashlib.sha256(data).digest()
        c1, c2 = (f"127.0.0.1:{free_port()}" for _ in range(2))
        async with satellite(c1, c2) as endpoint, process("agent1") as agent:
            link = await agent.table.get(endpoint)
            async with controller("one", c1, 3) as first:
                await linked(first)
                link.send(link_pb2.Item(blob_request=link_pb2.BlobRequest(sha256=[digest])))
                await until(lambda: bool(first.sink.kinds("blob_request")))
            async with controller("two", c2, 4) as second:
                await until(lambda: bool(second.sink.kinds("blob_request")))
                chunk = link_pb2.BlobChunk(sha256=digest, total=len(data), data=data)
                await (await linked(second)).send_bulk(link_pb2.Item(blob_chunk=chunk))
                await until(lambda: bool(agent.sink.kinds("blob_chunk")))
                assert agent.sink.kinds("blob_chunk")[0].blob_chunk.data == data

    run(scenario())


def test_a_controller_without_an_epoch_is_no_leader() -> None:
    async def scenario() -> None:
        c1 = f"127.0.0.1:{free_port()}"
        async with (
            satellite(c1) as endpoint,
            process("agent1") as agent,
            controller("one", c1, 0) as standby,
        ):
            await linked(standby)
            link = await agent.table.get(endpoint)
            link.send(link_pb2.Item(door_call=link_pb2.DoorCall(process="agent1", call=1, method="Ping")))
            link.send(report(1))
            await until(lambda: bool(agent.sink.kinds("door_reply")))
            assert "no controller is linked" in agent.sink.kinds("door_reply")[0].door_reply.text
            assert standby.sink.numbers == []

    run(scenario())


def test_one_that_does_not_answer_is_logged_once_and_found_when_it_leads(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "REDIAL_S", 0.01)
    monkeypatch.setattr(daemon, "REDIAL_STANDBY_S", 0.05)
    looked: list[str] = []
    get = LinkTable.get

    async def counted(table: LinkTable, endpoint: str, wanted: Wanted, backoff_max_s: float) -> GrpcLink:
        looked.append(endpoint)
        return await get(table, endpoint, wanted, backoff_max_s)

    monkeypatch.setattr(LinkTable, "get", counted)

    async def scenario() -> None:
        c1, c2 = (f"127.0.0.1:{free_port()}" for _ in range(2))
        with caplog.at_level(logging.INFO, "essatd"):
            async with controller("one", c1, 3) as first, satellite(c1, c2):
                await linked(first)
                await until(lambda: looked.count(c2) >= 5)
                async with controller("two", c2, 4) as second:
                    await linked(second)
                    await until(lambda: f"controller {c2} leads, epoch 4" in caplog.text)
                    # Counted while it serves: after its end the next attempt is refused, and that is logged too.
                    warnings = caplog.text.count(f"no link to controller {c2}")
        assert warnings == 1

    run(scenario())


def test_one_that_is_started_again_and_again_is_found_each_time_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the one that sends us away again is asked less often: after so many of them the pause would be a minute."""
    monkeypatch.setattr(daemon, "REDIAL_S", 0.01)
    monkeypatch.setattr(daemon, "REDIAL_MAX_S", 600.0)

    async def scenario() -> None:
        endpoint = f"127.0.0.1:{free_port()}"
        async with satellite(endpoint):
            for start in range(13):
                async with controller(f"main.{start}", endpoint, start + 1) as leader:
                    await linked(leader)

    run(scenario())


# ---- the router itself ----


def gone(seq: int, name: str = "a") -> Report:
    return Report(name, seq, NodeGone(0, 1, 7, 1))


def test_what_went_up_without_an_acknowledgement_goes_again_before_the_rest() -> None:
    router: ReportRouter[Report] = ReportRouter(flush_us=0)
    router.on_controller(True)
    router.on_reports("link", [gone(1), gone(2), gone(3)], 0)
    assert len(router.take(0)) == 3
    router.on_acks([ReportAck("a", (2,))])
    router.on_reports("link", [gone(4)], 1)
    router.on_controller(True)
    assert [one.seq for one in router.take(1)] == [1, 3, 4]
    router.on_acks([ReportAck("a", (1, 3, 4))])
    router.on_controller(True)
    assert router.take(2) == () and router.next_due_us() is None


def test_of_a_process_that_left_nothing_is_sent_again() -> None:
    router: ReportRouter[Report] = ReportRouter(flush_us=0)
    router.on_controller(True)
    router.on_reports("link a", [gone(1)], 0)
    router.on_reports("link b", [gone(1, "b")], 0)
    router.take(0)
    router.on_link_down("link a")
    router.on_controller(True)
    assert router.take(1) == (gone(1, "b"),)


def test_what_is_remembered_is_bounded() -> None:
    router: ReportRouter[Report] = ReportRouter(flush_us=0, queued_max=3)
    router.on_controller(True)
    for seq in range(6):
        router.on_reports("link", [gone(seq)], 0)
        router.take(0)
    router.on_controller(True)
    assert [one.seq for one in router.take(0)] == [0, 1, 2]
