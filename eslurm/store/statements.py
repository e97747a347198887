"""The few statements of the write path, compiled once per database dialect.

Invariant: the columns of a statement are those of its table, in the table's order.

They run on the driver's own cursor: through the toolkit's execution layer a commit of 24 rows took half as
long again. Rows go out in statements of 128 and 32 rows: the driver gives up the interpreter lock at each statement
it steps, and beside a busy event loop getting it back can take milliseconds. What is left goes row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import chain
from typing import Any

from sqlalchemy import Dialect, Table, bindparam
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.sql.elements import ClauseElement

from eslurm.ports.store import StoreFailed
from eslurm.store.schema import BLOBS, FACTS, LEADER, REQUESTS, ROW_TABLES

ROWS_PER_STATEMENT = (128, 32)
Values = tuple[Any, ...]


class RowsStatement:
    """Inserts rows into one table, or updates those already there."""

    def __init__(self, table: Table, dialect: Dialect, *, on_conflict: str) -> None:
        """`on_conflict` is `fail`, `keep` (the row that is there) or `replace`."""
        self._one = _compile(_insert(table, dialect, on_conflict), dialect)
        self._many = [(rows, _repeat_values(self._one, rows)) for rows in ROWS_PER_STATEMENT]

    def execute(self, cursor: DBAPICursor, rows: Sequence[Values]) -> None:
        """Writes all rows; each has one value per column."""
        done = 0
        for size, statement in self._many:
            while len(rows) - done >= size:
                cursor.execute(statement, tuple(chain.from_iterable(rows[done : done + size])))
                done += size
        if done < len(rows):
            cursor.executemany(self._one, rows[done:])


class Statements:
    """Everything a commit executes."""

    def __init__(self, dialect: Dialect) -> None:
        self.advance = _compile(_advance(), dialect)
        self.facts = RowsStatement(FACTS, dialect, on_conflict="fail")
        self.answers = RowsStatement(REQUESTS, dialect, on_conflict="keep")
        self.blobs = RowsStatement(BLOBS, dialect, on_conflict="replace")
        self.upserts = {
            name: RowsStatement(table, dialect, on_conflict="replace") for name, table in ROW_TABLES.items()
        }
        self.deletes = {name: _compile(_delete(table), dialect) for name, table in ROW_TABLES.items()}


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
    head, word, tail = statement.partition(" VALUES (")
    end = tail.index(")")
    return f"{head}{word}{'), ('.join([tail[:end]] * rows)}{tail[end:]}"


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
