"""Another cell of the federation, or what says that it is one, against a running controller: each attack is one refusal.

The cell beta has joined and stopped; its site's keys are in this process, which speaks for it.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from eslurm.links import link as link_module
from eslurm.links.dial import dial
from eslurm.links.hello import LocalPeer
from eslurm.links.link import GrpcLink
from eslurm.ports.api import Status
from eslurm.ports.link import Link, LinkError, LinkRefused
from eslurm.security.cells import CellKeys
from eslurm.security.credentials import Credentials
from eslurm.security.membership import Role
from eslurm.security.revocation import seal_revoked
from eslurm.v1 import controller_pb2 as pb
from eslurm.v1 import link_pb2
from tests.integration.test_cells import cell, pin
from tests.integration.test_federation import seen, until
from tests.kits.cluster import CLUSTER
from tests.support import etcd
from tests.support.loops import run
from tests.support.trust import Site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
NOBODY = 65534
WAIT_S = 60.0


class World:
    """The cell alpha, which runs; beta and gamma, for which this process speaks."""

    def __init__(self, directory: Path, store: etcd.Etcd) -> None:
        self.alpha = cell(directory / "alpha", "alpha", store)
        self.others = {name: cell(directory / name, name, store) for name in ("beta", "gamma")}
        pin(self.alpha, **self.others)

    def site(self, name: str) -> Site:
        return self.others[name].site

    def credentials(self, site: Site, role: Role = "controller", names: str = "main") -> Credentials:
        """Of a member of a site, which takes alpha for a cell."""
        found = site.credentials(role, names)
        cells: dict[str, CellKeys] = {}
        cells["alpha"] = CellKeys("alpha", self.alpha.site.keys.ring, cells)
        found.cells = cells
        return found


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    directory = Path(tempfile.mkdtemp(prefix="es-", dir="/tmp"))
    directory.chmod(0o755)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory)
        store = stack.enter_context(etcd.own())
        world = World(directory, store)
        for one in (*world.others.values(), world.alpha):
            stack.callback(one.stop)
            one.start()
        until(
            lambda: (
                len(seen(world.alpha)) == 3
                and all(one.state == "alive" for one in seen(world.alpha).values())
            )
        )
        for one in world.others.values():
            one.terminate(*one.daemons)
        # Their keys are known there by now.
        until(lambda: is_answered(world, "beta") and is_answered(world, "gamma"))
        yield world
        assert world.alpha.daemons["esctld"].process is not None


class Sink:
    """The replies that the attacker gets."""

    def __init__(self) -> None:
        self.replies: list[link_pb2.DoorReply] = []
        self.heard = asyncio.Event()
        self.ended = ""

    def on_up(self, link: Link) -> None:
        pass

    def on_down(self, link: Link, reason: str) -> None:
        self.ended = reason
        self.heard.set()

    def on_items(self, link: Link, items: Sequence[link_pb2.Item]) -> None:
        self.replies += [item.door_reply for item in items if item.HasField("door_reply")]
        self.heard.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self.heard.clear()
                await self.heard.wait()


@asynccontextmanager
async def linked(
    world: World,
    credentials: Credentials,
    role: str = "controller",
    cluster: str = CLUSTER,
    name: str = "main",
) -> AsyncIterator[tuple[GrpcLink, Sink]]:
    """A link to alpha's controller."""
    sink = Sink()
    local = LocalPeer(cluster, role, f"{name}.{secrets.token_hex(6)}", "127.0.0.1:9", epoch=99)
    link = await dial(world.alpha.endpoint, local, credentials, sink)
    try:
        yield link, sink
    finally:
        link.close("the attack is over")
        await link.finished.wait()


def call(number: int = 1, method: str = "Jobs", **fields: Any) -> link_pb2.Item:
    """A call of the user nobody, as it is here and there."""
    known: dict[str, Any] = {
        "process": "evil",
        "call": number,
        "method": method,
        "deadline_us": 30_000_000,
        "request_id": secrets.token_bytes(16),
        "uid": NOBODY,
        "gid": NOBODY,
        "user": "nobody",
    }
    return link_pb2.Item(door_call=link_pb2.DoorCall(**(known | fields)))


async def answered(world: World, name: str = "gamma") -> None:
    """Another cell's call is answered."""
    async with linked(world, world.credentials(world.site(name))) as (link, sink):
        link.send(call())
        await sink.until(lambda: bool(sink.replies))
        assert sink.replies[0].status == Status.OK, sink.replies


def is_answered(world: World, name: str) -> bool:
    try:
        run(answered(world, name))
    except LinkRefused:
        return False
    return True


def goes_on(world: World) -> None:
    """The cell and its other peers go on."""
    assert world.alpha.daemons["esctld"].process is not None
    assert world.alpha.call("Ping", pb.PingRequest()).cluster == CLUSTER
    run(answered(world))


def refusal(
    world: World,
    credentials: Credentials,
    role: str = "controller",
    cluster: str = CLUSTER,
    name: str = "main",
) -> str:
    async def main() -> str:
        with pytest.raises(LinkRefused) as caught:
            async with linked(world, credentials, role, cluster, name):
                pass
        return str(caught.value)

    return run(main())


def test_a_stranger_is_no_cell(world: World) -> None:
    stranger = Site("beta")
    said = refusal(world, world.credentials(stranger), cluster="beta")
    assert "none of the cells that are trusted here" in said
    # Under the name of this very cluster, and with the ring of a cell that is trusted.
    assert "unknown key" in refusal(world, world.credentials(stranger))
    borrowed = world.credentials(stranger)
    borrowed.members.ring = world.site("beta").keys.ring
    assert "unknown key" in refusal(world, borrowed)
    # And with a membership that it has seen, without the key in it.
    borrowed.membership = world.credentials(world.site("beta")).membership

    async def main() -> None:
        async with linked(world, borrowed) as (link, sink):
            link.send(call())
            await sink.until(lambda: bool(sink.ended))
            assert not sink.replies

    run(main())
    goes_on(world)


@pytest.mark.parametrize(("role", "name"), [("agent", "cn0001"), ("satellite", "sat0"), ("login", "login1")])
def test_a_member_of_our_own_does_not_become_a_cell(world: World, role: Role, name: str) -> None:
    member = world.credentials(world.alpha.site, role, name)
    assert "its membership says" in refusal(world, member, role="controller", name=name)
    assert "its membership says" in refusal(world, member, role="cell", name=name)
    assert "wrong cluster" in refusal(world, member, role="controller", cluster="beta", name=name)


@pytest.mark.parametrize(("role", "name"), [("agent", "cn0001"), ("satellite", "sat0"), ("login", "login1")])
def test_a_member_of_a_cell_that_is_no_controller_does_not_speak_for_it(
    world: World, role: Role, name: str
) -> None:
    member = world.credentials(world.site("beta"), role, name)
    for said in (role, "controller", "cell"):
        assert "only controllers speak for cell beta" in refusal(world, member, role=said, name=name)
    goes_on(world)


@pytest.mark.parametrize(
    "item",
    [
        link_pb2.Item(broadcast=link_pb2.Broadcast(id=1, kind="start", command=b"x")),
        link_pb2.Item(broadcast_reply=link_pb2.BroadcastReply(id=1, final=True)),
        link_pb2.Item(broadcast_ack=link_pb2.BroadcastAck(id=1)),
        link_pb2.Item(report=link_pb2.Report(process="esnoded.cn0001.a", seq=1, body=b"x")),
        link_pb2.Item(report_ack=link_pb2.ReportAck(process="esnoded.cn0001.a", seqs=[1])),
        link_pb2.Item(blob_request=link_pb2.BlobRequest(sha256=[bytes(32)])),
        link_pb2.Item(blob_chunk=link_pb2.BlobChunk(sha256=bytes(32), total=1, data=b"x")),
        link_pb2.Item(book_pull=link_pb2.BookPull(revision=0)),
        link_pb2.Item(book=link_pb2.Book(revision=9)),
        link_pb2.Item(satellite_ping=link_pb2.SatellitePing(seq=1)),
        link_pb2.Item(satellite_status=link_pb2.SatelliteStatus(seq=1)),
    ],
    ids=lambda item: str(item.WhichOneof("kind")),
)
def test_other_items_than_calls_end_the_link(world: World, item: link_pb2.Item) -> None:
    async def main() -> None:
        async with linked(world, world.credentials(world.site("beta"))) as (link, sink):
            link.send(item)
            await sink.until(lambda: bool(sink.ended))
            assert not sink.replies
        await answered(world)

    run(main())


def test_nobody_is_root_or_an_operator_from_another_cell(world: World) -> None:
    """The uid of this process is an operator's in alpha, where it is not root."""
    wrong = {
        "root": call(1, uid=0, gid=0, user="root"),
        "root's uid": call(2, uid=0, gid=0),
        "another's name": call(3, user="daemon"),
        "no name": call(4, user=""),
        "an unknown uid": call(5, uid=4_000_000_000, user="eve"),
        "an operator's call": call(6, "UpdateNodes", request=b""),
        "an administrator's call": call(7, "ExportLog"),
        "a token": call(8, "CreateToken"),
        "a call further on": call(
            9, "CallCell", request=pb.CallCellRequest(cell="gamma", method="Jobs").SerializeToString()
        ),
        "a circle": call(
            10, "CallCell", request=pb.CallCellRequest(cell="beta", method="Jobs").SerializeToString()
        ),
        "no method": call(11, "\x1b[2J"),
        "too old": call(12, deadline_us=0),
        "without an id": call(13, "Cancel", request_id=b""),
        "nonsense": call(14, "Submit", request=b"\xff" * 100),
    }

    async def main() -> None:
        async with linked(world, world.credentials(world.site("beta"))) as (link, sink):
            for item in wrong.values():
                link.send(item)
            await sink.until(lambda: len(sink.replies) == len(wrong))
            statuses = {one.call: one.status for one in sink.replies}
            assert all(statuses.values()), statuses
            assert all(statuses[number] == Status.PERMISSION_DENIED for number in range(1, 12) if number != 4)
            # It is still a cell, and its users are users.
            link.send(call(99))
            await sink.until(lambda: any(one.call == 99 for one in sink.replies))
            assert sink.replies[-1].status == Status.OK

    run(main())
    goes_on(world)


def test_a_user_of_another_cell_has_no_rights_over_others(world: World) -> None:
    job = world.alpha.wrap("sleep 600")
    world.alpha.reaches(job, "RUNNING")
    request = pb.CancelRequest(jobs=[pb.JobRef(job_id=job)]).SerializeToString()

    async def main() -> None:
        async with linked(world, world.credentials(world.site("beta"))) as (link, sink):
            link.send(call(1, "Cancel", request=request))
            await sink.until(lambda: bool(sink.replies))
            [reply] = sink.replies
            assert reply.status == Status.OK
            [problem] = pb.ChangeReply.FromString(reply.reply).problems
            assert problem.code == "denied", problem

    run(main())
    assert world.alpha.job(job).state == "RUNNING"
    world.alpha.do("escancel", str(job))
    world.alpha.end(job)


def test_a_cell_s_list_of_the_revoked_is_about_its_own(world: World) -> None:
    beta = world.site("beta")

    async def main() -> None:
        bad = world.credentials(beta)
        serial = bad.check_peer(bad.membership, "", 0).serial
        own = seal_revoked(beta.keys, 7, frozenset({serial}))
        async with linked(world, bad) as (link, sink):
            link.send(link_pb2.Item(revoked=link_pb2.SealedStatement(sealed=b"x" * 100)))
            link.send(
                link_pb2.Item(key_ring=link_pb2.SealedStatement(sealed=world.alpha.site.keys.ring.sealed))
            )
            link.send(call(1))
            await sink.until(lambda: bool(sink.replies))
            link.send(link_pb2.Item(revoked=link_pb2.SealedStatement(sealed=own)))
            await sink.until(lambda: bool(sink.ended))
        with pytest.raises(LinkError, match="was revoked"):
            async with linked(world, bad):
                pass
        async with linked(world, world.credentials(beta)):
            pass

    run(main())
    goes_on(world)


def test_a_cell_offers_no_job_under_an_id_that_is_not_its_own(world: World) -> None:
    """Neither one that alpha draws from, nor one that no cell has leased, nor several jobs under one."""
    own = world.alpha.call("Federation", pb.FederationRequest()).ids.in_hand[0].first
    job = pb.JobRequest(script=b"#!/bin/sh\nid > /tmp/never\n", work_dir="/")

    def offer(job_id: int, jobs: int = 1, serial: int = 7) -> bytes:
        arrival = pb.Arrival(job_id=job_id, serial=serial)
        return pb.SubmitRequest(jobs=[job] * jobs, arrival=arrival).SerializeToString()

    requests = (
        offer(own),
        offer(0),
        offer(2_000_000_000),
        offer(2**32 - 1),
        offer(own, 2),
        offer(own, serial=2**63),
    )

    async def main() -> None:
        async with linked(world, world.credentials(world.site("beta"))) as (link, sink):
            for number, request in enumerate(requests):
                link.send(call(number, "Submit", request=request))
            await sink.until(lambda: len(sink.replies) == len(requests))
            for reply in sink.replies:
                assert reply.status != Status.OK and "is not one of cell beta" in reply.text, reply

    run(main())
    assert not world.alpha.call("Jobs", pb.JobsRequest()).jobs
    goes_on(world)


def test_large_frames_and_floods_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of the tests: beta is not listened to for a while after it."""
    monkeypatch.setattr(link_module, "CONTROL_ITEM_BYTES_MAX", 64 << 20)

    async def main() -> None:
        beta = world.credentials(world.site("beta"))
        async with linked(world, beta) as (link, sink):
            link.send(call(1, "Submit", request=b"x" * (3 << 20)))
            await sink.until(lambda: bool(sink.replies))
            assert "at most 2097152 are taken at once" in sink.replies[0].text
            link.send(call(2))
            await sink.until(lambda: len(sink.replies) == 2)
            assert sink.replies[1].status == Status.OK
        async with linked(world, beta) as (link, sink):
            link.send(call(1, "Submit", request=b"x" * (6 << 20)))
            await sink.until(lambda: bool(sink.ended))
        async with linked(world, beta) as (link, sink):
            for number in range(60_000):
                if not link.send(call(number, "Ping")):
                    break
                if number % 500 == 0:
                    await asyncio.sleep(0)
            await sink.until(lambda: bool(sink.ended))
        # Many links of one cell: some, not more.
        open_now: list[GrpcLink] = []
        with pytest.raises(LinkRefused, match="links here and gets no more"):
            for number in range(16):
                local = LocalPeer(CLUSTER, "controller", f"main.{number}", f"127.0.0.1:{9 + number}")
                open_now.append(await dial(world.alpha.endpoint, local, beta, Sink()))
        assert 1 <= len(open_now) <= 4
        await answered(world)
        for link in open_now:
            link.close("enough")
            await link.finished.wait()

    run(main())
    # A sender in full flow may hear of its own transport's end alone: the log has the reason.
    log = world.alpha.directory / "esctld.log"
    until(
        lambda: (
            re.search(r"the link to cell beta ends: more than \d+ items a second", log.read_text())
            is not None
        )
    )
    goes_on(world)
