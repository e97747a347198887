"""The driver of a cell's federation over the store in memory: keys that are rotated, and what goes wrong at its start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from esctld.lead.federation import Federation, StoreDriver, monotonic_us
from esctld.lead.federation_metrics import families
from esctld.serve import federation as serving
from esctld.serve.federation import FederationAnswers
from eslurm.core.federation.membership import Identity, Lead, Standing
from eslurm.core.federation.participant import Inputs
from eslurm.core.federation.values import Keys
from eslurm.core.model.federation import CellRecord, FederationConfig, FederationWish
from eslurm.core.model.messages import Refused
from eslurm.core.state.view import View
from eslurm.lab.kv.image import KvImage
from eslurm.lab.kv.memory import MemoryKv
from eslurm.ports.api import Caller
from eslurm.ports.kv import KeyValueStore
from eslurm.security.site_keys import new_site
from eslurm.v1 import controller_pb2 as pb
from tests.kits.core import ROOT, World
from tests.support.loops import both_loops, run

CONFIG = FederationConfig("lab", "alpha")
CALLER = Caller(ROOT, b"", False, None, "socket")


def federation(
    open_store: Callable[[], KeyValueStore],
    site: Any,
    endpoint: str = "127.0.0.1:7400",
    world: World | None = None,
) -> Federation:
    world = world or World(nodes=2)
    inputs = Inputs(lambda: View(world.state), lambda: None, lambda: world.now_us, world.send)
    return Federation(open_store, CONFIG, Identity("one", site.ring.sealed), Lead(1, endpoint), site, inputs)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_the_record_follows_the_site_s_keys() -> None:
    image = KvImage()
    keys = new_site("one", 1)
    site = SimpleNamespace(ring=keys.ring)

    def ring_shown() -> bytes:
        entry = image.get(f"{Keys('lab').cells}alpha").entry
        return msgspec.msgpack.decode(entry.value, type=CellRecord).ring if entry is not None else b""

    async def test() -> None:
        part = federation(lambda: MemoryKv(image), site)
        task = asyncio.create_task(part.run())
        await until(lambda: part.view().standing is Standing.MEMBER)
        assert ring_shown() == keys.ring.sealed
        site.ring = keys.with_next(2).with_next_signing().ring
        await until(lambda: ring_shown() == site.ring.sealed)
        assert part.view().standing is Standing.MEMBER and part.restarts == 0
        await ended(task)

    run(test())


class Ordered:
    """A cell that is a member of `image`, and an administrator of it."""

    def __init__(self) -> None:
        self.image = KvImage()
        self.world = World(nodes=2)
        site = SimpleNamespace(ring=new_site("one", 1).ring)
        self.part = federation(lambda: MemoryKv(self.image), site, world=self.world)
        self.answers = FederationAnswers(self.part, self._change)
        self._task = asyncio.create_task(self.part.run())

    async def _change(self, message: Any, _caller: Caller) -> pb.ChangeReply:
        answer = self.world.send(message)
        if isinstance(answer, Refused):
            raise answer
        return pb.ChangeReply(count=answer.count, revision=self.world.state.revision)

    async def order(self, action: str, cell: str = "") -> pb.ChangeFederationReply:
        return await self.answers.change(pb.ChangeFederationRequest(action=action, cell=cell), CALLER)

    def record(self) -> CellRecord | None:
        entry = self.image.get(f"{Keys('lab').cells}alpha").entry
        return msgspec.msgpack.decode(entry.value, type=CellRecord) if entry is not None else None

    async def end(self) -> None:
        await ended(self._task)


def test_an_order_is_answered_when_the_store_has_it() -> None:
    async def test() -> None:
        cell = Ordered()
        await until(lambda: cell.part.view().standing is Standing.MEMBER)
        reply = await cell.order("drain", "alpha")
        record = cell.record()
        assert record is not None and record.draining
        assert (reply.name, reply.cell, reply.state, reply.draining, reply.done) == (
            *("lab", "alpha", "member", True, True),
        )
        reply = await cell.order("leave")
        record = cell.record()
        assert record is not None and record.left
        assert (reply.state, reply.done) == ("left", True)
        with pytest.raises(Refused, match="esctl federation rejoin"):
            await cell.order("resume")
        reply = await cell.order("rejoin")
        assert (reply.state, reply.draining, reply.done) == ("member", True, True)
        with pytest.raises(Refused, match="cell 'beta' cannot be changed from alpha"):
            await cell.order("drain", "beta")
        await cell.end()

    run(test())


def test_a_cell_rejoins_a_store_that_was_made_anew() -> None:
    async def test() -> None:
        cell = Ordered()
        await until(lambda: cell.part.view().standing is Standing.MEMBER)
        await cell.order("drain")
        cell.image = KvImage()
        cell.part.begin_again()
        await until(lambda: cell.record() is not None)
        # Data older than those seen: the mirrors do not follow.
        await until(lambda: cell.part.view().standing is Standing.MEMBER)
        for mirror in cell.part._part.cells, cell.part._part.alive:
            mirror.revision += 1_000
            mirror.doubt()
        await until(lambda: cell.part.view().standing is Standing.AWAY)
        assert "its data are older than before" in cell.part.view().problem
        reply = await cell.order("rejoin")
        assert (reply.state, reply.draining, reply.done) == ("member", True, True)
        assert cell.part.restarts == 0
        await cell.end()

    run(test())


def test_an_order_without_a_store_is_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "ORDERED_S", 0.01)

    async def test() -> None:
        cell = Ordered()
        await cell.end()
        reply = await cell.order("leave")
        assert not reply.done and cell.record() is None
        assert cell.world.state.federation == FederationWish("lab", left=True)
        with pytest.raises(Refused, match="no member of a federation"):
            await FederationAnswers(None, cell._change).change(
                pb.ChangeFederationRequest(action="leave"), CALLER
            )

    run(test())


def test_those_who_follow_records_hear_of_a_change_at_once() -> None:
    async def test() -> None:
        cell = Ordered()
        await cell.part.records_changed(30.0)
        await until(lambda: cell.part.view().standing is Standing.MEMBER)
        await cell.part.records_changed(0.0)
        waiting = asyncio.create_task(cell.part.records_changed(30.0))
        await cell.order("drain")
        async with asyncio.timeout(10):
            await waiting
        await cell.part.records_changed(0.0)
        await cell.end()

    run(test())


def test_what_cannot_be_shown_to_others_ends_no_controller() -> None:
    async def test() -> None:
        image = KvImage()
        part = federation(lambda: MemoryKv(image), SimpleNamespace(ring=new_site("one", 1).ring), "x" * 300)
        task = asyncio.create_task(part.run())
        await until(lambda: part.restarts > 0)
        assert not task.done()
        await ended(task)

    run(test())


class Clockwork:
    """A part that has something to do at instants that lie off the milliseconds of the loop's timers."""

    def __init__(self) -> None:
        self.at_us = 0
        self.looks = self.done = 0

    def tick(self, now_us: int, _draw: float) -> list[Any]:
        self.looks += 1
        if now_us >= self.at_us:
            self.done += 1
            self.at_us = now_us + 1_400
        return []

    def due_us(self, _now_us: int) -> int:
        return self.at_us


@both_loops
def test_what_is_due_costs_one_look(uvloop: bool) -> None:
    async def test() -> None:
        part: Any = Clockwork()
        store: Any = None
        driver = StoreDriver(store, part, now_us=monotonic_us)
        while part.done < 100:
            await driver.look()
            await driver.wait()
        # Nearly: a loop that was held up takes an earlier time for now.
        assert part.looks < 1.2 * part.done
        await driver.end()

    run(test(), uvloop=uvloop)


def test_metrics_count_jobs_that_change_their_cell() -> None:
    part = federation(lambda: MemoryKv(KvImage()), SimpleNamespace(ring=new_site("one", 1).ring))
    part.transfers.owners.counts["withdrawn"] = 2
    part.transfers.offers.counts["no answer"] = 3

    def shown(of: Federation | None) -> dict[tuple[str, ...], float]:
        return {
            (family.described.name, *labels): value
            for family in families(of, None)
            for labels, value in family.samples
        }

    of_member, of_none = shown(part), shown(None)
    assert of_member.keys() == of_none.keys()
    assert of_member["eslurm_federation_transfers_total", "withdrawn"] == 2
    assert of_member["eslurm_federation_bids_total", "no_answer"] == 3
    assert of_none["eslurm_federation_jobs", "offered"] == 0
