"""Launches that wait for their scripts and environments: one question for all of them, and none is lost."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence

import pytest

from esctld.lead.launch_attachments import ATTACHED_BYTES_MAX, LOADED_AT_ONCE, BlobAttachments
from eslurm.core.dispatch.effect_delivery import Send
from eslurm.core.model.job import Principal
from eslurm.core.model.protocol import End, Prepare
from eslurm.links.blobs import BlobCache, BlobUnavailable
from eslurm.ports.store import StoreFailed
from eslurm.telemetry.metrics import ControllerMetrics
from eslurm.v1 import link_pb2
from tests.kits.launches import launch_of

USER = Principal("anna", 1000, 1000)
SCRIPT = b"#!/bin/sh\n/bin/true\n"


def key(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def environment(number: int) -> bytes:
    return b"JOB=%d" % number


class Site:
    """A cargo over a store of blobs, with what it asked and what it sent. Its cache holds hardly any of them."""

    def __init__(self, *texts: bytes) -> None:
        self.stored = {key(text): text for text in (SCRIPT, *texts)}
        self.asked: list[list[bytes]] = []
        self.sent: list[int] = []
        self.attached: dict[int, list[bytes]] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.moved = asyncio.Event()
        self.error: Exception | None = None
        self.cache = BlobCache(30)
        self.attachments = BlobAttachments(self.cache, self.load, ControllerMetrics())
        self.attachments.connect(self.attach, lambda _: None, self.ready)

    async def load(self, digests: Collection[bytes], bytes_max: int) -> Mapping[bytes, bytes]:
        self.asked.append(list(digests))
        self.moved.set()
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        there = {digest: self.stored[digest] for digest in digests if digest in self.stored}
        return {digest: data for digest, data in there.items() if len(data) <= bytes_max}

    def launch(self, number: int, text: bytes) -> Send:
        launch = launch_of(
            job_id=number, user=USER, groups=(), script_hash=key(SCRIPT), environment_hash=key(text)
        )
        return Send(number, (1,), Prepare(launch, start=True))

    def defer(self, *texts: bytes, first: int = 1) -> None:
        for number, text in enumerate(texts, first):
            assert self.attachments.defers(self.launch(number, text))

    async def settled(self, count: int) -> None:
        await self.until(lambda: len(self.sent) >= count)

    async def asked_once(self) -> None:
        await self.until(lambda: bool(self.asked))

    async def until(self, fits: Callable[[], bool]) -> None:
        async with asyncio.timeout(50):
            while not fits():
                self.moved.clear()
                await self.moved.wait()

    def attach(self, broadcast_id: int, blobs: tuple[link_pb2.Blob, ...]) -> None:
        self.attached[broadcast_id] = [blob.data for blob in blobs]

    def ready(self, sends: Sequence[Send]) -> None:
        for send in sends:
            self.sent.append(send.revision)
            self.moved.set()
            self.attachments.on_broadcast(send.revision, "prepare", send)


def run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(test())


def test_all_that_wait_are_one_question_and_each_goes_with_its_own_blobs_in_order() -> None:
    async def test() -> None:
        texts = [environment(number) for number in range(1, 21)]
        site = Site(*texts)
        site.defer(*texts)
        await site.settled(20)
        assert len(site.asked) == 1 and sorted(site.asked[0]) == sorted(site.stored)
        assert site.sent == list(range(1, 21))
        assert site.attached == {number: [SCRIPT, environment(number)] for number in site.sent}

    run(test)


def test_what_comes_while_the_store_is_asked_is_the_next_question() -> None:
    async def test() -> None:
        texts = [environment(number) for number in range(1, 5)]
        site = Site(*texts)
        site.gate.clear()
        site.defer(texts[0])
        await site.asked_once()
        site.defer(*texts[1:], first=2)
        site.gate.set()
        await site.settled(4)
        assert [len(asked) for asked in site.asked] == [2, 4]
        assert site.attached[4] == [SCRIPT, texts[3]]

    run(test)


def test_a_question_is_for_so_many_launches_at_most() -> None:
    async def test() -> None:
        count = 2 * LOADED_AT_ONCE + 1
        texts = [environment(number) for number in range(1, count + 1)]
        site = Site(*texts)
        site.defer(*texts)
        await site.settled(count)
        assert [len(asked) for asked in site.asked] == [LOADED_AT_ONCE + 1, LOADED_AT_ONCE + 1, 2]
        assert site.sent == list(range(1, count + 1)) and len(site.attached) == count

    run(test)


def test_what_the_cache_holds_is_not_waited_for_and_what_is_loaded_pushes_nothing_out_of_it() -> None:
    async def test() -> None:
        kept, other = environment(1), environment(2)
        site = Site(kept, other)
        site.cache.put(key(SCRIPT), SCRIPT)
        site.cache.put(key(kept), kept)
        assert not site.attachments.defers(site.launch(1, kept))
        assert not site.attachments.defers(Send(3, (1,), End(3, 1, 0.0, "released")))
        site.defer(other, first=2)
        await site.settled(1)
        assert site.asked == [[key(other)]] and site.attached[2] == [SCRIPT, other]
        assert not site.attachments.defers(site.launch(1, kept))

    run(test)


def test_launches_go_without_what_is_too_large_missing_or_not_what_it_should_be() -> None:
    async def test() -> None:
        large, good = b"x" * (ATTACHED_BYTES_MAX + 1), environment(1)
        site = Site(large, good)
        site.stored[key(b"damaged")] = b"something else"
        site.defer(large, b"gone", b"damaged", good)
        await site.settled(4)
        assert site.attached == {1: [SCRIPT], 2: [SCRIPT], 3: [SCRIPT], 4: [SCRIPT, good]}

    run(test)


@pytest.mark.parametrize("error", [BlobUnavailable("the store is away"), StoreFailed("the store is away")])
def test_a_store_that_does_not_answer_keeps_no_launch_back(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    async def test() -> None:
        site = Site(environment(1))
        site.error = error
        site.defer(environment(1))
        await site.settled(1)
        assert site.attached == {} and "go without their blobs" in caplog.text
        assert "the store is away" in caplog.text
        site.error = None
        site.defer(environment(1), first=2)
        await site.settled(2)
        assert site.attached[2] == [SCRIPT, environment(1)]

    run(test)


def test_one_that_cannot_be_sent_is_told_and_holds_up_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        texts = [environment(1), environment(2)]
        site = Site(*texts)

        def ready(sends: Sequence[Send]) -> None:
            if sends[0].revision == 1:
                site.defer(texts[1], first=2)
                raise RuntimeError("no way")
            site.ready(sends)

        site.attachments.connect(site.attach, lambda _: None, ready)
        site.defer(texts[0])
        await site.settled(1)
        assert site.sent == [2] and "launches could not be sent" in caplog.text

    run(test)


def test_after_close_nothing_more_is_sent_or_begun() -> None:
    async def test() -> None:
        site = Site(environment(1))
        site.gate.clear()
        site.defer(environment(1))
        await site.asked_once()
        site.defer(environment(2), first=2)
        await site.attachments.close()
        site.gate.set()
        site.defer(environment(3), first=3)
        for _ in range(5):
            await asyncio.sleep(0)
        assert site.sent == [] and len(site.asked) == 1

    run(test)
