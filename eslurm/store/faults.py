"""What a database error means for the caller: try again, or give up.

Invariant: only errors after which the very same batch may succeed become StoreUnavailable.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

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


# The write path uses the driver's cursor, whose errors come as they are.
DATABASE_ERRORS = (SQLAlchemyError, sqlite3.Error)


def translate(error: Exception) -> StoreError:
    """The store error for one of DATABASE_ERRORS."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    text = f"{type(cause).__name__}: {cause}"
    lost = isinstance(error, PoolTimeout) or (isinstance(error, DBAPIError) and error.connection_invalidated)
    # The low byte is the primary code; the rest tells the variants of, say, an I/O error apart.
    code = getattr(cause, "sqlite_errorcode", None)
    if lost or (code is not None and code & 0xFF in _RETRYABLE_SQLITE):
        return StoreUnavailable(text)
    return StoreFailed(text)


@contextmanager
def translated() -> Iterator[None]:
    """Raises database errors as store errors."""
    try:
        yield
    except DATABASE_ERRORS as error:
        raise translate(error) from error
