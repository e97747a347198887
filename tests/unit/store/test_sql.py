"""Faults of the SQL store alone: locks, full disks, queues, cancelled calls, query plans."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Select
from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect
from sqlalchemy.exc import OperationalError

from eslurm.ports.store import (
    AccountingQuery,
    Batch,
    FactRow,
    FenceLost,
    JobRow,
    StoreFailed,
    StoreUnavailable,
)
from eslurm.store import engines, reader, sqlite
from eslurm.store.lane import Lane
from eslurm.store.schema import SCHEMA_VERSION
from eslurm.store.sql import SqlStore, _Stream
from tests.support.loops import both_loops, run

OWNER = "ctl0"


def batch(revision: int, facts: int = 1, blob: bytes = b"f") -> Batch:
    return Batch(revision, 1_000, [FactRow("f", 1, blob)] * facts)


def job(job_id: int) -> JobRow:
    return JobRow(job_id, "PENDING", "u", "p", "n", 0, 1, 0, False, 1, b"")


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqlStore]:
    store = SqlStore(f"sqlite:///{path}", "c1")
    try:
        await store.open(OWNER)
        yield store
    finally:
        await store.close()


@contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def test_a_locked_database_is_unavailable_and_a_retry_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_PRAGMAS", (*sqlite._PRAGMAS, "PRAGMA busy_timeout=1"))

    async def test() -> None:
        async with opened(tmp_path / "db") as store:
            with database(tmp_path / "db") as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(StoreUnavailable, match="locked"):
                    await store.commit(batch(1))
                other.execute("ROLLBACK")
            await store.commit(batch(1))
            assert await store.committed(batch(1))

    run(test())


def test_a_connection_waits_for_the_file_when_it_is_the_first_to_switch_it_to_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database(tmp_path / "db") as other:
        other.executescript("CREATE TABLE t (x); BEGIN IMMEDIATE")
        # It waits once, and meanwhile the other one is done.
        monkeypatch.setattr("time.sleep", lambda _: other.rollback())
        engine = engines.writing_engine(f"sqlite:///{tmp_path / 'db'}")
        with engine.begin() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        engine.dispose()


def test_a_file_that_is_never_free_to_be_switched_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_MS", 20)

    async def test() -> None:
        with database(tmp_path / "db") as other:
            other.executescript("CREATE TABLE t (x); BEGIN IMMEDIATE")
            store = SqlStore(f"sqlite:///{tmp_path / 'db'}", "c1")
            with pytest.raises(StoreUnavailable, match="locked"):
                await store.open(OWNER)
            await store.close()

    run(test())


def test_a_full_disk_is_unavailable_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_PRAGMAS", (*sqlite._PRAGMAS, "PRAGMA max_page_count=60"))

    async def test() -> None:
        async with opened(tmp_path / "db") as store:
            await store.commit(batch(1))
            with pytest.raises(StoreUnavailable, match="full"):
                await store.commit(batch(2, facts=200, blob=b"x" * 3_000))
            assert not await store.committed(batch(2, facts=200, blob=b"x" * 3_000))
            await store.commit(batch(2))
            facts = [fact async for chunk in store.load_facts(OWNER, 1) for fact in chunk]
            assert [fact.revision for fact in facts] == [1, 2]

    run(test())


def test_a_fact_beyond_the_head_loses_the_fence(tmp_path: Path) -> None:
    async def test() -> None:
        async with opened(tmp_path / "db") as store:
            await store.commit(batch(1))
            with database(tmp_path / "db") as other:
                other.execute("INSERT INTO facts VALUES ('ctl0', 3, 1, 'f', 1, x'', 1)")
            with pytest.raises(FenceLost, match="beyond"):
                await store.commit(batch(2, facts=2))
            await store.commit(batch(2))

    run(test())


def test_a_damaged_database_fails(tmp_path: Path) -> None:
    async def test() -> None:
        async with opened(tmp_path / "db") as store:
            with database(tmp_path / "db") as other:
                other.execute("DROP TABLE facts")
            with pytest.raises(StoreFailed, match="no such table"):
                await store.commit(batch(1))
            with pytest.raises(StoreFailed, match="no such table"):
                [chunk async for chunk in store.load_facts(OWNER, 1)]

    run(test())


def test_readers_cannot_write_and_the_settings_are_the_durable_ones(tmp_path: Path) -> None:
    engine = engines.writing_engine(f"sqlite:///{tmp_path / 'db'}")
    reading = engines.reading_engine(f"sqlite:///{tmp_path / 'db'}", 1)
    with engine.begin() as connection:
        for pragma, value in (("journal_mode", "wal"), ("synchronous", 2), ("busy_timeout", 5_000)):
            assert connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() == value
    with pytest.raises(OperationalError, match="readonly"), reading.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (x)")
    engine.dispose()
    reading.dispose()


def _plan(path: Path, query: Select[Any]) -> str:
    text = query.compile(dialect=sqlite_dialect(), compile_kwargs={"literal_binds": True})
    with database(path) as connection:
        return " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}"))


def test_restart_and_a_users_report_do_not_walk_the_history(tmp_path: Path) -> None:
    async def test() -> None:
        async with opened(tmp_path / "db"):
            unfinished = dict(reader._unfinished(OWNER, SCHEMA_VERSION))
            assert "INDEX jobs_unfinished" in _plan(tmp_path / "db", unfinished[JobRow])
            report = reader._attempts(OWNER, AccountingQuery(user="u"))
            assert "INDEX attempts_by_user" in _plan(tmp_path / "db", report)
            array = reader._attempts(OWNER, AccountingQuery(job_ids=(17,)))
            assert "INDEX jobs_by_array" in _plan(tmp_path / "db", array)
            queries = (*unfinished.values(), report, array)
            plans = [_plan(tmp_path / "db", query) for query in queries]
            assert not [plan for plan in plans if "SCAN" in plan or "TEMP B-TREE" in plan]

    run(test())


@both_loops
def test_the_store_works_on_each_event_loop(tmp_path: Path, uvloop: bool) -> None:
    async def test() -> None:
        async with opened(tmp_path / "db") as store:
            await store.commit(batch(1, facts=3))
            assert len([fact async for chunk in store.load_facts(OWNER, 1) for fact in chunk]) == 3

    run(test(), uvloop=uvloop)


def test_a_cancelled_commit_is_decided_all_the_same(tmp_path: Path) -> None:
    async def test() -> None:
        async with opened(tmp_path / "db") as store:
            with database(tmp_path / "db") as other:
                other.execute("BEGIN IMMEDIATE")
                commit = asyncio.ensure_future(store.commit(batch(1)))
                await asyncio.sleep(0)
                assert store.waiting == (1, 0)
                commit.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await commit
                other.execute("ROLLBACK")
            await store.commit(batch(1))
            assert await store.committed(batch(1))
            assert [fact.revision async for chunk in store.load_facts(OWNER, 1) for fact in chunk] == [1]
            assert store.waiting == (0, 0)

    run(test())


def test_streams_cancelled_in_mid_step_give_their_connections_back(tmp_path: Path) -> None:
    async def first_chunk(store: SqlStore) -> None:
        async for _ in store.load_unfinished(OWNER, chunk_rows=1):
            pass

    async def test() -> None:
        async with opened(tmp_path / "db") as store:
            await store.commit(Batch(1, 1, rows=[job(number) for number in range(50)]))
            for turns in range(40):
                task = asyncio.ensure_future(first_chunk(store))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
            assert len([row async for chunk in store.load_unfinished(OWNER) for row in chunk]) == 51

    run(test())


@contextmanager
def blocked() -> Iterator[tuple[Callable[[], bool], threading.Event]]:
    """A call that waits until it is told to go on, whatever the test does."""
    go = threading.Event()
    try:
        yield (lambda: go.wait(30)), go
    finally:
        go.set()


def test_a_full_lane_refuses_instead_of_waiting() -> None:
    async def test() -> None:
        lane = Lane("writer", threads=1, waiting_max=2, answer_s=30)
        with blocked() as (call, go):
            waiting = [asyncio.ensure_future(lane.run(call)) for _ in range(2)]
            await asyncio.sleep(0)
            assert lane.waiting == 2
            with pytest.raises(StoreUnavailable, match="2 calls wait"):
                await lane.run(call)
            go.set()
            assert await asyncio.gather(*waiting) == [True, True]
        await lane.close(lambda: None)

    run(test())


def test_a_call_that_does_not_come_back_is_unavailable_and_those_behind_it_too() -> None:
    async def test() -> None:
        lane = Lane("writer", threads=1, waiting_max=9, answer_s=0.05)
        with blocked() as (call, go):
            with pytest.raises(StoreUnavailable, match=r"not answered for 0\.05 s"):
                await lane.run(call)
            with pytest.raises(StoreUnavailable, match="not answered"):
                await lane.run(call)
            assert lane.waiting == 1
            go.set()
            assert await lane.run_to_its_end(call)
        assert lane.waiting == 0
        await lane.close(lambda: None)

    run(test())


def test_a_timeout_of_the_call_itself_stays_what_it_is() -> None:
    def late() -> None:
        raise TimeoutError("its own")

    async def test() -> None:
        lane = Lane("writer", threads=1, waiting_max=9, answer_s=30)
        with pytest.raises(TimeoutError, match="its own"):
            await lane.run(late)
        await lane.close(lambda: None)

    run(test())


def test_closing_a_lane_lets_calls_finish_and_comes_last() -> None:
    async def test() -> None:
        order: list[str] = []
        lane = Lane("writer", threads=1, waiting_max=5, answer_s=30)
        first = asyncio.ensure_future(lane.run(order.append, "call"))
        await asyncio.sleep(0)
        await lane.close(lambda: order.append("last"))
        await lane.close(lambda: order.append("again"))
        await first
        lane.drop(lambda: order.append("dropped"))
        assert order == ["call", "last", "dropped"]
        with pytest.raises(StoreFailed, match="closed"):
            await lane.run(order.append, "late")

    run(test())


def test_closing_a_stream_waits_for_the_step_under_way() -> None:
    started, go = threading.Event(), threading.Event()
    ended: list[str] = []

    def chunks() -> Generator[int, None, None]:
        try:
            started.set()
            go.wait(30)
            yield 1
        finally:
            ended.append("closed")

    stream = _Stream(chunks())
    with ThreadPoolExecutor(2) as threads:
        step = threads.submit(stream.next)
        assert started.wait(30)
        closing = threads.submit(stream.close)
        with pytest.raises(TimeoutError):
            closing.result(timeout=0.05)
        go.set()
        assert step.result(30) == 1
        closing.result(30)
    assert ended == ["closed"]
