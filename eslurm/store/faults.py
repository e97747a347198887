"""Translation of database errors for the caller: try again, or give up.

Invariant: only errors after which the very same batch may succeed become StoreUnavailable.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from eslurm.ports.store import StoreError, StoreFailed, StoreUnavailable

_RETRYABLE_SQLITE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_INTERRUPT,
    }
)

# Classes of SQLSTATE: connection, out of resources (disk, memory, connections), operator's intervention.
_RETRYABLE_CLASSES = ("08", "53", "57")
_RETRYABLE_STATES = frozenset(
    {
        "25006",  # read-only: a replica, or a server that an operator has closed for writing
        "25P03",  # idle in a transaction for too long
        "40001",  # serialization failure
        "40P01",  # deadlock
        "55006",  # object in use
        "55P03",  # lock not available in time
        "58000",  # system error
        "58030",  # I/O error
    }
)
_DATABASE_DROPPED = "57P04"
# Refused while connecting: the driver keeps the SQLSTATE to itself. Of a server that speaks another language these are
# taken for a server that is away, and what it said is logged all the same.
_REFUSED_FOR_GOOD = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    '" does not exist',
    "permission denied for database",
    "is not permitted to log in",
)


def database_errors(engine: Engine) -> tuple[type[Exception], ...]:
    """The exceptions of an engine's connections. The write path uses the driver's cursor, with the driver's own errors."""
    return SQLAlchemyError, engine.dialect.loaded_dbapi.Error


def translate(error: Exception) -> StoreError:
    """The store error for one of `database_errors`."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    # Hints and advice come on lines of their own.
    text = " ".join(f"{type(cause).__name__}: {cause}".split())
    lost = isinstance(error, PoolTimeout) or (isinstance(error, DBAPIError) and error.connection_invalidated)
    retryable = lost or _retryable_sqlite(cause) or _retryable_postgresql(cause)
    return StoreUnavailable(text) if retryable else StoreFailed(text)


@contextmanager
def translated(engine: Engine) -> Iterator[None]:
    """Raise an engine's errors as store errors."""
    try:
        yield
    except database_errors(engine) as error:
        raise translate(error) from error


def _retryable_sqlite(cause: object) -> bool:
    # The low byte is the primary code; the rest tells the variants of, say, an I/O error apart.
    code = getattr(cause, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _RETRYABLE_SQLITE


def _retryable_postgresql(cause: object) -> bool:
    if not hasattr(cause, "sqlstate"):
        return False
    state = cause.sqlstate
    if state is None:
        # The server was not reached or is gone, so it said nothing; the driver's own complaints are of other kinds.
        away = type(cause).__name__ in ("OperationalError", "ConnectionTimeout")
        return away and not any(words in str(cause) for words in _REFUSED_FOR_GOOD)
    return state != _DATABASE_DROPPED and (state[:2] in _RETRYABLE_CLASSES or state in _RETRYABLE_STATES)
