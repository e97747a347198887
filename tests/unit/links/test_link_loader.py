"""Blobs over links: what arrives, and what becomes of a request when the link ends."""

from __future__ import annotations

import asyncio

from eslurm.links.blobs import LinkLoader
from eslurm.v1 import link_pb2
from tests.support.loops import run
from tests.unit.esnoded.test_uplink import FakeLink

DIGEST = b"d" * 32


def test_a_blob_comes_over_the_link_that_was_asked() -> None:
    async def scenario() -> None:
        loader, link = LinkLoader(lambda: None), FakeLink("s1:1")
        loading = asyncio.create_task(loader.load_from(DIGEST, link))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        loader.on_chunk(link_pb2.BlobChunk(sha256=DIGEST, offset=0, total=2, data=b"ab"))
        assert await loading == b"ab"

    run(scenario())


def test_a_link_that_ends_takes_the_request_with_it_at_once() -> None:
    async def scenario() -> None:
        loader, dead, alive = LinkLoader(lambda: None), FakeLink("s1:1"), FakeLink("s2:1")
        loading = asyncio.create_task(loader.load_from(DIGEST, dead))
        await asyncio.sleep(0)
        dead.close("the peer is gone")
        async with asyncio.timeout(50):
            assert await loading is None
        again = asyncio.create_task(loader.load_from(DIGEST, alive))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        loader.on_chunk(link_pb2.BlobChunk(sha256=DIGEST, offset=0, total=1, data=b"x"))
        assert await again == b"x"

    run(scenario())
