"""Migrations of a database of an earlier release, a version at a time.

Invariant: a step is written once and for all, as plain SQL for every database: it starts from the tables as that version
left them, not from today's. `{text}` is the type of a text column, `{bytes}` that of a column of bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlalchemy import Connection

Migration = Callable[[Connection], None]

_TEXT = {"sqlite": "VARCHAR", "postgresql": 'VARCHAR COLLATE "C"'}
_BYTES = {"sqlite": "BLOB", "postgresql": "BYTEA"}

# The index may be there: the last release of version 1 made it in new databases.
_FROM_1 = (
    "ALTER TABLE leader ADD COLUMN holder {text} DEFAULT '' NOT NULL",
    "ALTER TABLE leader ADD COLUMN endpoint {text} DEFAULT '' NOT NULL",
    "ALTER TABLE leader ADD COLUMN beat BIGINT DEFAULT 0 NOT NULL",
    "ALTER TABLE leader ADD COLUMN released BOOLEAN DEFAULT false NOT NULL",
    "ALTER TABLE leader ADD COLUMN successor {text} DEFAULT '' NOT NULL",
    "CREATE INDEX IF NOT EXISTS jobs_by_array ON jobs (owner, array_job_id) WHERE array_job_id != 0",
)

_FROM_2 = (
    "CREATE TABLE records (owner {text} NOT NULL, kind {text} NOT NULL, name {text} NOT NULL, "
    "revision BIGINT NOT NULL, blob {bytes} NOT NULL, PRIMARY KEY (owner, kind, name))",
)


def _executing(statements: tuple[str, ...]) -> Migration:
    def migrate(connection: Connection) -> None:
        for statement in statements:
            dialect = connection.dialect.name
            connection.exec_driver_sql(statement.format(text=_TEXT[dialect], bytes=_BYTES[dialect]))

    return migrate


MIGRATIONS: Mapping[int, Migration] = {1: _executing(_FROM_1), 2: _executing(_FROM_2)}
