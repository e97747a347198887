"""Engines for a SQLite file.

Invariant: a transaction of the writing engine holds the file's write lock from its first statement; a returned commit is
on the disk, in the files that have the store's names; only the file's user may read it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import URL, Connection, Engine, create_engine, event

from eslurm.ports.store import StoreFailed

BUSY_TIMEOUT_MS = 5_000
# 16 MiB of log before it is copied back: fewer, longer copies cost less in all than many short ones.
CHECKPOINT_PAGES = 4_096
CACHED_STATEMENTS = 512

_Identity: TypeAlias = tuple[int, int]

_SWITCH_WAIT_S = 0.01

_PRAGMAS = (
    "PRAGMA synchronous=FULL",
    f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}",
    "PRAGMA foreign_keys=OFF",
    f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}",
    # A statement of many rows keeps an undo journal, by default in a file.
    "PRAGMA temp_store=MEMORY",
    # The first thing read: from here on the log files are open.
    "PRAGMA schema_version",
)


def writing_engine(url: URL) -> Engine:
    """One connection, transactions that lock at once. StoreFailed for a URL that names no file."""
    return _engine(_path(url), connections=1, begin="BEGIN IMMEDIATE", pragmas=_PRAGMAS)


def reading_engine(url: URL, connections: int) -> Engine:
    """At most `connections` connections that see one consistent state per transaction and cannot write."""
    return _engine(_path(url), connections, begin="BEGIN", pragmas=(*_PRAGMAS, "PRAGMA query_only=ON"))


def size_of_files(url: URL) -> int:
    """Size of the file and its log in bytes, as far as they exist."""
    found = 0
    for ending in ("", "-wal"):
        with suppress(FileNotFoundError):
            found += os.stat(f"{_path(url)}{ending}").st_size
    return found


def _path(url: URL) -> Path:
    if not url.database or url.database == ":memory:":
        raise StoreFailed("the store needs a file: use sqlite:///PATH")
    return Path(url.database)


class _Files:
    """Checks that the files in use are still those that the next start would find.

    SQLite does not check: it goes on to use a file that was removed or replaced, and later commits are lost with the
    process.
    """

    def __init__(self, path: Path) -> None:
        self._main = os.fspath(path)
        self._names = tuple(self._main + ending for ending in ("", "-wal", "-shm"))
        self._first: _Identity | None = None

    def before_connect(self) -> None:
        """Create the file if there is none; after its first use it must exist."""
        if self._first is not None:
            self._identity(self._main)
            return
        # Scripts and environments hold secrets. SQLite gives its log files the mode of the main file. A file that is
        # there must not be opened here: closing it would drop every lock that this process holds on it, and the next
        # process to let go of the database would take itself for the last one and remove the log under our feet.
        with suppress(FileExistsError):
            os.close(os.open(self._main, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def connected(self, info: dict[Any, Any]) -> None:
        """All files are open; `info` is the connection's. StoreFailed when it uses another file than those before it."""
        found = tuple(map(self._identity, self._names))
        self._first = self._first or found[0]
        info[_Files] = (self._first, *found[1:])
        self.check(info)

    def check(self, info: dict[Any, Any]) -> None:
        """StoreFailed when a connection's files are not the ones of these names any more."""
        for name, used in zip(self._names, info[_Files], strict=True):
            if self._identity(name) != used:
                raise StoreFailed(f"{name} was replaced while it was in use")

    def _identity(self, name: str) -> _Identity:
        try:
            status = os.stat(name)
        except FileNotFoundError:
            raise StoreFailed(f"{name} was removed while it was in use") from None
        if name == self._main and not status.st_size:
            raise StoreFailed(f"{name} was emptied while it was in use")
        return status.st_dev, status.st_ino


def _use_a_log(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL mode, which stays with it.

    The first switch needs the file exclusively, and while another connection switches it or writes, SQLite refuses at once
    instead of waiting: controllers that start together on a new file would fail each other.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(_SWITCH_WAIT_S)
        else:
            return


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

    files = _Files(path)

    @event.listens_for(engine, "do_connect")
    def _before_connect(*_: Any) -> None:
        files.before_connect()

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, record: Any) -> None:
        # The driver would open transactions at moments of its own choosing: `_on_begin` does it instead.
        connection.isolation_level = None
        _use_a_log(connection)
        for pragma in pragmas:
            connection.execute(pragma).close()
        files.connected(record.info)

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        files.check(connection.info)
        connection.connection.cursor().execute(begin)

    return engine
