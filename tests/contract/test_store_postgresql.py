"""Faults of PostgreSQL: it is gone, closed for writing, locked, or held by a leader that is frozen.

Each outage is StoreUnavailable, for writes and reads, until it is over; then the same store object goes on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, update
from sqlalchemy.exc import DBAPIError

from eslurm.ports.store import (
    AccountingQuery,
    Claim,
    FenceLost,
    JobRow,
    Leader,
    LeadershipTaken,
    Prune,
    StoreFailed,
    StoreUnavailable,
)
from eslurm.store import engines, postgresql, reader
from eslurm.store.schema import LEADER, SCHEMA_VERSION
from eslurm.store.sql import SqlStore
from tests.kits.store import OWNER, batch, collect, job, viewed
from tests.support import postgres
from tests.support.loops import run

# The server may take a while to start.
pytestmark = pytest.mark.timeout(240)

ROOT = Path(__file__).parents[2]
PATIENCE_S = 30
# Before the tests' patience is added to it.
AS_DELIVERED = postgresql._WRITING


@pytest.fixture
def url() -> Iterator[str]:
    with postgres.database() as url:
        yield url


@asynccontextmanager
async def opened(url: str, name: str = "c1") -> AsyncIterator[SqlStore]:
    async with viewed(url) as store:
        await store.open(OWNER, Claim(name, "", await store.leader(OWNER)))
        yield store


@contextmanager
def operator(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A session of somebody else, each statement by itself."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@contextmanager
def transaction(url: str) -> Iterator[Connection]:
    """A leader's transaction that has locked its row, to be ended by the test."""
    engine = engines.writing_engine(url)
    try:
        with engine.connect() as connection:
            assert connection.execute(update(LEADER).values(revision=LEADER.c.revision + 1)).rowcount == 1
            yield connection
    finally:
        engine.dispose()


def end_sessions(connection: psycopg.Connection[Any]) -> None:
    """An administrator's command: all of the database but this session. It waits until they are gone."""
    connection.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


def wait_for_waiter(connection: psycopg.Connection[Any]) -> None:
    """Until some session waits for a lock."""
    found = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    deadline_s = time.monotonic() + PATIENCE_S
    while connection.execute(found).fetchone() == (0,):
        assert time.monotonic() < deadline_s, "nobody waits"
        time.sleep(0.01)


def test_a_server_that_is_gone_is_unavailable_for_all_and_found_again() -> None:
    async def test(server: postgres.Server) -> None:
        url = server.url(server.create())
        async with opened(url) as store:
            await store.commit(batch(1, rows=[job(1)]))
            assert await store.find_jobs(OWNER, [1]) == [job(1)]
            stream = store.load_facts(OWNER, 1)
            server.stop(signal.SIGQUIT)
            for refused in (
                store.commit(batch(2)),
                store.committed(batch(2)),
                store.renew(),
                store.release(),
                store.prune(Prune(0)),
                store.leader(OWNER),
                store.find_jobs(OWNER, [1]),
                store.lookup_request(b"x" * 16),
                collect(stream),
            ):
                with pytest.raises(StoreUnavailable):
                    await refused
            async with viewed(url) as other:
                with pytest.raises(StoreUnavailable):
                    await other.open(OWNER)
            server.start()
            await store.commit(batch(2))
            assert await store.find_jobs(OWNER, [1]) == [job(1)]
            assert len(await collect(store.load_facts(OWNER, 1))) == 2

    with postgres.own_server() as server:
        run(test(server))


def test_sessions_that_an_administrator_ends_are_opened_anew(url: str) -> None:
    async def test() -> None:
        async with opened(url) as store:
            await store.commit(batch(1, rows=[job(1)]))
            stream = store.load_unfinished(OWNER, chunk_rows=1)
            await anext(stream)
            with operator(url) as connection:
                end_sessions(connection)
            with pytest.raises(StoreUnavailable):
                await collect(stream)
            with pytest.raises(StoreUnavailable):
                await store.commit(batch(2))
            await store.commit(batch(2))
            assert await store.find_jobs(OWNER, [1]) == [job(1)]

    run(test())


def test_a_server_closed_for_writing_is_unavailable_for_writing_only(url: str) -> None:
    async def test() -> None:
        async with opened(url) as store:
            await store.commit(batch(1, rows=[job(1)]))
            with operator(url) as connection:
                name = connection.info.dbname
                connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
                end_sessions(connection)
            with pytest.raises(StoreUnavailable):
                await store.commit(batch(2))
            for refused in (store.commit(batch(2)), store.renew(), store.open(OWNER)):
                with pytest.raises(StoreUnavailable, match="read-only"):
                    await refused
            assert await store.find_jobs(OWNER, [1]) == [job(1)]
            with operator(url) as connection:
                connection.execute("SET default_transaction_read_only = off")
                connection.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
            await store.commit(batch(2))

    run(test())


def test_a_lock_that_is_not_given_up_is_unavailable_and_its_own_loss_too(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "_WRITING", (*postgresql._WRITING, "SET lock_timeout = '50ms'"))

    async def test() -> None:
        async with opened(url) as store:
            with operator(url) as other, other.transaction():
                other.execute("LOCK TABLE facts IN ACCESS EXCLUSIVE MODE")
                with pytest.raises(StoreUnavailable, match="lock timeout"):
                    await store.commit(batch(1))
            await store.commit(batch(1))

    run(test())


@pytest.mark.parametrize("moved", [True, False], ids=["commits", "fails"])
def test_a_claim_that_waits_for_a_commit_under_way_loses_to_it_if_it_succeeds(url: str, moved: bool) -> None:
    async def test() -> None:
        async with opened(url) as leader, viewed(url) as standby:
            seen = await leader.leader(OWNER)
            with operator(url) as watch, transaction(url) as under_way:
                claim = asyncio.ensure_future(standby.open(OWNER, Claim("c2", "", seen)))
                await asyncio.to_thread(wait_for_waiter, watch)
                assert not claim.done()
                if moved:
                    under_way.commit()
                    with pytest.raises(LeadershipTaken):
                        await claim
                else:
                    under_way.rollback()
                    assert await claim == 2

    run(test())


def test_whether_an_ambiguous_commit_is_there_is_said_only_when_it_is_decided(url: str) -> None:
    async def test() -> None:
        async with opened(url) as store:
            with operator(url) as watch, transaction(url) as under_way:
                asked = asyncio.ensure_future(store.committed(batch(1)))
                await asyncio.to_thread(wait_for_waiter, watch)
                assert not asked.done()
                under_way.rollback()
                assert await asked is False

    run(test())


FROZEN = """
import asyncio, signal, sys, threading
from eslurm.store.sql import SqlStore
from eslurm.store.writer import Writer
from tests.kits.store import CLUSTER, OWNER, batch
from eslurm.ports.store import Claim, StoreUnavailable

where = sys.argv[2]
as_it_was = getattr(Writer, where)

def freeze(self, *arguments):
    try:
        return as_it_was(self, *arguments)
    finally:
        # To this very thread: one sent to the process stops the main thread first, and this one may still commit.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

async def patiently(ask):
    # Until it is to freeze it may be cut off because the machine stands still.
    while True:
        try:
            return await ask()
        except StoreUnavailable:
            pass

async def main():
    store = SqlStore(sys.argv[1], CLUSTER)
    seen = await patiently(lambda: store.leader(OWNER))
    await patiently(lambda: store.open(OWNER, Claim("old", "", seen)))
    await patiently(lambda: store.commit(batch(1)))
    print("ready", flush=True)
    setattr(Writer, where, freeze)
    for attempt in range(2):
        try:
            await store.commit(batch(2, facts=3))
            print("committed", flush=True)
        except Exception as error:
            print(type(error).__name__, flush=True)
        setattr(Writer, where, as_it_was)
    await store.close()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "where", ["_advance", "_put_blobs"], ids=["between two statements", "while it sends statements"]
)
def test_a_leader_frozen_in_the_middle_of_a_commit_keeps_nobody_out_and_harms_nothing_when_it_wakes(
    url: str, where: str
) -> None:
    async def take_over() -> None:
        async with viewed(url) as store:
            seen = await store.leader(OWNER)
            assert (seen.epoch, seen.revision, seen.holder) == (1, 1, "old")
            assert await store.open(OWNER, Claim("new", "", seen)) == 2
            await store.commit(batch(2))

    async def check() -> None:
        async with viewed(url) as store:
            assert [(fact.revision, fact.epoch) for fact in await collect(store.load_facts(OWNER, 1))] == [
                (1, 1),
                (2, 2),
            ]
            assert await store.leader(OWNER) == Leader(2, 2, 1_000, "new")

    with subprocess.Popen(
        [sys.executable, "-c", FROZEN, url, where], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        try:
            run(take_over())
        finally:
            child.send_signal(signal.SIGCONT)
        assert child.stdout.read().split() == ["StoreUnavailable", "FenceLost"]
    assert child.returncode == 0
    run(check())


def test_the_sessions_are_durable_bounded_and_for_reading_read_only(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "_WRITING", AS_DELIVERED)
    writing, reading = engines.writing_engine(url), engines.reading_engine(url, 1)
    expected = {
        "synchronous_commit": "on",
        "transaction_isolation": "read committed",
        "idle_in_transaction_session_timeout": "2s",
        "lock_timeout": "4s",
        "statement_timeout": "0",
        "application_name": "eslurm",
    }
    try:
        with writing.begin() as connection:
            found = {name: connection.exec_driver_sql(f"SHOW {name}").scalar() for name in expected}
            assert found == expected
        with reading.begin() as connection:
            assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "repeatable read"
            with pytest.raises(DBAPIError, match="read-only"):
                connection.exec_driver_sql("CREATE TABLE t (x int)")
    finally:
        writing.dispose()
        reading.dispose()


def test_what_the_url_says_itself_holds(url: str) -> None:
    engine = engines.writing_engine(f"{url}&application_name=mine&connect_timeout=9")
    try:
        with engine.begin() as connection:
            assert connection.exec_driver_sql("SHOW application_name").scalar() == "mine"
    finally:
        engine.dispose()


def test_a_server_that_cannot_be_reached_is_unavailable_and_the_password_stays_out_of_it(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        for url in (
            f"postgresql://ann:s3cret@/db?host={tmp_path}",
            f"postgresql://ann@/db?host={tmp_path}&password=s3cret",
        ):
            async with viewed(url) as store:
                with pytest.raises(StoreUnavailable) as raised:
                    await store.open(OWNER)
            assert "s3cret" not in f"{raised.value!r} {raised.value.__cause__!r} {engines.shown(url)}"
            assert "ann" in engines.shown(url)

    run(test())


def test_a_database_of_somebody_else_is_damaged_by_nobody(url: str) -> None:
    async def test() -> None:
        async with opened(url) as store:
            with operator(url) as connection:
                connection.execute("DROP TABLE facts")
            with pytest.raises(StoreFailed, match="facts"):
                await store.commit(batch(1))
            with pytest.raises(StoreFailed, match="facts"):
                await collect(store.load_facts(OWNER, 1))

    run(test())


def test_a_fact_beyond_the_head_loses_the_fence(url: str) -> None:
    async def test() -> None:
        async with opened(url) as store:
            await store.commit(batch(1))
            with operator(url) as connection:
                connection.execute("INSERT INTO facts VALUES ('ctl0', 3, 1, 'f', 1, '', 1)")
            with pytest.raises(FenceLost, match="beyond"):
                await store.commit(batch(2, facts=2))
            with pytest.raises(FenceLost, match="beyond"):
                await store.commit(batch(2, facts=200))
            await store.commit(batch(2))

    run(test())


HISTORY = """
INSERT INTO attempts SELECT 'ctl0', i, 1, 'u' || i % 50, '', 'p', 'n', 'COMPLETED', i, i, i + 1, 1, 1, 0, 0, ''
FROM generate_series(1, 20000) AS i;
INSERT INTO jobs SELECT 'ctl0', i, 'COMPLETED', 'u', 'p', 'n', CASE WHEN i % 100 = 0 THEN 1 ELSE 0 END, i, i, true, i, ''
FROM generate_series(1, 20000) AS i;
ANALYZE attempts, jobs;
"""


def test_restart_and_a_users_report_do_not_walk_the_history(url: str) -> None:
    async def test() -> None:
        async with opened(url):
            pass

    run(test())
    with operator(url) as connection:
        connection.execute(HISTORY)
    queries = {
        "jobs_unfinished": dict(reader._unfinished(OWNER, SCHEMA_VERSION))[JobRow],
        "attempts_by_user": reader._attempts(
            OWNER, AccountingQuery(user="u7", since_us=15_000, until_us=16_000)
        ),
        "jobs_by_array": reader._attempts(OWNER, AccountingQuery(job_ids=(1,))),
    }
    engine = engines.reading_engine(url, 1)
    try:
        with engine.begin() as connection_:
            for index, query in queries.items():
                text = query.compile(dialect=engine.dialect, compile_kwargs={"literal_binds": True})
                plan = "\n".join(row[0] for row in connection_.exec_driver_sql(f"EXPLAIN {text}"))
                assert index in plan, plan
                assert "Seq Scan on jobs" not in plan, plan
    finally:
        engine.dispose()
