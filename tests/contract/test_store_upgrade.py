"""A database of a release before is brought forward with all that is in it.

Goal: no job is lost by an upgrade. Method: the kept databases of schema versions 1 and 2 (tests/contract/v1, v2) are loaded,
read as they are, opened by this release, and must give the state that replaying their log gives. Both databases; with and
without the index that only the last release of version 1 made.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from sqlalchemy import Connection, inspect

from eslurm.core.model import facts
from eslurm.core.state.apply import apply
from eslurm.core.state.cluster import State
from eslurm.ports.store import (
    AccountingQuery,
    Claim,
    Leader,
    LeadershipTaken,
    RecordRow,
    SchemaTooNew,
    Store,
)
from eslurm.replay.state_check import check as check_invariants
from eslurm.store.engines import writing_engine
from eslurm.store.rows import load
from eslurm.store.schema import SCHEMA_VERSION, bring_up_to_date, check
from eslurm.store.sql import SqlStore
from tests.kits.mirror import picture, unfinished
from tests.kits.store import batch, collect, viewed
from tests.support import postgres
from tests.support.loops import run

OWNER, CLUSTER = "main", "root-387871"
AT_US = 1_795_236_526_848_692
SEEN = {1: Leader(1, 40, AT_US), 2: Leader(2, 40, AT_US, "c1", "here:1", beat=1)}
"""The leader row of each version's database."""


def kept(version: int) -> Path:
    """The directory with the database of a version."""
    return Path(__file__).parent / f"v{version}"


@contextmanager
def on_sqlite(version: int, directory: Path) -> Iterator[str]:
    path = directory / "store.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((kept(version) / "sqlite.sql").read_text())
    yield f"sqlite:///{path}"


@contextmanager
def on_postgresql(version: int, _: Path) -> Iterator[str]:
    server = postgres.shared_server()
    name = server.create()
    with closing(sqlite3.connect(":memory:")) as rows, psycopg.connect(server.dsn(name)) as connection:
        rows.executescript((kept(version) / "sqlite.sql").read_text())
        connection.execute((kept(version) / "postgresql.sql").read_text())
        for (table,) in rows.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            _copy(rows, connection, table)
    try:
        yield server.url(name)
    finally:
        server.drop(name)


def _copy(rows: sqlite3.Connection, connection: psycopg.Connection[Any], table: str) -> None:
    found = rows.execute(f"SELECT * FROM {table}")
    names = [column[0] for column in found.description]
    values = [
        [
            bool(value) if name in ("finished", "released") else value
            for name, value in zip(names, row, strict=True)
        ]
        for row in found
    ]
    if values:
        connection.cursor().executemany(
            f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(names))})", values
        )


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def version(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


@pytest.fixture(params=[on_sqlite, on_postgresql], ids=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, version: int, tmp_path: Path) -> Iterator[str]:
    with request.param(version, tmp_path) as url:
        yield url


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    engine = writing_engine(url)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


async def with_views(url: str, count: int, test: Callable[..., Awaitable[None]]) -> None:
    """Runs a test with so many views of the database, as that many processes would have them."""
    async with AsyncExitStack() as views:
        await test(*[await views.enter_async_context(viewed(url, CLUSTER)) for _ in range(count)])


async def replayed(store: Store) -> State:
    state = State(OWNER)
    for logged in await collect(store.load_facts(OWNER, 1)):
        fact = facts.decode_fact(logged.kind, logged.version, logged.blob)
        apply(state, fact, logged.revision, logged.at_us)
        state.take_touched()
    return state


def test_every_job_is_there_after_the_upgrade_and_the_log_goes_on(url: str, version: int) -> None:
    async def test(store: SqlStore) -> None:
        before = picture(await load(store, OWNER))
        epoch = SEEN[version].epoch + 1
        assert await store.open(OWNER, Claim("c1", "here:1", await store.leader(OWNER))) == epoch
        state = await load(store, OWNER)
        assert picture(state) == before
        assert Counter(job.state.value for job in state.jobs.values()) == {"RUNNING": 3, "PENDING": 3}
        check_invariants(state)
        living = await replayed(store)
        # The releases before did not count what was used, nor keep what agents offer: they tell it when they register.
        nodes = {
            number: replace(node, offered=(), boot_incarnation=0) for number, node in living.nodes.items()
        }
        assert unfinished(living) | {"usage": {}, "nodes": nodes} == unfinished(state)
        assert [job.state for job in await store.find_jobs(OWNER, [1, 2, 11])] == [
            "COMPLETED",
            "FAILED",
            "COMPLETED",
        ]
        page = await store.accounting(OWNER, AccountingQuery(job_ids=(3,)))
        assert [attempt.job_id for attempt in page.attempts] == [3, 4, 5, 6, 7]
        row = RecordRow("qos", "high", 41, b"q")
        await store.commit(batch(41, at_us=AT_US, rows=[row]))
        await store.renew()
        assert await store.leader(OWNER) == Leader(epoch, 41, AT_US, "c1", "here:1", beat=1)
        assert row in await collect(store.load_unfinished(OWNER))

    run(with_views(url, 1, test))


def test_a_standby_reads_the_older_database_before_and_while_it_is_brought_forward(
    url: str, version: int
) -> None:
    async def test(standby: SqlStore, preemptor: SqlStore) -> None:
        assert await standby.leader(OWNER) == SEEN[version]
        assert await standby.leader(OWNER) == SEEN[version]
        assert len(await collect(standby.load_facts(OWNER, 1))) == 40
        before = picture(await load(standby, OWNER))
        await preemptor.open(OWNER, Claim("c2", "", SEEN[version]))
        assert await standby.leader(OWNER) == Leader(SEEN[version].epoch + 1, 40, AT_US, "c2")
        assert picture(await load(standby, OWNER)) == before

    run(with_views(url, 2, test))


def test_a_claim_that_fails_leaves_the_older_version_to_its_release(url: str, version: int) -> None:
    async def test(store: SqlStore) -> None:
        with pytest.raises(LeadershipTaken):
            await store.open(OWNER, Claim("c2", "", Leader(1, 39, AT_US)))

    run(with_views(url, 1, test))
    with connected(url) as connection:
        assert check(connection, CLUSTER) == version


def test_the_release_before_refuses_what_has_been_brought_forward(url: str, version: int) -> None:
    with connected(url) as connection:
        bring_up_to_date(connection, CLUSTER)
    with (
        connected(url) as connection,
        pytest.raises(SchemaTooNew, match=f"version {SCHEMA_VERSION}.*up to {version}"),
    ):
        check(connection, CLUSTER, version=version)


def shape(connection: Connection) -> dict[str, tuple[list[Any], list[Any], Any]]:
    """Per table its columns, indexes and key, as the database describes them."""
    found = inspect(connection)
    return {
        name: (
            [
                (each["name"], str(each["type"]), each["nullable"], each["default"])
                for each in found.get_columns(name)
            ],
            sorted(
                (each["name"], each["column_names"], _where(each.get("dialect_options", {})))
                for each in found.get_indexes(name)
            ),
            found.get_pk_constraint(name)["constrained_columns"],
        )
        for name in found.get_table_names()
    }


def _where(options: Mapping[str, Any]) -> list[str]:
    return [str(value) for name, value in options.items() if name.endswith("_where")]


@pytest.mark.parametrize("has_index", [True, False])
def test_a_migrated_database_has_the_tables_of_a_new_one(
    url: str, version: int, has_index: bool, tmp_path: Path
) -> None:
    with connected(url) as connection:
        if version == 1 and not has_index:
            connection.exec_driver_sql("DROP INDEX jobs_by_array")
    with connected(url) as connection:
        bring_up_to_date(connection, CLUSTER)
        migrated = shape(connection)
    with fresh(url, tmp_path) as made, connected(made) as connection:
        bring_up_to_date(connection, CLUSTER)
        assert shape(connection) == migrated


@contextmanager
def fresh(url: str, directory: Path) -> Iterator[str]:
    if url.startswith("sqlite"):
        yield f"sqlite:///{directory / 'fresh.db'}"
    else:
        with postgres.database() as made:
            yield made


def test_controllers_that_bring_it_forward_at_once_do_not_meet(url: str, version: int) -> None:
    async def test(*stores: SqlStore) -> None:
        outcomes = await asyncio.gather(
            *(store.open(OWNER, Claim(f"c{n}", "", SEEN[version])) for n, store in enumerate(stores)),
            return_exceptions=True,
        )
        assert [outcome for outcome in outcomes if not isinstance(outcome, LeadershipTaken)] == [
            SEEN[version].epoch + 1
        ]

    run(with_views(url, 4, test))
