"""Versions of the database: created, brought forward, refused."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, text

from eslurm.ports.store import ROW_TYPES, Batch, ForeignStore, LoggedFact, SchemaTooNew, StoreFailed
from eslurm.store.engines import writing_engine
from eslurm.store.schema import FACTS, METADATA, ROW_TABLES, SCHEMA_VERSION, bring_up_to_date, check
from eslurm.store.sql import SqlStore
from tests.support.loops import run


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = writing_engine(f"sqlite:///{tmp_path / 'store.db'}")
    yield engine
    engine.dispose()


def add_colour(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE jobs ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'"))


def test_columns_follow_the_fields_of_their_structs() -> None:
    for row_type in ROW_TYPES:
        columns = [column.name for column in ROW_TABLES[row_type.TABLE].columns]
        assert columns == ["owner", *row_type.__struct_fields__]
    assert [column.name for column in FACTS.columns] == ["owner", *LoggedFact.__struct_fields__]


def test_the_key_columns_are_what_the_rows_call_their_key() -> None:
    for row_type in ROW_TYPES:
        row = row_type(*range(len(row_type.__struct_fields__)))
        keys = [column.name for column in ROW_TABLES[row_type.TABLE].primary_key.columns]
        assert keys[0] == "owner"
        assert row.key == tuple(getattr(row, name) for name in keys[1:])


def test_every_table_but_meta_names_the_owner() -> None:
    for table in METADATA.sorted_tables:
        assert table.name == "meta" or "owner" in table.columns


def test_a_fresh_database_gets_the_current_version_once(engine: Engine) -> None:
    for _ in range(2):
        with engine.begin() as connection:
            bring_up_to_date(connection, "c1")
    with engine.begin() as connection:
        assert check(connection, "c1") == SCHEMA_VERSION


def test_migrations_run_forward_and_only_once(engine: Engine) -> None:
    with engine.begin() as connection:
        bring_up_to_date(connection, "c1", version=1)
    for _ in range(2):
        with engine.begin() as connection:
            bring_up_to_date(connection, "c1", version=2, migrations={1: add_colour})
    with engine.begin() as connection:
        assert check(connection, "c1", version=2) == 2
        assert connection.execute(text("SELECT count(colour) FROM jobs")).scalar() == 0


def test_a_failing_migration_leaves_the_old_version(engine: Engine) -> None:
    def broken(connection: Connection) -> None:
        add_colour(connection)
        raise StoreFailed("broken")

    with engine.begin() as connection:
        bring_up_to_date(connection, "c1", version=1)
    with pytest.raises(StoreFailed, match="broken"), engine.begin() as connection:
        bring_up_to_date(connection, "c1", version=2, migrations={1: broken})
    with engine.begin() as connection:
        assert check(connection, "c1") == 1
        bring_up_to_date(connection, "c1", version=2, migrations={1: add_colour})


def test_a_missing_migration_is_named(engine: Engine) -> None:
    with engine.begin() as connection:
        bring_up_to_date(connection, "c1", version=1)
    with pytest.raises(StoreFailed, match="no migration from schema version 2"), engine.begin() as connection:
        bring_up_to_date(connection, "c1", version=3, migrations={1: add_colour})


def test_a_newer_database_is_refused_for_writing_and_reading(engine: Engine, tmp_path: Path) -> None:
    with engine.begin() as connection:
        bring_up_to_date(connection, "c1", version=SCHEMA_VERSION + 1)

    async def use() -> None:
        store = SqlStore(f"sqlite:///{tmp_path / 'store.db'}", "c1")
        with pytest.raises(SchemaTooNew, match=f"version {SCHEMA_VERSION + 1}.*up to {SCHEMA_VERSION}"):
            await store.open("ctl0")
        with pytest.raises(SchemaTooNew):
            await store.lookup_request(b"x" * 16)
        with pytest.raises(StoreFailed, match="not opened"):
            await store.commit(Batch(1, 1))
        await store.close()

    run(use())


def test_somebody_elses_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE guests (name TEXT)")
    other.close()

    async def use() -> None:
        store = SqlStore(f"sqlite:///{path}", "c1")
        with pytest.raises(ForeignStore, match="guests"):
            await store.open("ctl0")
        await store.close()

    run(use())


def test_an_empty_database_cannot_be_read(tmp_path: Path) -> None:
    async def use() -> None:
        store = SqlStore(f"sqlite:///{tmp_path / 'store.db'}", "c1")
        with pytest.raises(StoreFailed, match="empty"):
            await store.lookup_request(b"x" * 16)
        await store.close()

    run(use())


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://host/db"])
def test_a_url_that_names_no_file_is_refused(url: str) -> None:
    with pytest.raises(StoreFailed, match="sqlite:///PATH"):
        writing_engine(url)


def test_only_its_user_may_read_the_files(engine: Engine, tmp_path: Path) -> None:
    with engine.begin() as connection:
        bring_up_to_date(connection, "c1")
        files = list(tmp_path.iterdir())
    assert {"store.db", "store.db-wal"} <= {file.name for file in files}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files if file.exists()} == {0o600}
