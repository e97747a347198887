"""The driver of a cell's federation over the store in memory: keys that are rotated, and what goes wrong at its start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec

from esctld.lead.federation import Federation
from eslurm.core.federation.membership import Identity, Lead, Standing
from eslurm.core.federation.participant import Inputs
from eslurm.core.federation.values import Keys
from eslurm.core.model.federation import CellRecord, FederationConfig
from eslurm.core.state.view import View
from eslurm.lab.kv.image import KvImage
from eslurm.lab.kv.memory import MemoryKv
from eslurm.ports.kv import KeyValueStore
from eslurm.security.site_keys import new_site
from tests.kits.core import World
from tests.support.loops import run

CONFIG = FederationConfig("lab", "alpha")


def federation(
    open_store: Callable[[], KeyValueStore], site: Any, endpoint: str = "127.0.0.1:7400"
) -> Federation:
    world = World(nodes=2)
    inputs = Inputs(lambda: View(world.state), lambda: None, lambda: world.now_us)
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


def test_what_cannot_be_shown_to_others_ends_no_controller() -> None:
    async def test() -> None:
        image = KvImage()
        part = federation(lambda: MemoryKv(image), SimpleNamespace(ring=new_site("one", 1).ring), "x" * 300)
        task = asyncio.create_task(part.run())
        await until(lambda: part.restarts > 0)
        assert not task.done()
        await ended(task)

    run(test())
