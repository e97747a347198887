"""Another process may use the same SQLite file: when it leaves, nothing of ours is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from eslurm.ports.store import Batch, FactRow
from eslurm.store.sql import SqlStore
from tests.support.loops import run

VISIT = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(*connection.execute("SELECT revision FROM leader").fetchone())
connection.close()
"""


def seen_by_another_process(path: Path) -> int:
    """It opens the database, looks, and closes it in good order."""
    done = subprocess.run(
        [sys.executable, "-c", VISIT, str(path)], capture_output=True, text=True, check=True, timeout=30
    )
    return int(done.stdout)


def test_a_visitor_takes_no_commit_with_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "db"
        store = SqlStore(f"sqlite:///{path}", "test")
        await store.open("main")
        for revision in range(1, 4):
            await store.commit(Batch(revision, revision, [FactRow("kind", 1, b"fact")]))
            # A reading connection is opened while the writer holds its locks.
            assert (await store.leader("main")).revision == revision
            assert seen_by_another_process(path) == revision
        await store.close()

    run(scenario())
