"""The few statements of the write path, compiled once per database dialect.

Invariant: the columns of a statement are those of its table, in the table's order.

They run on the driver's own cursor: through the toolkit's execution layer a commit of 24 rows took half as
long again. How many rows go out at once is each database's own story: see its class.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from itertools import chain
from typing import Any, Protocol

from sqlalchemy import (
    BigInteger,
    Boolean,
    Connection,
    Dialect,
    Integer,
    LargeBinary,
    String,
    Table,
    bindparam,
)
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.sql.elements import ClauseElement

from eslurm.ports.store import StoreFailed
from eslurm.store.schema import BLOBS, FACTS, LEADER, REQUESTS, ROW_TABLES

ROWS_PER_STATEMENT = (128, 32)
# Below it preparing arrays costs more than rows one by one.
ARRAY_ROWS_MIN = 16
ARRAY_ROWS_MAX = 1_000
_ARRAYS: dict[type[Any], str] = {
    String: "text[]",
    BigInteger: "bigint[]",
    Integer: "integer[]",
    Boolean: "boolean[]",
    LargeBinary: "bytea[]",
}
Values = tuple[Any, ...]


class RowsStatement(Protocol):
    """Inserts rows into one table, or updates those already there."""

    def execute(self, cursor: DBAPICursor, rows: Sequence[Values]) -> None:
        """Writes all rows; each has one value per column."""
        ...


class ManyValues:
    """For SQLite: statements of 128 and 32 rows.

    The driver gives up the interpreter lock at each statement it steps, and beside a busy event loop getting it back
    can take milliseconds. What is left goes row by row.
    """

    def __init__(self, one: str) -> None:
        self._one = one
        self._many = [(rows, _repeat_values(one, rows)) for rows in ROWS_PER_STATEMENT]

    def execute(self, cursor: DBAPICursor, rows: Sequence[Values]) -> None:
        """See `RowsStatement`."""
        done = 0
        for size, statement in self._many:
            while len(rows) - done >= size:
                cursor.execute(statement, tuple(chain.from_iterable(rows[done : done + size])))
                done += size
        if done < len(rows):
            cursor.executemany(self._one, rows[done:])


class ColumnArrays:
    """For PostgreSQL: one binary array per column, which the server turns into rows again; few rows go one by one."""

    def __init__(self, one: str, table: Table) -> None:
        self._one = one
        arrays = ", ".join(f"%b::{_ARRAYS[type(column.type)]}" for column in table.columns)
        self._many = _replace_values(one, f"SELECT * FROM unnest({arrays})")  # nosec B608 # types of our own columns

    def execute(self, cursor: DBAPICursor, rows: Sequence[Values]) -> None:
        """See `RowsStatement`."""
        if len(rows) < ARRAY_ROWS_MIN:
            if rows:
                cursor.executemany(self._one, rows)
            return
        for start in range(0, len(rows), ARRAY_ROWS_MAX):
            columns = zip(*rows[start : start + ARRAY_ROWS_MAX], strict=True)
            cursor.execute(self._many, [list(column) for column in columns])


class Statements:
    """All statements of a commit."""

    def __init__(self, dialect: Dialect) -> None:
        self._pipelines = dialect.name == "postgresql"
        self.advance = _compile(_advance(), dialect)
        self.facts = _rows_statement(FACTS, dialect, on_conflict="fail")
        self.answers = _rows_statement(REQUESTS, dialect, on_conflict="keep")
        self.blobs = _rows_statement(BLOBS, dialect, on_conflict="replace")
        self.upserts = {
            name: _rows_statement(table, dialect, on_conflict="replace") for name, table in ROW_TABLES.items()
        }
        self.deletes = {name: _compile(_delete(table), dialect) for name, table in ROW_TABLES.items()}

    def sent_together(self, connection: Connection) -> AbstractContextManager[object]:
        """Statements inside it wait for the server's answers only at the end, and may raise only there."""
        if not self._pipelines:
            return nullcontext()
        driver: Any = connection.connection.driver_connection
        pipeline: AbstractContextManager[object] = driver.pipeline()
        return pipeline


def _rows_statement(table: Table, dialect: Dialect, *, on_conflict: str) -> RowsStatement:
    """`on_conflict` is `fail`, `keep` (the row that is there) or `replace`."""
    one = _compile(_insert(table, dialect, on_conflict), dialect)
    return ColumnArrays(one, table) if dialect.name == "postgresql" else ManyValues(one)


def _compile(statement: ClauseElement, dialect: Dialect) -> str:
    compiled = statement.compile(dialect=dialect)
    if not getattr(compiled, "positional", False):
        raise StoreFailed(f"the {dialect.name} driver takes no positional parameters")
    return str(compiled)


def _insert(table: Table, dialect: Dialect, on_conflict: str) -> ClauseElement:
    names = [column.name for column in table.columns]
    key = list(table.primary_key.columns)
    # Only the one that is used: each dialect costs 2 MB.
    statement = import_module(f"sqlalchemy.dialects.{dialect.name}").insert(table)
    if on_conflict == "keep":
        statement = statement.on_conflict_do_nothing(index_elements=key)
    elif on_conflict == "replace":
        changed = {name: statement.excluded[name] for name in names if name not in table.primary_key.columns}
        statement = statement.on_conflict_do_update(index_elements=key, set_=changed)
    return statement  # type: ignore[no-any-return]


def _repeat_values(statement: str, rows: int) -> str:
    """The statement for `rows` rows. Done on the text: compiling them all takes a tenth of a second."""
    head, values, tail = _around_values(statement)
    return f"{head}VALUES {', '.join([values] * rows)}{tail}"


def _replace_values(statement: str, source: str) -> str:
    """The statement with another source of rows."""
    head, _, tail = _around_values(statement)
    return f"{head}{source}{tail}"


def _around_values(statement: str) -> tuple[str, str, str]:
    head, _, rest = statement.partition("VALUES (")
    end = rest.index(")") + 1
    return head, f"({rest[:end]}", rest[end:]


def _delete(table: Table) -> ClauseElement:
    return table.delete().where(*(column == bindparam(column.name) for column in table.primary_key.columns))


def _advance() -> ClauseElement:
    """Locks the leader row and moves it on, if it is still ours, next in sequence, and time did not go back.

    Parameters in order: revision and time after, owner, epoch, revision before, time after.
    """
    return (
        LEADER.update()
        .values(revision=bindparam("revision_after"), at_us=bindparam("at_after"))
        .where(LEADER.c.owner == bindparam("owner_is"))
        .where(LEADER.c.epoch == bindparam("epoch_is"))
        .where(LEADER.c.revision == bindparam("revision_is"))
        .where(LEADER.c.at_us <= bindparam("at_most"))
    )
