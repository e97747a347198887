"""A standby leads when it may, from exactly where the log stands, and never otherwise."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from esctld.port import HeldPort
from esctld.roles import AnswererSwitch
from esctld.standby import standby as standby_module
from esctld.standby.standby import Standby
from eslurm.api import methods
from eslurm.api.interceptor import Interceptor
from eslurm.api.server import RpcServer
from eslurm.core.dispatch.standby import Lead
from eslurm.lab.sim.memory_store import MemoryStore
from eslurm.lab.sim.store_image import StoreImage
from eslurm.ports.api import Answered, Caller, Status
from eslurm.ports.store import Claim, FenceLost, Leader, SnapshotRow, StoreFailed, StoreUnavailable
from eslurm.transport.options import reachable
from tests.kits.api import until
from tests.kits.leading import CLUSTER, LEASE_US, OWNER, LeadingController
from tests.kits.mirror import picture
from tests.support.loops import run
from tests.unit.esctld.test_dispatcher import ALICE, submission

LEASE_S = LEASE_US / 1e6
PATIENCE_S = 50.0
FILE = Path("/nonexistent/eslurm.toml")


class NoLink:
    """A standby's link to the leader, which answers each call by itself."""

    def __init__(self) -> None:
        self.followed: list[Leader] = []
        self.told: list[str] = []
        self.closed = False

    def follow(self, leader: Leader) -> None:
        self.followed.append(leader)

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        self.closed = True

    def tell_configuration(self, problem: str) -> None:
        self.told.append(problem)

    async def answer(self, method: Any, payload: bytes, caller: Caller) -> Answered:
        return Answered(Status.OK, "", b"leader")


class Watching:
    """One standby on an image, as a task."""

    def __init__(self, image: StoreImage, name: str, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore(image, CLUSTER)
        self.link = NoLink()
        self.warm = asyncio.Event()
        self.look: Callable[[], None] = lambda: None

        def link(on_lost: Callable[[], None]) -> Any:
            self.look = on_lost
            return self.link

        self.standby = Standby(self.store, OWNER, name, f"{name}:1", LEASE_US, link, self.warm.set, FILE)
        self.task = asyncio.create_task(self.standby.run())

    async def lead(self) -> Lead:
        async with asyncio.timeout(PATIENCE_S):
            return await self.task

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def beat(image: StoreImage, epoch: int, leases: float) -> None:
    """A living leader for so many leases."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + leases * LEASE_S
    while loop.time() < until_s:
        image.renew(OWNER, epoch)
        await asyncio.sleep(LEASE_S / 16)


def test_an_empty_store_is_led_at_once() -> None:
    async def main() -> None:
        image = StoreImage(CLUSTER)
        lead = await Watching(image, "c1").lead()
        assert (lead.epoch, lead.state.revision) == (1, 0)
        assert image.leader(OWNER).holder == "c1" and image.leader(OWNER).endpoint == "c1:1"

    run(main())


def test_a_standby_follows_and_leaves_a_living_leader_alone() -> None:
    async def main() -> None:
        image = StoreImage(CLUSTER)
        async with LeadingController(image) as leader:
            watching = Watching(image, "c2")
            for number in range(5):
                await leader.dispatcher.request(submission(f"job{number}"))
            await beat(image, leader.epoch, 3)
            assert watching.warm.is_set() and not watching.task.done()
            await leader.store.release("c2")
            watching.look()
            lead = await watching.lead()
            assert lead.epoch == leader.epoch + 1
            assert picture(lead.state) == picture(leader.state)
            assert watching.link.closed

    run(main())


def test_a_database_that_its_leader_has_yet_to_make_is_followed_once_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class NotMade(MemoryStore):
        made = False

        async def load_unfinished(
            self, owner: str, chunk_rows: int = 1_000
        ) -> AsyncGenerator[Sequence[SnapshotRow], None]:
            if not self.made:
                raise StoreFailed("the database is empty")
            async for rows in super().load_unfinished(owner, chunk_rows):
                yield rows

    async def main() -> None:
        monkeypatch.setattr(standby_module, "FOLLOW_AGAIN_S", 0.0)
        image = StoreImage(CLUSTER)
        async with LeadingController(image) as leader:
            store = NotMade(image, CLUSTER)
            watching = Watching(image, "c2", store)
            await watching.warm.wait()
            assert "cannot follow the log" in watching.standby.health().line
            store.made = True
            await leader.dispatcher.request(submission("job"))
            watching.look()
            await until(lambda: watching.standby.health().is_well)
            await watching.end()

    run(main())


def test_a_silent_leader_is_followed_after_its_lease() -> None:
    async def main() -> None:
        image = StoreImage(CLUSTER)
        async with LeadingController(image) as leader:
            began_s = asyncio.get_running_loop().time()
            lead = await Watching(image, "c2").lead()
            assert asyncio.get_running_loop().time() - began_s >= LEASE_S
            assert picture(lead.state) == picture(leader.state)
            with pytest.raises(FenceLost):
                await leader.store.renew()

    run(main())


def test_of_two_standbys_one_leads() -> None:
    async def main() -> None:
        image = StoreImage(CLUSTER)
        async with LeadingController(image) as leader:
            both = [Watching(image, name) for name in ("c2", "c3")]
            await asyncio.wait([one.task for one in both], return_when=asyncio.FIRST_COMPLETED)
            [winner] = [one for one in both if one.task.done()]
            [other] = [one for one in both if one is not winner]
            await beat(image, leader.epoch + 1, 2)
            assert not other.task.done()
            assert (await winner.lead()).epoch == leader.epoch + 1
            await other.end()

    run(main())


class SlowStore(MemoryStore):
    """The log cannot be read for some time; meanwhile another controller may lead."""

    fails = 0
    usurper: MemoryStore | None = None

    def load_unfinished(self, owner: str, chunk_rows: int = 1000):  # type: ignore[no-untyped-def]
        if self.fails:
            self.fails -= 1
            raise StoreUnavailable("away")
        return super().load_unfinished(owner, chunk_rows)

    async def open(self, owner: str, claim: Claim | None = None) -> int:
        epoch = await super().open(owner, claim)
        if self.usurper is not None:
            await self.usurper.open(owner)
        return epoch


def test_the_lease_is_renewed_while_the_state_is_being_read() -> None:
    async def main() -> None:
        image = StoreImage(CLUSTER)
        async with LeadingController(image, "c2") as leader:
            store = SlowStore(image, CLUSTER)
            store.fails = 2
            # Its own name in the row: it claims at once and has still to load everything.
            lead = await Watching(image, "c2", store).lead()
            assert lead.epoch == leader.epoch + 1
            assert image.leader(OWNER).beat > 0

    run(main())


def test_a_lead_that_was_lost_while_preparing_is_none() -> None:
    async def main() -> None:
        image = StoreImage(CLUSTER)
        async with LeadingController(image, "c2"):
            store = SlowStore(image, CLUSTER)
            store.usurper = MemoryStore(image, CLUSTER)
            with pytest.raises(FenceLost):
                await Watching(image, "c2", store).lead()
            assert not image.leader(OWNER).released

    run(main())


class AwayStore(MemoryStore):
    """Not there until told."""

    away = True

    async def leader(self, owner: str) -> Leader:
        if self.away:
            raise StoreUnavailable("away")
        return await super().leader(owner)


def test_a_store_that_was_away_gives_the_leader_its_lease_anew() -> None:
    async def main() -> None:
        image = StoreImage(CLUSTER)
        async with LeadingController(image) as leader:
            store = AwayStore(image, CLUSTER)
            watching = Watching(image, "c2", store)
            await asyncio.sleep(2 * LEASE_S)
            assert not watching.task.done()
            store.away = False
            await beat(image, leader.epoch, 2)
            assert not watching.task.done()
            await watching.end()

    run(main())


def test_a_standby_that_is_stopped_while_it_prepares_lets_go() -> None:
    async def main() -> None:
        image = StoreImage(CLUSTER)
        async with LeadingController(image, "c2"):
            store = SlowStore(image, CLUSTER)
            store.fails = 1_000
            watching = Watching(image, "c2", store)
            await until(lambda: store.fails < 1_000)
            await watching.end()
            assert image.leader(OWNER).released

    run(main())


def test_the_door_answers_by_role_and_never_hangs_between_two() -> None:
    async def main() -> None:
        switch = AnswererSwitch()
        caller = Caller(ALICE, b"", False, 1_000_000, "socket")
        refused = await switch.answer(methods.PING, b"", caller)
        assert refused.status is Status.UNAVAILABLE and "no controller leads" in refused.text
        switch.lead_to(NoLink())
        assert (await switch.answer(methods.PING, b"", caller)).reply == b"leader"

    run(main())


def test_a_port_is_held_from_the_start_and_refuses_until_somebody_listens() -> None:
    with closing(HeldPort("127.0.0.1:0")) as held:
        host, _, port = held.endpoint.rpartition(":")
        assert host == "127.0.0.1" and int(port) > 0
        address = (host, int(port))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        with pytest.raises(OSError, match="in use: end what has the port"):
            HeldPort(held.endpoint)
        with socket.socket() as thief, pytest.raises(OSError, match="in use"):
            thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            thief.bind(("0.0.0.0", int(port)))

        async def serve() -> None:
            rpc = RpcServer([], Interceptor(), shares_port=True)
            assert await rpc.listen(held.endpoint) == held.endpoint
            await rpc.start()
            await asyncio.to_thread(lambda: socket.create_connection(address).close())
            await rpc.stop(0.1)

        run(serve())
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
    with pytest.raises(OSError, match=r"192\.0\.2\.1"):
        HeldPort("192.0.2.1:0")


@pytest.mark.parametrize(
    ("listen", "told"),
    [
        ("0.0.0.0:6820", "front1:6820"),
        ("[::]:6820", "front1:6820"),
        ("10.0.0.2:6820", "10.0.0.2:6820"),
        ("[fe80::2]:6820", "[fe80::2]:6820"),
        ("c2:6820", "c2:6820"),
    ],
)
def test_others_are_told_where_it_can_be_found(
    listen: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address that stands for the whole host is nowhere to those on other hosts."""
    monkeypatch.setattr("eslurm.transport.options.socket.gethostname", lambda: "front1")
    assert reachable(listen) == told
