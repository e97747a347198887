"""A controller killed in the middle of its stream of commits loses nothing it was told is stored.

Goal: durability across SIGKILL with the real database and a real process. Method: a child commits batches as
fast as it can and prints each revision after its commit returned; the parent kills it once enough are printed,
opens the database again and compares.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from eslurm.ports.store import Batch, FactRow, Head, JobRow, SnapshotRow
from eslurm.store.sql import SqlStore
from tests.support.loops import run

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


@pytest.mark.parametrize("acknowledgements", [1, 2, 60])
def test_nothing_acknowledged_is_lost(tmp_path: Path, acknowledgements: int) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"

    async def check(lives: int, acknowledged: int) -> int:
        store = SqlStore(url, "c1")
        facts = [fact async for chunk in store.load_facts("ctl0", 1) for fact in chunk]
        last = len(facts)
        assert last >= acknowledged
        assert last % FACTS == 0, "a batch is there completely or not at all"
        assert [fact.revision for fact in facts] == list(range(1, last + 1))
        rows: list[SnapshotRow] = [row async for chunk in store.load_unfinished("ctl0") for row in chunk]
        expected: Sequence[SnapshotRow] = [row for n in range(last // FACTS) for row in _jobs(n)]
        assert rows == [Head(lives, last, 1_000 + last // FACTS - 1), *expected]
        await store.close()
        return last // FACTS

    number = 0
    for life in (1, 2):
        acknowledged = _write_until_killed(url, number, acknowledgements)
        number = run(check(life, acknowledged))


def _jobs(number: int) -> list[SnapshotRow]:
    return [row for row in numbered(number).rows if isinstance(row, JobRow)]
