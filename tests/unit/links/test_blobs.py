"""Blobs that are served: proven by their hash, bounded, and answered whatever becomes of the store."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from eslurm.links import blobs as blobs_module
from eslurm.links.blobs import BlobCache, BlobExchange, BlobUnavailable
from eslurm.ports.link import Link
from eslurm.v1 import link_pb2
from tests.kits.api import until
from tests.support.loops import run
from tests.unit.esnoded.test_uplink import FakeLink


def digest_of(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


GOOD, BAD = b"#!/bin/sh\necho mine\n", b"#!/bin/sh\nrm -rf /\n"


class Asking(FakeLink):
    """A link that asks for blobs; `takes` clear: it takes nothing of its bulk lane."""

    def __init__(self, endpoint: str = "a:1") -> None:
        super().__init__(endpoint)
        self.missing: list[bytes] = []
        self.got: list[bytes] = []
        self.takes = asyncio.Event()
        self.takes.set()

    def send(self, item: link_pb2.Item, traceparent: str = "") -> bool:
        assert item.blob_chunk.missing
        self.missing.append(item.blob_chunk.sha256)
        return True

    async def send_bulk(self, item: link_pb2.Item) -> None:
        await self.takes.wait()
        self.got.append(item.blob_chunk.sha256)


def request(*digests: bytes) -> link_pb2.BlobRequest:
    return link_pb2.BlobRequest(sha256=digests)


def test_an_attachment_with_other_content_than_its_hash_is_not_taken() -> None:
    """A relay that forwards a launch could put another script under the hash that the controller has signed."""

    async def load(digest: bytes, source: Link | None) -> bytes:
        raise BlobUnavailable("nobody has it")

    exchange = BlobExchange(1 << 20, load)
    exchange.keep(
        [link_pb2.Blob(sha256=digest_of(GOOD), data=BAD), link_pb2.Blob(sha256=digest_of(b"x"), data=b"x")]
    )
    assert exchange.cache.find(digest_of(GOOD)) is None
    assert exchange.cache.find(digest_of(b"x")) == b"x"


def test_a_blob_that_came_with_other_content_is_not_had() -> None:
    async def load(digest: bytes, source: Link | None) -> bytes:
        return BAD

    async def scenario() -> None:
        exchange = BlobExchange(1 << 20, load)
        with pytest.raises(BlobUnavailable, match="came with other content"):
            await exchange.get(digest_of(GOOD))
        assert exchange.cache.find(digest_of(GOOD)) is None and exchange.cache.find(digest_of(BAD)) is None

    run(scenario())


def test_what_is_kept_is_bounded_in_bytes_and_the_least_used_goes_first() -> None:
    cache = BlobCache(100)
    for number in range(50):
        cache.put(bytes([number]), b"x" * 40)
        cache.find(b"\0")
    kept = [number for number in range(50) if cache.find(bytes([number])) is not None]
    assert kept == [0, 49], "two of 40 bytes fit into 100; the first one was looked for each time"
    cache.put(b"large", b"x" * 1_000)
    assert [number for number in range(50) if cache.find(bytes([number])) is not None] == []
    cache.put(b"small", b"x")
    assert cache.find(b"large") is None and cache.find(b"small") == b"x"


@pytest.mark.parametrize("error", [RuntimeError("the database has gone"), BlobUnavailable("not here")])
def test_a_store_that_fails_is_answered_and_told(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def load(digest: bytes, source: Link | None) -> bytes:
        if digest == digest_of(GOOD):
            raise error
        return b"x"

    async def scenario() -> None:
        exchange, link = BlobExchange(1 << 20, load), Asking()
        exchange.on_request(link, request(digest_of(GOOD), digest_of(b"x")))
        await until(lambda: link.got == [digest_of(b"x")])
        assert link.missing == [digest_of(GOOD)], "its asker hears at once, and the next one is served"
        with pytest.raises(BlobUnavailable, match=str(error)):
            await exchange.get(digest_of(GOOD))
        await exchange.close()

    run(scenario())
    assert str(error) in caplog.text


def test_requests_are_bounded_by_link_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs_module, "ASKED_PER_LINK_MAX", 4)
    monkeypatch.setattr(blobs_module, "ASKED_MAX", 6)
    data = [bytes([number]) for number in range(6)]
    digests = [digest_of(one) for one in data]
    stored = dict(zip(digests, data, strict=True))

    async def load(digest: bytes, source: Link | None) -> bytes:
        return stored[digest]

    async def scenario() -> None:
        exchange = BlobExchange(1 << 20, load)
        first, second = Asking("a:1"), Asking("b:1")
        for link in (first, second):
            link.takes.clear()
        exchange.on_request(first, request(*digests[:3]))
        exchange.on_request(first, request(*digests[3:]))
        assert first.missing == digests[4:], "four of one link"
        exchange.on_request(second, request(*digests[:4]))
        assert second.missing == digests[2:4], "six in all"
        first.takes.set()
        second.takes.set()
        await until(lambda: len(first.got) == 4 and len(second.got) == 2)
        await until(lambda: not exchange._serving)
        exchange.on_request(first, request(*digests[:4]))
        await until(lambda: len(first.got) == 8)
        assert first.missing == digests[4:], "there is room again"
        await exchange.close()

    run(scenario())


def test_peers_that_take_nothing_are_given_up_and_the_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blobs_module, "SENDING_MAX", 2)
    monkeypatch.setattr(blobs_module, "FETCH_TIMEOUT_S", 0.05)

    async def load(digest: bytes, source: Link | None) -> bytes:
        return b"x"

    async def scenario() -> None:
        exchange, alive = BlobExchange(1 << 20, load), Asking("c:1")
        for endpoint in ("a:1", "b:1"):
            stuck = Asking(endpoint)
            stuck.takes.clear()
            exchange.on_request(stuck, request(digest_of(b"x")))
        exchange.on_request(alive, request(digest_of(b"x")))
        await until(lambda: alive.got == [digest_of(b"x")])
        await exchange.close()

    run(scenario())
