"""The store in a SQL database, for an event loop.

Invariant: the event loop never waits for the database. One thread writes, through a bounded queue; two read,
on connections of their own, so a long report delays no commit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Collection, Generator, Sequence
from typing import Generic, TypeVar

from eslurm.ports.store import (
    CHUNK_ROWS,
    AccountingPage,
    AccountingQuery,
    Batch,
    Claim,
    JobRow,
    Leader,
    LoggedFact,
    Prune,
    Pruned,
    SnapshotRow,
    StoreFailed,
)
from eslurm.store.engines import reading_engine, writing_engine
from eslurm.store.lane import Lane
from eslurm.store.reader import Reader
from eslurm.store.writer import Writer

WRITES_WAITING_MAX = 64
READS_WAITING_MAX = 1_024
# Beyond every timeout of the databases themselves, which say more about what is wrong.
WRITE_ANSWER_S = 20.0
READ_ANSWER_S = 90.0
READ_THREADS = 2
STREAMS_MAX = 2

T = TypeVar("T")


class SqlStore:
    """A `Store` behind a database URL. One object writes for at most one owner."""

    def __init__(self, url: str, cluster_id: str, *, shared: bool = False) -> None:
        """`url` is `sqlite:///PATH` or `postgresql://USER:PASSWORD@HOST/DATABASE`, with options as `?sslmode=verify-full`
        and `?host=/SOCKET/DIRECTORY`. `shared` allows other owners in the same database. Opens nothing yet.
        """
        self._writer = Writer(writing_engine(url), cluster_id, shared=shared)
        # Each stream keeps a connection between its chunks; the rest is one per thread, so no call waits for one.
        self._reader = Reader(reading_engine(url, READ_THREADS + STREAMS_MAX), cluster_id)
        self._writes = Lane("store-writer", 1, WRITES_WAITING_MAX, WRITE_ANSWER_S)
        self._reads = Lane("store-reader", READ_THREADS, READS_WAITING_MAX, READ_ANSWER_S)
        self._streams = asyncio.Semaphore(STREAMS_MAX)
        self._opened = False

    async def open(self, owner: str, claim: Claim | None = None) -> int:
        """See `StoreWriter.open`."""
        # Bringing a large database forward takes its time.
        epoch = await self._writes.run_to_its_end(self._writer.open, owner, claim)
        self._opened = True
        return epoch

    async def renew(self) -> None:
        """See `StoreWriter.renew`."""
        self._check_opened()
        await self._writes.run(self._writer.renew)

    async def release(self, successor: str = "") -> None:
        """See `StoreWriter.release`."""
        self._check_opened()
        await self._writes.run(self._writer.release, successor)
        self._opened = False

    async def commit(self, batch: Batch) -> None:
        """See `StoreWriter.commit`."""
        self._check_opened()
        await self._writes.run(self._writer.commit, batch)

    async def committed(self, batch: Batch) -> bool:
        """See `StoreWriter.committed`."""
        self._check_opened()
        return await self._writes.run(self._writer.committed, batch)

    async def prune(self, limits: Prune) -> Pruned:
        """See `StoreWriter.prune`."""
        self._check_opened()
        return await self._writes.run(self._writer.prune, limits)

    async def close(self) -> None:
        """See `StoreWriter.close`."""
        await self._writes.close(self._writer.close)
        await self._reads.close(self._reader.close)

    def load_unfinished(
        self, owner: str, chunk_rows: int = CHUNK_ROWS
    ) -> AsyncGenerator[Sequence[SnapshotRow], None]:
        """See `StoreReader.load_unfinished`."""
        return self._stream(self._reader.load_unfinished(owner, chunk_rows))

    def load_facts(
        self, owner: str, from_revision: int, chunk_rows: int = CHUNK_ROWS
    ) -> AsyncGenerator[Sequence[LoggedFact], None]:
        """See `StoreReader.load_facts`."""
        return self._stream(self._reader.load_facts(owner, from_revision, chunk_rows))

    async def leader(self, owner: str) -> Leader:
        """See `StoreReader.leader`."""
        return await self._reads.run(self._reader.leader, owner)

    async def find_jobs(self, owner: str, job_ids: Sequence[int]) -> list[JobRow]:
        """See `StoreReader.find_jobs`."""
        return await self._reads.run(self._reader.find_jobs, owner, job_ids)

    async def accounting(self, owner: str, query: AccountingQuery) -> AccountingPage:
        """See `StoreReader.accounting`."""
        return await self._reads.run(self._reader.accounting, owner, query)

    async def lookup_request(self, request_id: bytes) -> bytes | None:
        """See `StoreReader.lookup_request`."""
        return await self._reads.run(self._reader.lookup_request, request_id)

    async def get_blob(self, owner: str, hash_: bytes) -> bytes:
        """See `StoreReader.get_blob`."""
        return await self._reads.run(self._reader.get_blob, owner, hash_)

    async def get_blobs(self, owner: str, hashes: Collection[bytes], bytes_max: int) -> dict[bytes, bytes]:
        """See `StoreReader.get_blobs`."""
        return await self._reads.run(self._reader.get_blobs, owner, hashes, bytes_max)

    async def size_bytes(self) -> int:
        """See `StoreReader.size_bytes`."""
        return await self._reads.run(self._reader.size_bytes)

    @property
    def waiting(self) -> tuple[int, int]:
        """Number of calls that wait or run now: (writes, reads), each below its bound."""
        return self._writes.waiting, self._reads.waiting

    def _check_opened(self) -> None:
        if not self._opened:
            raise StoreFailed("the store was not opened for writing")

    async def _stream(self, chunks: Generator[T, None, None]) -> AsyncGenerator[T, None]:
        async with self._streams:
            stream = _Stream(chunks)
            try:
                while (chunk := await self._reads.run(stream.next)) is not None:
                    yield chunk
            finally:
                self._reads.drop(stream.close)


class _Stream(Generic[T]):
    """A generator whose steps run on any reading thread, one at a time.

    The lock matters when a reader is cancelled: the step it waited for may still run when `close` comes.
    """

    def __init__(self, chunks: Generator[T, None, None]) -> None:
        self._chunks = chunks
        self._lock = threading.Lock()

    def next(self) -> T | None:
        """The next chunk, None at the end."""
        with self._lock:
            return next(self._chunks, None)

    def close(self) -> None:
        """Return the generator's connection."""
        with self._lock:
            self._chunks.close()
