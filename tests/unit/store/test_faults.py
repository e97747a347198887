"""Which database errors a retry may cure, and what a URL that cannot work says."""

from __future__ import annotations

import sqlite3
import sys

import psycopg
import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from eslurm.ports.store import StoreError, StoreFailed, StoreUnavailable
from eslurm.store import engines
from eslurm.store.faults import translate


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_BUSY, StoreUnavailable),
        (sqlite3.SQLITE_IOERR_FSYNC, StoreUnavailable),
        (sqlite3.SQLITE_FULL, StoreUnavailable),
        (sqlite3.SQLITE_CORRUPT, StoreFailed),
        (sqlite3.SQLITE_READONLY, StoreFailed),
        (sqlite3.SQLITE_CONSTRAINT, StoreFailed),
    ],
)
def test_errors_tell_whether_to_retry(code: int, kind: type[StoreError]) -> None:
    error = sqlite3.OperationalError("it broke")
    error.sqlite_errorcode = code
    assert type(translate(error)) is kind
    assert type(translate(OperationalError("SELECT", {}, error))) is kind
    assert "it broke" in str(translate(OperationalError("SELECT", {}, error)))


def test_waiting_for_a_connection_too_long_is_unavailable() -> None:
    assert type(translate(PoolTimeout("none free"))) is StoreUnavailable


UNAVAILABLE = [
    "08006",  # connection failure
    "25006",  # read-only transaction
    "25P03",  # idle in transaction
    "40001",  # serialization
    "40P01",  # deadlock
    "53000",
    "53100",  # disk full
    "53200",  # out of memory
    "53300",  # too many connections
    "55P03",  # lock timeout
    "57014",  # statement timeout
    "57P01",  # ended by an administrator
    "57P02",  # crash
    "57P03",  # starting up
    "58030",  # I/O error
]
FAILED = [
    "22P02",  # a value that is none
    "23505",  # unique violation
    "28P01",  # password
    "3D000",  # no such database
    "42501",  # not allowed
    "42P01",  # no such table
    "57P04",  # database dropped
    "58P01",  # a file is missing
    "XX001",  # damaged
]


@pytest.mark.parametrize(
    ("state", "kind"),
    [*((state, StoreUnavailable) for state in UNAVAILABLE), *((state, StoreFailed) for state in FAILED)],
)
def test_what_postgresql_says_tells_whether_to_retry(state: str, kind: type[StoreError]) -> None:
    error = psycopg.errors.lookup(state)("it broke")
    assert error.sqlstate == state
    assert type(translate(error)) is kind
    assert type(translate(OperationalError("SELECT", {}, error))) is kind
    assert "it broke" in str(translate(error))


def test_a_server_that_says_nothing_is_away_and_a_misused_driver_is_a_defect() -> None:
    assert type(translate(psycopg.OperationalError("the connection is lost"))) is StoreUnavailable
    assert type(translate(psycopg.errors.ConnectionTimeout("too slow"))) is StoreUnavailable
    assert type(translate(psycopg.ProgrammingError("no such placeholder"))) is StoreFailed
    assert type(translate(psycopg.DataError("a zero byte"))) is StoreFailed


def test_postgresql_without_its_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreFailed, match=r"pip install 'eslurm\[postgresql\]'"):
        engines.writing_engine("postgresql://host/db")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:s3cret@db.example:5433/eslurm", "postgresql://ann:***@db.example:5433/eslurm"),
        ("postgresql:///eslurm?host=/run/postgresql", "postgresql:///eslurm?host=%2Frun%2Fpostgresql"),
        ("postgresql://ann@db/eslurm?password=s3cret", "postgresql://ann:***@db/eslurm"),
        ("mysql://ann:s3cret@db/eslurm", "mysql://ann:***@db/eslurm"),
        ("postgresql://ann:s3cret@host:port/db", "(not a URL)"),
        ("sqlite:////var/lib/eslurm/esctld.db", "sqlite:////var/lib/eslurm/esctld.db"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert engines.shown(url) == shown


@pytest.mark.parametrize(
    "url", ["", "s3cret", "postgresql://ann:s3cret@host:port/db", "postgres://ann:s3cret@host/db"]
)
def test_a_url_that_means_nothing_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(StoreFailed, match="postgresql://HOST/DATABASE") as raised:
        engines.writing_engine(url)
    assert "s3cret" not in str(raised.value)
    assert "s3cret" not in engines.shown(url).replace("***", "")
