"""Backends of the store contract, and the rows that it writes there.

A backend is a place where data stays: `store()` gives one more process's view of it. A further database joins
by one entry in BACKENDS.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from eslurm.lab.sim.disk_store import DiskStore
from eslurm.lab.sim.memory_store import MemoryStore
from eslurm.lab.sim.store_image import StoreImage
from eslurm.ports.store import AttemptRow, Batch, FactRow, JobRow, RowChange, SnapshotRow, StepRow, Store
from eslurm.store.sql import SqlStore
from tests.support.loops import run
from tests.support.postgres import shared_server

T = TypeVar("T")
OWNER = "ctl0"
CLUSTER = "c1"


class Backend:
    """One database, and the views of it that a test has taken."""

    def __init__(self, make: Callable[..., Store], remove: Callable[[], None] = lambda: None) -> None:
        self._make = make
        self._remove = remove
        self._stores: list[Store] = []

    def store(self, *, cluster_id: str = CLUSTER, shared: bool = False) -> Store:
        """One more view, as another process would have it."""
        self._stores.append(self._make(cluster_id=cluster_id, shared=shared))
        return self._stores[-1]

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        """Runs a test on an event loop and closes what it opened."""

        async def run_and_close() -> None:
            try:
                await test
            finally:
                for store in self._stores:
                    await store.close()

        try:
            run(run_and_close())
        finally:
            self._remove()


def _memory(_: Path) -> Backend:
    image = StoreImage(CLUSTER)
    return Backend(lambda cluster_id, shared: MemoryStore(image, cluster_id, shared=shared))


def _disk(_: Path) -> Backend:
    image = DiskStore(seed=1, cluster_id=CLUSTER)
    return Backend(lambda cluster_id, shared: MemoryStore(image, cluster_id, shared=shared))


def _sqlite(directory: Path) -> Backend:
    url = f"sqlite:///{directory / 'store.db'}"
    return Backend(lambda cluster_id, shared: SqlStore(url, cluster_id, shared=shared))


def _postgresql(_: Path) -> Backend:
    server = shared_server()
    name = server.create()
    return Backend(
        lambda cluster_id, shared: SqlStore(server.url(name), cluster_id, shared=shared),
        remove=lambda: server.drop(name),
    )


BACKENDS: dict[str, Callable[[Path], Backend]] = {
    "memory": _memory,
    "disk": _disk,
    "sqlite": _sqlite,
    "postgresql": _postgresql,
}


def job(job_id: int, *, finished: bool = False, state: str = "PENDING", blob: bytes = b"job") -> JobRow:
    return JobRow(job_id, state, "ann", "batch", f"name{job_id}", 0, 100 + job_id, 0, finished, job_id, blob)


def attempt(
    job_id: int, number: int = 1, *, user: str = "ann", state: str = "RUNNING", **times: int
) -> AttemptRow:
    submitted_us, started_us, ended_us = (times.get(name, 0) for name in ("submitted", "started", "ended"))
    return AttemptRow(
        job_id, number, user, "acc", "batch", "n", state, submitted_us, started_us, ended_us, 2, 8, 3, 9, b"a"
    )


def step(job_id: int, number: int, name: str) -> StepRow:
    return StepRow(job_id, number, name, "sim", "RUNNING", 5, 0, 0, 0, b"s")


def batch(
    revision: int, facts: int = 1, rows: Sequence[RowChange] = (), at_us: int = 1_000, **rest: Any
) -> Batch:
    made = [FactRow("job_submitted", 1, b"fact%d" % (revision + index)) for index in range(facts)]
    return Batch(revision, at_us, made, rows, **rest)


@asynccontextmanager
async def viewed(url: str, cluster_id: str = CLUSTER) -> AsyncIterator[SqlStore]:
    """A view of a database that is there, closed whatever becomes of the test."""
    store = SqlStore(url, cluster_id)
    try:
        yield store
    finally:
        await store.close()


async def collect(chunks: AsyncGenerator[Sequence[T], None]) -> list[T]:
    return [row async for chunk in chunks for row in chunk]


async def snapshot(store: Store) -> list[SnapshotRow]:
    return await collect(store.load_unfinished(OWNER))
