"""Database engines from a URL: one that writes, one that only reads.

Invariant: nothing that a writing transaction has read of its owner's leader row can change before it commits; a reading
transaction sees one consistent state and cannot write. No password leaves in an error.
"""

from __future__ import annotations

from contextlib import suppress
from types import ModuleType

from sqlalchemy import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError

from eslurm.ports.store import StoreFailed
from eslurm.store import postgresql, sqlite

_DATABASES: dict[str, ModuleType] = {"sqlite": sqlite, "postgresql": postgresql}


def writing_engine(url: str) -> Engine:
    """One connection for the one writer. StoreFailed for a URL of an unsupported database."""
    parsed = _parsed(url)
    engine: Engine = _DATABASES[parsed.get_backend_name()].writing_engine(parsed)
    return engine


def reading_engine(url: str, connections: int) -> Engine:
    """At most `connections` connections that see one consistent state per transaction and cannot write."""
    parsed = _parsed(url)
    engine: Engine = _DATABASES[parsed.get_backend_name()].reading_engine(parsed, connections)
    return engine


def load_driver(url: str) -> None:
    """Import the database's driver, without a connection. A bad URL is reported at its first use."""
    with suppress(StoreFailed):
        writing_engine(url).dispose()


def shown(url: str) -> str:
    """The URL as it may be logged: without its password."""
    try:
        return _readable(url).render_as_string(hide_password=True)
    except StoreFailed:
        return "(not a URL)"


def _parsed(url: str) -> URL:
    parsed = _readable(url)
    if parsed.get_backend_name() not in _DATABASES:
        raise StoreFailed(
            f"no store for {parsed.get_backend_name()!r}: use sqlite:///PATH or postgresql://HOST/DATABASE"
        )
    return parsed


def _readable(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # Its text may quote the URL, password and all.
        raise StoreFailed(
            "the store's URL cannot be read: use sqlite:///PATH or postgresql://HOST/DATABASE"
        ) from None
    hidden = parsed.query.get("password")
    if isinstance(hidden, str):
        # Where it is hidden when the URL is shown.
        parsed = parsed.difference_update_query(["password"]).set(password=hidden)
    return parsed
