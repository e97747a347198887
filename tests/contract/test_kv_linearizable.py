"""Recorded histories of the shared store are linearizable, also while its members stand still and answers are lost."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Sequence

import pytest

from eslurm.federation.etcd.calls import EtcdSettings
from eslurm.federation.etcd.store import EtcdStore
from eslurm.lab.kv.image import KvImage
from eslurm.lab.kv.linearizable import Call, is_linearizable
from eslurm.lab.kv.memory import MemoryKv
from eslurm.ports.kv import (
    Expect,
    Found,
    KeyValueStore,
    KvAmbiguous,
    KvUnavailable,
    Operation,
    Put,
    Swapped,
)
from tests.kits.kv import BACKENDS, Backend
from tests.support import etcd
from tests.support.loops import run

pytestmark = pytest.mark.timeout(240)
KEY = "/register"


def swap(begin: float, end: float, expected: bytes | None, written: bytes, **answer: object) -> Call:
    return Call(begin, end, is_swap=True, expected=expected, written=written, **answer)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("history", "is_right"),
    [
        ([swap(0, 1, None, b"a"), Call(2, 3, b"a")], True),
        ([swap(0, 1, None, b"a"), Call(2, 3, None)], False),
        ([swap(0, 3, None, b"a"), Call(1, 2, None)], True),
        ([swap(0, 3, None, b"a"), Call(1, 2, b"a")], True),
        ([swap(0, 9, None, b"a"), Call(1, 2, b"a"), Call(3, 4, None)], False),
        # Both cannot have replaced the same value.
        ([swap(0, 1, None, b"a"), swap(2, 5, b"a", b"b"), swap(3, 6, b"a", b"c")], False),
        (
            [swap(0, 1, None, b"a"), swap(2, 5, b"a", b"b"), swap(3, 6, b"a", b"c", done=False, seen=b"b")],
            True,
        ),
        # A swap without an answer took effect, or it did not.
        ([swap(0, 1, None, b"a", done=None), Call(2, 3, None)], True),
        ([swap(0, 1, None, b"a", done=None), Call(2, 3, None), Call(4, 5, b"a")], True),
        ([swap(0, 1, None, b"a", done=None), Call(2, 3, b"a"), Call(4, 5, None)], False),
        # It failed, and what it expected was there all the time.
        ([swap(0, 1, None, b"a"), swap(2, 3, b"a", b"b", done=False, seen=b"a")], False),
        ([Call(0, 1, b"never written")], False),
    ],
)
def test_the_search_tells_right_from_wrong(history: Sequence[Call], is_right: bool) -> None:
    assert is_linearizable(history) is is_right


class Recorder:
    """Processes that read and swap one key, and what each saw."""

    def __init__(self, seed: int) -> None:
        self.history: list[Call] = []
        self._draw = random.Random(seed)

    async def process(self, kv: KeyValueStore, name: str, times: int, key: str = KEY) -> None:
        """Reads and swaps at random, by what it saw last."""
        version, value = 0, None
        for serial in range(times):
            written = f"{name}{serial}".encode()
            begin = time.monotonic()
            try:
                if self._draw.random() < 0.4:
                    found = (await kv.get(key)).entry
                    self.history.append(Call(begin, time.monotonic(), found.value if found else None))
                else:
                    swapped = await kv.swap([Expect(key, version)], [Put(key, written)])
                    found = swapped.current[key]
                    self.history.append(
                        Call(
                            begin,
                            time.monotonic(),
                            found.value if found else None,
                            is_swap=True,
                            expected=value,
                            written=written,
                            done=swapped.done,
                        )
                    )
                version, value = (found.version, found.value) if found else (0, None)
            except KvAmbiguous:
                self.history.append(
                    Call(begin, time.monotonic(), is_swap=True, expected=value, written=written, done=None)
                )
                # A process that does not know what it has done does nothing more with it.
                version, value = 0, None
                await asyncio.sleep(self._draw.uniform(0, 0.05))
            except KvUnavailable:
                await asyncio.sleep(self._draw.uniform(0, 0.05))
            else:
                await asyncio.sleep(self._draw.uniform(0, 0.003))


@pytest.mark.parametrize("name", BACKENDS)
def test_swaps_and_reads_of_many_processes_are_linearizable(name: str) -> None:
    backend: Backend = BACKENDS[name]()
    recorder = Recorder(seed=1)

    async def test() -> None:
        clients = [await backend.kv() for _ in range(4)]
        await asyncio.gather(
            *(
                recorder.process(kv, f"p{number}-", 60, f"{backend.root}register")
                for number, kv in enumerate(clients)
            )
        )

    backend.run(test())
    assert sum(call.is_swap and call.done is True for call in recorder.history) > 10
    assert is_linearizable(recorder.history)


def test_they_are_while_members_stand_still_and_answers_are_lost() -> None:
    recorder = Recorder(seed=2)

    async def stand_still(store: etcd.Etcd, ended: asyncio.Event) -> None:
        draw = random.Random(3)
        while not ended.is_set():
            member = draw.choice(store.members)
            member.send_signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(draw.uniform(0.3, 1.5))
            finally:
                member.send_signal(signal.SIGCONT)
            await asyncio.sleep(draw.uniform(0.1, 0.5))

    async def test(store: etcd.Etcd) -> None:
        clients = [EtcdStore(EtcdSettings(store.endpoints, call_s=0.5)) for _ in range(4)]
        for kv in clients:
            await kv.open()
        ended = asyncio.Event()
        disturbing = asyncio.create_task(stand_still(store, ended))
        await asyncio.gather(*(recorder.process(kv, f"p{n}-", 80) for n, kv in enumerate(clients)))
        ended.set()
        await disturbing
        for kv in clients:
            await kv.close()

    with etcd.own(members=3) as store:
        run(test(store))
    assert any(call.done is None for call in recorder.history)
    assert is_linearizable(recorder.history)


# ---- stores that are wrong ----


class ComparesValues(MemoryKv):
    """A swap that holds for a value that came back (X-30)."""

    async def swap(self, expect: Sequence[Expect], then: Sequence[Operation]) -> Swapped:
        now = (await self.get(expect[0].key)).entry
        return await super().swap([Expect(expect[0].key, now.version if now else 0)], then)


class SellsOldReads(MemoryKv):
    """A read that shows what was there a while ago."""

    old: Found | None = None

    async def get(self, key: str, *, stale: bool = False) -> Found:
        fresh = await super().get(key, stale=stale)
        shown, self.old = self.old or fresh, fresh
        return shown


class LosesUpdates(MemoryKv):
    """A swap that says it was done and was not, now and then."""

    swaps = 0

    async def swap(self, expect: Sequence[Expect], then: Sequence[Operation]) -> Swapped:
        self.swaps += 1
        if self.swaps % 5:
            return await super().swap(expect, then)
        answer = await super().swap(expect, then)
        if answer.done and (entry := answer.current[expect[0].key]):
            await super().swap([Expect(entry.key, entry.version)], [Put(entry.key, b"older")])
        return answer


@pytest.mark.parametrize("wrong", [ComparesValues, SellsOldReads, LosesUpdates])
def test_a_store_that_is_wrong_is_found(wrong: Callable[[KvImage], KeyValueStore]) -> None:
    def found(seed: int) -> bool:
        recorder = Recorder(seed)

        async def test() -> None:
            image = KvImage()
            clients = [wrong(image) for _ in range(3)]
            for kv in clients:
                await kv.open()
            image.swap([Expect(KEY, 0)], [Put(KEY, b"first")])
            await asyncio.gather(*(recorder.process(kv, f"p{n}-", 40) for n, kv in enumerate(clients)))

        run(test())
        return not is_linearizable(recorder.history, b"first")

    assert any(found(seed) for seed in range(5))
