"""Engines for a PostgreSQL database.

Invariant: a returned commit survives the server, whatever its defaults; a writer that stops in the middle of a transaction
loses its locks within IDLE_IN_TRANSACTION_S; a peer that vanished is noticed within seconds.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.engine import ExceptionContext

from eslurm.ports.store import StoreFailed

CONNECT_TIMEOUT_S = 5
IDLE_IN_TRANSACTION_S = 2
# Longer than a stopped writer may keep the leader row: the next one gets it.
LOCK_TIMEOUT_S = 4
READ_STATEMENT_S = 60
# A reader of a stream is idle while its chunk is worked on; one that was forgotten must not keep old rows for ever.
READ_IDLE_S = 600

_OPTIONS: dict[str, int | str] = {
    "application_name": "eslurm",
    "connect_timeout": CONNECT_TIMEOUT_S,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
# The server's side of a connection that is gone: as fast, or a dead leader would keep its locks for hours.
_SESSION = (
    "SET tcp_keepalives_idle = 5",
    "SET tcp_keepalives_interval = 2",
    "SET tcp_keepalives_count = 3",
    "SET tcp_user_timeout = 10000",
    f"SET lock_timeout = '{LOCK_TIMEOUT_S}s'",
)
# No statement_timeout: a COMMIT that waits for a synchronous replica and is cut short reports success all the same.
_WRITING = (
    "SET synchronous_commit = on",
    "SET default_transaction_isolation = 'read committed'",
    f"SET idle_in_transaction_session_timeout = '{IDLE_IN_TRANSACTION_S}s'",
    "SET statement_timeout = 0",
)
_READING = (
    "SET default_transaction_isolation = 'repeatable read'",
    "SET default_transaction_read_only = on",
    f"SET idle_in_transaction_session_timeout = '{READ_IDLE_S}s'",
    f"SET statement_timeout = '{READ_STATEMENT_S}s'",
)


def writing_engine(url: URL) -> Engine:
    """One connection whose commits are durable. StoreFailed without the driver."""
    return _engine(url, 1, (*_SESSION, *_WRITING))


def reading_engine(url: URL, connections: int) -> Engine:
    """At most `connections` read-only connections that see one consistent state per transaction."""
    return _engine(url, connections, (*_SESSION, *_READING), pool_pre_ping=True)


def _engine(url: URL, connections: int, settings: tuple[str, ...], **pool: Any) -> Engine:
    try:
        engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            # What the URL says itself holds.
            connect_args={name: value for name, value in _OPTIONS.items() if name not in url.query},
            paramstyle="format",
            pool_size=connections,
            max_overflow=0,
            hide_parameters=True,
            **pool,
        )
    except ImportError as error:
        raise StoreFailed("PostgreSQL needs its driver: pip install 'eslurm[postgresql]'") from error

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: Any) -> None:
        # Settings made inside a transaction would go with its rollback.
        connection.autocommit = True
        connection.execute("; ".join(settings))
        connection.autocommit = False

    @event.listens_for(engine, "handle_error")
    def _on_error(context: ExceptionContext) -> None:
        # The toolkit leaves a cursor open whose connection is lost.
        if context.is_disconnect and context.execution_context is not None:
            context.execution_context.cursor.close()

    return engine
