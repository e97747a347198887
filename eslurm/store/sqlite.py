"""How a SQLite file is opened.

Invariant: a transaction of the writing engine holds the file's write lock from its first statement; what a commit has
returned from is on the disk; only the file's user may read it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event

from eslurm.ports.store import StoreFailed

BUSY_TIMEOUT_MS = 5_000
# 16 MiB of log before it is copied back: fewer, longer copies cost less in all than many short ones.
CHECKPOINT_PAGES = 4_096
CACHED_STATEMENTS = 512

_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}",
    "PRAGMA foreign_keys=OFF",
    f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}",
    # A statement of many rows keeps an undo journal, by default in a file.
    "PRAGMA temp_store=MEMORY",
)


def writing_engine(url: URL) -> Engine:
    """One connection, transactions that lock at once. StoreFailed for a URL that names no file."""
    return _engine(_path(url), connections=1, begin="BEGIN IMMEDIATE", pragmas=_PRAGMAS)


def reading_engine(url: URL, connections: int) -> Engine:
    """At most `connections` connections that see one consistent state per transaction and cannot write."""
    return _engine(_path(url), connections, begin="BEGIN", pragmas=(*_PRAGMAS, "PRAGMA query_only=ON"))


def _path(url: URL) -> Path:
    if not url.database or url.database == ":memory:":
        raise StoreFailed("the store needs a file: use sqlite:///PATH")
    return Path(url.database)


def _engine(path: Path, connections: int, begin: str, pragmas: tuple[str, ...]) -> Engine:
    engine = create_engine(
        URL.create("sqlite+pysqlite", database=str(path)),
        connect_args={"check_same_thread": False, "cached_statements": CACHED_STATEMENTS},
        pool_size=connections,
        max_overflow=0,
        pool_reset_on_return=None,
        # Thousands of parameters are not worth rendering into an error message.
        hide_parameters=True,
    )

    @event.listens_for(engine, "do_connect")
    def _before_connect(*_: Any) -> None:
        # Scripts and environments hold secrets. SQLite gives its log files the mode of the main file. A file that is
        # there must not be opened here: closing it would drop every lock that this process holds on it, and the next
        # process to let go of the database would take itself for the last one and remove the log under our feet.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: Any) -> None:
        # The driver would open transactions at moments of its own choosing: `_on_begin` does it instead.
        connection.isolation_level = None
        for pragma in pragmas:
            connection.execute(pragma).close()

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        connection.connection.cursor().execute(begin)

    return engine
