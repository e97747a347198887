"""The store that forgets with its process: for simulated clusters and tests.

Invariant: it behaves as the SQL store does, except that nothing survives the image it wraps.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from eslurm.lab.sim.store_image import StoreImage
from eslurm.ports.store import (
    CHUNK_ROWS,
    AccountingPage,
    AccountingQuery,
    Batch,
    Claim,
    ForeignStore,
    JobRow,
    Leader,
    LoggedFact,
    Prune,
    Pruned,
    SnapshotRow,
    StoreFailed,
)

T = TypeVar("T")


class MemoryStore:
    """A `Store` over a `StoreImage`. Several may share one image, as processes share a database."""

    def __init__(
        self, image: StoreImage | None = None, cluster_id: str = "", *, shared: bool = False
    ) -> None:
        self._image = StoreImage(cluster_id) if image is None else image
        self._cluster_id = cluster_id
        self._shared = shared
        self._owner = ""
        self._epoch = 0
        self._closed = False

    async def open(self, owner: str, claim: Claim | None = None) -> int:
        """See `StoreWriter.open`."""
        self._check_open()
        self._epoch = self._image.open(owner, claim, shared=self._shared)
        self._owner = owner
        return self._epoch

    async def renew(self) -> None:
        """See `StoreWriter.renew`."""
        self._check_writer()
        self._image.renew(self._owner, self._epoch)

    async def release(self, successor: str = "") -> None:
        """See `StoreWriter.release`."""
        self._check_writer()
        self._image.release(self._owner, self._epoch, successor)
        self._epoch = 0

    async def commit(self, batch: Batch) -> None:
        """See `StoreWriter.commit`."""
        self._check_writer()
        self._image.commit(self._owner, self._epoch, batch)

    async def committed(self, batch: Batch) -> bool:
        """See `StoreWriter.committed`."""
        self._check_writer()
        return self._image.committed(self._owner, self._epoch, batch)

    async def prune(self, limits: Prune) -> Pruned:
        """See `StoreWriter.prune`."""
        self._check_writer()
        return self._image.prune(self._owner, self._epoch, limits)

    async def close(self) -> None:
        """See `StoreWriter.close`."""
        self._closed = True

    async def load_unfinished(
        self, owner: str, chunk_rows: int = CHUNK_ROWS
    ) -> AsyncGenerator[Sequence[SnapshotRow], None]:
        """See `StoreReader.load_unfinished`."""
        self._check_open()
        for chunk in _chunks(list(self._image.load_unfinished(owner)), chunk_rows):
            yield chunk

    async def load_facts(
        self, owner: str, from_revision: int, chunk_rows: int = CHUNK_ROWS
    ) -> AsyncGenerator[Sequence[LoggedFact], None]:
        """See `StoreReader.load_facts`."""
        self._check_open()
        for chunk in _chunks(self._image.load_facts(owner, from_revision), chunk_rows):
            yield chunk

    async def leader(self, owner: str) -> Leader:
        """See `StoreReader.leader`."""
        self._check_open()
        return self._image.leader(owner)

    async def find_jobs(self, owner: str, job_ids: Sequence[int]) -> list[JobRow]:
        """See `StoreReader.find_jobs`."""
        self._check_open()
        return self._image.find_jobs(owner, job_ids)

    async def accounting(self, owner: str, query: AccountingQuery) -> AccountingPage:
        """See `StoreReader.accounting`."""
        self._check_open()
        return self._image.accounting(owner, query)

    async def lookup_request(self, request_id: bytes) -> bytes | None:
        """See `StoreReader.lookup_request`."""
        self._check_open()
        return self._image.lookup_request(request_id)

    async def get_blob(self, owner: str, hash_: bytes) -> bytes:
        """See `StoreReader.get_blob`."""
        self._check_open()
        return self._image.get_blob(owner, hash_)

    async def get_blobs(self, owner: str, hashes: Collection[bytes], bytes_max: int) -> dict[bytes, bytes]:
        """See `StoreReader.get_blobs`."""
        self._check_open()
        return self._image.get_blobs(owner, hashes, bytes_max)

    async def size_bytes(self) -> int:
        """See `StoreReader.size_bytes`."""
        self._check_open()
        return 0

    def _check_open(self) -> None:
        if self._closed:
            raise StoreFailed("the store is closed")
        if self._image.cluster_id != self._cluster_id:
            raise ForeignStore(
                f"the database belongs to cluster {self._image.cluster_id!r}, not {self._cluster_id!r}"
            )

    def _check_writer(self) -> None:
        self._check_open()
        if not self._epoch:
            raise StoreFailed("the store was not opened for writing")


def _chunks(rows: Iterable[T], chunk_rows: int) -> Iterator[list[T]]:
    """Consecutive lists of at most `chunk_rows`; none is empty."""
    rest = iter(rows)
    while chunk := list(islice(rest, chunk_rows)):
        yield chunk
