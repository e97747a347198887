"""A writer of a SQLite file that was stopped in the middle of a commit keeps nobody out, and nobody else is ended."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest

from eslurm.ports.store import Batch, Claim, FactRow
from eslurm.store import sqlite
from eslurm.store.sql import SqlStore
from eslurm.store.stopped import end_stopped_writer
from tests.support.loops import run

OWNER = "ctl0"
PATIENCE_S = 30.0
FACT = FactRow("f", 1, b"f")
LEADER = """
import asyncio, signal, sys, threading
from eslurm.ports.store import Batch, Claim, FactRow
from eslurm.store.sql import SqlStore
from eslurm.store.writer import Writer

as_it_was = getattr(Writer, sys.argv[2])

def stop(self, *arguments):
    setattr(Writer, sys.argv[2], as_it_was)
    try:
        return as_it_was(self, *arguments)
    finally:
        # To this very thread: one sent to the process stops the main thread first, and this one may still commit.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

async def main():
    store = SqlStore("sqlite:///" + sys.argv[1], "c1")
    await store.open("ctl0", Claim("old", "", await store.leader("ctl0")))
    await store.commit(Batch(1, 1, [FactRow("f", 1, b"f")]))
    setattr(Writer, sys.argv[2], stop)
    for attempt in range(2):
        try:
            await store.commit(Batch(2, 2, [FactRow("old", 1, b"f")]))
        except Exception as error:
            print(type(error).__name__, flush=True)
            break
    await store.close()

asyncio.run(main())
"""
VISITOR = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE" if sys.argv[2] == "writes" else "BEGIN")
connection.execute("SELECT * FROM t").fetchall()
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def child(program: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def stopped(process: subprocess.Popen[str]) -> None:
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)


@asynccontextmanager
async def unopened(path: Path) -> AsyncIterator[SqlStore]:
    store = SqlStore(f"sqlite:///{path}", "c1")
    try:
        yield store
    finally:
        await store.close()


async def take_over(path: Path) -> None:
    async with unopened(path) as store:
        seen = await store.leader(OWNER)
        assert (seen.epoch, seen.revision, seen.holder) == (1, 1, "old")
        assert await store.open(OWNER, Claim("new", "", seen)) == 2
        await store.commit(Batch(2, 2, [FACT]))
        found = [fact async for chunk in store.load_facts(OWNER, 1) for fact in chunk]
        assert [(fact.revision, fact.kind, fact.epoch) for fact in found] == [(1, "f", 1), (2, "f", 2)]


@pytest.mark.parametrize("where", ["_advance", "_put_blobs"])
def test_a_leader_stopped_in_the_middle_of_a_commit_is_ended_by_who_follows(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who waited for a lock that nobody lets go would wait longer than a test may take.
    monkeypatch.setattr(sqlite, "_PRAGMAS", (*sqlite._PRAGMAS, "PRAGMA busy_timeout=3600000"))
    with child(LEADER, str(tmp_path / "db"), where) as leader:
        stopped(leader)
        run(take_over(tmp_path / "db"))
        assert leader.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_leader_stopped_between_two_commits_is_left_alone_and_learns_of_it(tmp_path: Path) -> None:
    with child(LEADER, str(tmp_path / "db"), "commit") as leader:
        stopped(leader)

        # Its second commit is done: what it does next comes too late.
        async def follow() -> None:
            async with unopened(tmp_path / "db") as store:
                assert await store.open(OWNER, Claim("new", "", await store.leader(OWNER))) == 2
                await store.commit(Batch(3, 3, [FACT]))

        run(follow())
        leader.send_signal(signal.SIGCONT)
        assert leader.stdout is not None
        assert leader.stdout.read() == "FenceLost\n"
        assert leader.wait(PATIENCE_S) == 0


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Path]:
    with closing(sqlite3.connect(tmp_path / "db")) as connection:
        connection.executescript("PRAGMA journal_mode=WAL; CREATE TABLE t (x);")
        yield tmp_path / "db"


@pytest.mark.parametrize(("does", "is_stopped"), [("writes", False), ("reads", True)])
def test_who_goes_on_or_keeps_nobody_out_is_left_alone(database: Path, does: str, is_stopped: bool) -> None:
    with child(VISITOR, str(database), does) as visitor:
        assert visitor.stdout is not None
        assert visitor.stdout.readline() == "ready\n"
        if is_stopped:
            visitor.send_signal(signal.SIGSTOP)
            stopped(visitor)
        assert end_stopped_writer(str(database)) == 0
        assert visitor.poll() is None


def test_who_holds_the_lock_of_another_file_is_left_alone(database: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE t (x)")
        with child(VISITOR, str(other), "writes") as visitor:
            assert visitor.stdout is not None
            assert visitor.stdout.readline() == "ready\n"
            visitor.send_signal(signal.SIGSTOP)
            stopped(visitor)
            assert end_stopped_writer(str(database)) == 0
            assert visitor.poll() is None
            assert end_stopped_writer(str(other)) == visitor.pid
            assert visitor.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_file_that_is_not_there_is_held_by_nobody(tmp_path: Path) -> None:
    assert end_stopped_writer(str(tmp_path / "none")) == 0
