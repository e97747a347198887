"""Content-addressed blobs (scripts, environments) on their way down: controller -> satellite -> agent process.

A blob is proven by its hash, so any peer may supply it. Invariants: the cache is bounded in bytes, a blob that several
request at once is fetched once, and each request is answered: with the blob, or that it is missing.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from eslurm.ports.link import Link, LinkClosed
from eslurm.v1 import link_pb2

log = logging.getLogger("eslurm.relay.blobs")

CHUNK_BYTES = 256 * 1024
BLOB_BYTES_MAX = 64 * 1024 * 1024
FETCH_TIMEOUT_S = 10.0
ASKED_PER_LINK_MAX = 1_024
"""Blobs that one link may wait for at a time; those beyond are missing at once, and are asked for again elsewhere."""
ASKED_MAX = 16_384
"""The same, of all links together."""
SENDING_MAX = 64
"""Blobs that are held in memory to be sent, at a time."""

Load = Callable[[bytes, "Link | None"], Awaitable[bytes]]
"""Fetch a blob that is not kept; `Link` is where its command came from. Raises `BlobUnavailable`."""


class BlobUnavailable(Exception):
    """The blob is not available now."""


class BlobCache:
    """The most recently used blobs within a number of bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._blobs: OrderedDict[bytes, bytes] = OrderedDict()

    def find(self, digest: bytes) -> bytes | None:
        """The blob, if it is kept."""
        data = self._blobs.get(digest)
        if data is not None:
            self._blobs.move_to_end(digest)
        return data

    def put(self, digest: bytes, data: bytes) -> None:
        """Keep a blob whose hash has been checked."""
        if digest in self._blobs:
            return
        self._blobs[digest] = data
        self._bytes += len(data)
        while self._bytes > self._bytes_max and len(self._blobs) > 1:
            _, old = self._blobs.popitem(last=False)
            self._bytes -= len(old)


class BlobExchange:
    """Serves blobs over links, fetching those that are not in the cache."""

    def __init__(self, bytes_max: int, load: Load) -> None:
        self.cache = BlobCache(bytes_max)
        self._load = load
        self._loading: dict[bytes, asyncio.Task[bytes]] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._asked: Counter[Link] = Counter()
        self._sending = asyncio.Semaphore(SENDING_MAX)

    def keep(self, blobs: Sequence[link_pb2.Blob]) -> None:
        """Cache attachments of a broadcast."""
        for blob in blobs:
            if hashlib.sha256(blob.data).digest() == blob.sha256:
                self.cache.put(blob.sha256, blob.data)
            else:
                log.warning("an attached blob does not match its hash and was dropped")

    async def get(self, digest: bytes, source: Link | None = None) -> bytes:
        """The blob. Raises `BlobUnavailable`."""
        kept = self.cache.find(digest)
        if kept is not None:
            return kept
        task = self._loading.get(digest)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._fetch(digest, source))
            self._loading[digest] = task
            task.add_done_callback(lambda done: self._on_loaded(digest, done))
        return await asyncio.shield(task)

    def _on_loaded(self, digest: bytes, task: asyncio.Task[bytes]) -> None:
        del self._loading[digest]
        if not task.cancelled():
            # Every caller may have gone meanwhile.
            task.exception()

    async def _fetch(self, digest: bytes, source: Link | None) -> bytes:
        try:
            data = await self._load(digest, source)
        except BlobUnavailable:
            raise
        except Exception as error:
            log.exception("blob %s could not be loaded", digest.hex()[:12])
            raise BlobUnavailable(f"blob {digest.hex()[:12]}: {type(error).__name__}: {error}") from error
        if hashlib.sha256(data).digest() != digest:
            raise BlobUnavailable(f"blob {digest.hex()[:12]} came with other content")
        self.cache.put(digest, data)
        return data

    def on_request(self, link: Link, request: link_pb2.BlobRequest) -> None:
        """Send the requested blobs back over the same link, on its bulk lane."""
        room = min(ASKED_PER_LINK_MAX - self._asked[link], ASKED_MAX - self._asked.total())
        digests = request.sha256[:room]
        beyond = request.sha256[room:]
        if beyond:
            log.warning(
                "%s asks for too many blobs at once: %d are not served", link.peer.process, len(beyond)
            )
            for digest in beyond:
                _send_missing(link, digest)
        if not digests:
            return
        self._asked[link] += len(digests)
        task = asyncio.get_running_loop().create_task(self._serve(link, digests))
        self._serving.add(task)
        task.add_done_callback(lambda done: self._on_served(link, len(digests), done))

    def _on_served(self, link: Link, count: int, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        self._asked[link] -= count
        if not self._asked[link]:
            del self._asked[link]

    async def _serve(self, link: Link, digests: Sequence[bytes]) -> None:
        for digest in digests:
            if link.closed.is_set():
                return
            try:
                await self._serve_one(link, digest)
            except LinkClosed:
                return
            except Exception:
                log.exception("blob %s could not be sent to %s", digest.hex()[:12], link.peer.process)
                _send_missing(link, digest)

    async def _serve_one(self, link: Link, digest: bytes) -> None:
        try:
            # What takes long to be loaded keeps no place from those that are here already.
            await self.get(digest)
            async with self._sending:
                data = await self.get(digest)
                # A peer that takes nothing is waiting for it no longer.
                async with asyncio.timeout(FETCH_TIMEOUT_S):
                    await _send(link, digest, data)
        except BlobUnavailable as error:
            log.warning("a blob cannot be served: %s", str(error))
            _send_missing(link, digest)
        except TimeoutError:
            log.warning("%s takes no blobs: blob %s was given up", link.peer.process, digest.hex()[:12])

    async def close(self) -> None:
        """Cancel fetches under way."""
        tasks = [*self._serving, *self._loading.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _send_missing(link: Link, digest: bytes) -> None:
    link.send(link_pb2.Item(blob_chunk=link_pb2.BlobChunk(sha256=digest, missing=True)))


async def _send(link: Link, digest: bytes, data: bytes) -> None:
    for offset in range(0, max(len(data), 1), CHUNK_BYTES):
        chunk = link_pb2.BlobChunk(
            sha256=digest, offset=offset, total=len(data), data=data[offset : offset + CHUNK_BYTES]
        )
        await link.send_bulk(link_pb2.Item(blob_chunk=chunk))


class LinkLoader:
    """Fetches blobs over a link; feed it the chunks that arrive. `load` is a `Load`."""

    def __init__(self, default: Callable[[], Link | None]) -> None:
        self._default = default
        self._waiting: dict[bytes, asyncio.Future[bytes]] = {}
        self._parts: dict[bytes, bytearray] = {}

    async def load(self, digest: bytes, source: Link | None) -> bytes:
        """Ask `source`, else the default link."""
        link = source if source is not None and not source.closed.is_set() else self._default()
        if link is None:
            raise BlobUnavailable(f"blob {digest.hex()[:12]}: no peer can supply it")
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[digest] = future
        self._parts[digest] = bytearray()
        try:
            link.send(link_pb2.Item(blob_request=link_pb2.BlobRequest(sha256=[digest])))
            async with asyncio.timeout(FETCH_TIMEOUT_S):
                return await future
        except TimeoutError:
            raise BlobUnavailable(f"blob {digest.hex()[:12]} did not come in {FETCH_TIMEOUT_S:g} s") from None
        finally:
            del self._waiting[digest]
            del self._parts[digest]

    async def load_from(self, digest: bytes, link: Link) -> bytes | None:
        """The blob from this link; None when the link ended before."""
        loading = asyncio.create_task(self.load(digest, link))
        ended = asyncio.create_task(link.closed.wait())
        try:
            await asyncio.wait({loading, ended}, return_when=asyncio.FIRST_COMPLETED)
            if link.closed.is_set() and (not loading.done() or loading.exception() is not None):
                return None
            return loading.result()
        finally:
            loading.cancel()
            ended.cancel()
            await asyncio.gather(loading, ended, return_exceptions=True)

    def on_chunk(self, chunk: link_pb2.BlobChunk) -> None:
        """Take a part; parts of unrequested blobs are dropped."""
        future = self._waiting.get(chunk.sha256)
        if future is None or future.done():
            return
        parts = self._parts[chunk.sha256]
        if chunk.missing or chunk.total > BLOB_BYTES_MAX or chunk.offset != len(parts):
            future.set_exception(BlobUnavailable(f"blob {chunk.sha256.hex()[:12]} is not to be had"))
            return
        parts += chunk.data
        if len(parts) >= chunk.total:
            future.set_result(bytes(parts))
