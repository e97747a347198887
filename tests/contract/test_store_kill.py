"""A controller, or its database, killed in the middle of a stream of commits: nothing is lost that was acknowledged.

Goal: durability with the real databases and real processes. Method: a child commits batches as fast as it can and
prints each revision after its commit returned; the parent kills it once enough are printed, opens the database again and
compares. The PostgreSQL server is killed under a writer that goes on when it is back.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from eslurm.ports.store import Batch, FactRow, Head, JobRow, SnapshotRow, StoreUnavailable
from eslurm.store.sql import SqlStore
from tests.kits.store import viewed
from tests.support import postgres
from tests.support.loops import run

# Servers of their own that start, die and recover.
pytestmark = pytest.mark.timeout(240)

ROOT = Path(__file__).parents[2]
FACTS = 7

WRITER = """
import asyncio, sys
from eslurm.store.sql import SqlStore
from tests.contract.test_store_kill import numbered

async def main():
    store = SqlStore(sys.argv[1], "c1")
    await store.open("ctl0")
    number = int(sys.argv[2])
    while True:
        made = numbered(number)
        await store.commit(made)
        print(made.revision_last, flush=True)
        number += 1

asyncio.run(main())
"""


def numbered(number: int) -> Batch:
    """The n-th batch, from 0: every revision has its fact, and the job of the same number."""
    first = number * FACTS + 1
    revisions = range(first, first + FACTS)
    return Batch(
        first,
        1_000 + number,
        [FactRow("job_submitted", 1, b"%d" % revision) for revision in revisions],
        [
            JobRow(revision, "PENDING", "ann", "p", "n", 0, 1, 0, False, revision, b"x" * 900)
            for revision in revisions
        ],
    )


def _write_until_killed(url: str, number: int, acknowledgements: int) -> int:
    """Starts a writer at batch `number`, kills it, and returns the last revision it acknowledged."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, url, str(number)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for _ in range(acknowledgements):
            assert child.stdout.readline()
        # By now the next commit is under way.
        child.kill()
        # What it printed before it died was acknowledged too; a line cut short was not.
        rest = child.stdout.read().splitlines(keepends=True)
    return max([(number + acknowledgements) * FACTS, *(int(line) for line in rest if line.endswith("\n"))])


@contextmanager
def _sqlite(directory: Path) -> Iterator[str]:
    yield f"sqlite:///{directory / 'store.db'}"


@contextmanager
def _postgresql(_: Path) -> Iterator[str]:
    with postgres.own_server(durable=True) as server:
        yield server.url(server.create())


@pytest.fixture(params=[_sqlite, _postgresql], ids=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with request.param(tmp_path) as url:
        yield url


async def _check(store: SqlStore, epoch: int, acknowledged: int) -> int:
    """The number of batches that are there; each completely, and all up to the last one acknowledged."""
    facts = [fact async for chunk in store.load_facts("ctl0", 1) for fact in chunk]
    last = len(facts)
    assert last >= acknowledged
    assert last % FACTS == 0, "a batch is there completely or not at all"
    assert [fact.revision for fact in facts] == list(range(1, last + 1))
    rows: list[SnapshotRow] = [row async for chunk in store.load_unfinished("ctl0") for row in chunk]
    expected: Sequence[SnapshotRow] = [row for n in range(last // FACTS) for row in _jobs(n)]
    assert rows == [Head(epoch, last, 1_000 + last // FACTS - 1), *expected]
    return last // FACTS


@pytest.mark.parametrize("acknowledgements", [1, 2, 60])
def test_nothing_acknowledged_is_lost(url: str, acknowledgements: int) -> None:
    async def check(acknowledged: int) -> int:
        async with viewed(url) as store:
            # What the dead writer had under way is decided by now: a server may finish it without its client.
            return await _check(store, await store.open("ctl0"), acknowledged)

    number = 0
    for _ in (1, 2):
        acknowledged = _write_until_killed(url, number, acknowledgements)
        number = run(check(acknowledged))


@pytest.mark.parametrize("how", [signal.SIGQUIT, signal.SIGINT], ids=["crash", "restart"])
def test_a_server_that_dies_among_commits_costs_no_acknowledged_one(how: signal.Signals) -> None:
    async def commit(
        store: SqlStore, batch: Batch, server: postgres.Server, dying: asyncio.Task[None]
    ) -> int:
        """Commits as a controller does: again, until it is there. How often it was told to come again."""
        refused = 0
        while True:
            try:
                await store.commit(batch)
            except StoreUnavailable:
                refused += 1
                if refused == 1:
                    await dying
                    with pytest.raises(StoreUnavailable):
                        await store.committed(batch)
                    await asyncio.to_thread(server.start)
            else:
                return refused

    async def test(server: postgres.Server) -> None:
        async with viewed(server.url(server.create())) as store:
            await store.open("ctl0")
            number = refusals = 0
            for _ in range(2):
                for _ in range(20):
                    await store.commit(numbered(number))
                    number += 1
                dying = asyncio.ensure_future(asyncio.to_thread(server.stop, how))
                refused = 0
                while not refused:
                    refused = await commit(store, numbered(number), server, dying)
                    number += 1
                refusals += refused
            assert refusals >= 2
            assert await _check(store, 1, number * FACTS) == number

    with postgres.own_server(durable=True) as server:
        run(test(server))


def _jobs(number: int) -> list[SnapshotRow]:
    return [row for row in numbered(number).rows if isinstance(row, JobRow)]
