"""The one connection that writes. Synchronous; used from the writer thread only.

Invariant: every transaction holds the leader row at the writer's own epoch before it changes anything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

from msgspec.structs import astuple
from sqlalchemy import Connection, Engine, select
from sqlalchemy.engine.interfaces import DBAPICursor

from eslurm.ports.store import (
    Batch,
    Claim,
    FenceLost,
    ForeignStore,
    Key,
    LoggedFact,
    Prune,
    Pruned,
    Row,
    StoreFailed,
    StoreUnavailable,
)
from eslurm.store.changes import distinct_blobs, net_changes
from eslurm.store.faults import database_errors, translate
from eslurm.store.fence import is_next
from eslurm.store.leadership import end_frozen_writers, move_row, take_lead
from eslurm.store.reader import logged_facts, read_head
from eslurm.store.retention import prune_owner
from eslurm.store.schema import FACTS, LEADER, bring_up_to_date
from eslurm.store.statements import Statements
from eslurm.store.stopped import end_stopped_writer


class Writer:
    """Writes for one owner from `open` on."""

    def __init__(self, engine: Engine, cluster_id: str, *, shared: bool) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._shared = shared
        self._file = (engine.url.database or "") if engine.dialect.name == "sqlite" else ""
        self._connection: Connection | None = None
        self._owner = ""
        self._epoch = 0

    @cached_property
    def _statements(self) -> Statements:
        return Statements(self._engine.dialect)

    def open(self, owner: str, claim: Claim | None) -> int:
        """See `StoreWriter.open`."""
        _ = self._statements  # compiled now rather than under the first commit
        if claim is not None and self._file:
            # It was silent for as long as a leader may be: whether that was in a commit makes no difference.
            end_stopped_writer(self._file)
        try:
            epoch = self._take_lead(owner, claim)
        except StoreUnavailable:
            if not self._end_frozen_writers():
                # What the session was told at its start, read-only for one, need not hold for the next.
                self._drop_connection()
                raise
            epoch = self._take_lead(owner, claim)
        self._owner, self._epoch = owner, epoch
        return epoch

    def renew(self) -> None:
        """See `StoreWriter.renew`."""
        with self._transaction() as connection:
            move_row(connection, self._owner, self._epoch, beat=LEADER.c.beat + 1)

    def release(self, successor: str) -> None:
        """See `StoreWriter.release`."""
        with self._transaction() as connection:
            move_row(connection, self._owner, self._epoch, released=True, successor=successor)

    def commit(self, batch: Batch) -> None:
        """See `StoreWriter.commit`."""
        changes = net_changes(batch.rows)
        with self._transaction() as connection:
            if not self._advance(connection, batch):
                return
            with self._in_sequence(), self._statements.sent_together(connection):
                cursor = connection.connection.cursor()
                self._insert_facts(cursor, batch)
                for table, rows in changes.items():
                    self._change_rows(cursor, table, rows)
                self._keep_answers(cursor, batch)
                self._put_blobs(cursor, batch)
                cursor.close()

    def committed(self, batch: Batch) -> bool:
        """See `StoreWriter.committed`."""
        with self._transaction() as connection:
            return not self._is_next(connection, batch)

    def prune(self, limits: Prune) -> Pruned:
        """See `StoreWriter.prune`."""
        with self._transaction() as connection:
            head = read_head(connection, self._owner)
            self._advance(connection, Batch(head.revision + 1, head.at_us))
            return prune_owner(connection, self._owner, head.revision, limits)

    def close(self) -> None:
        """Release the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._engine.dispose()

    def _take_lead(self, owner: str, claim: Claim | None) -> int:
        with self._transaction() as connection:
            bring_up_to_date(connection, self._cluster_id)
            if not self._shared:
                self._refuse_others(connection, owner)
            return take_lead(connection, owner, claim)

    def _end_frozen_writers(self) -> int:
        if self._file:
            return 0
        with self._transaction() as connection:
            return end_frozen_writers(connection)

    def _refuse_others(self, connection: Connection, owner: str) -> None:
        other = connection.scalar(select(LEADER.c.owner).where(LEADER.c.owner != owner).limit(1))
        if other is not None:
            raise ForeignStore(f"the database belongs to {other}, not to {owner}")

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        try:
            if self._connection is None:
                self._connection = self._engine.connect()
            with self._connection.begin():
                yield self._connection
        except database_errors(self._engine) as error:
            self._drop_connection()
            raise translate(error) from error

    def _drop_connection(self) -> None:
        """Drop a connection after an error, in which its state is unknown: the next transaction takes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()

    def _advance(self, connection: Connection, batch: Batch) -> bool:
        """Lock the leader row and move it past the batch. False: the batch is there already."""
        at_us = batch.at_us
        cursor = connection.connection.cursor()
        # Together with the statement that begins the transaction.
        with self._statements.sent_together(connection):
            cursor.execute(
                self._statements.advance,
                (batch.revision_last, at_us, self._owner, self._epoch, batch.revision_first - 1, at_us),
            )
        moved = cursor.rowcount == 1
        cursor.close()
        if not moved and self._is_next(connection, batch):
            raise StoreFailed(f"{self._owner}: the leader row fits the batch and did not move")
        return moved

    def _is_next(self, connection: Connection, batch: Batch) -> bool:
        def read_back(first: int, last: int) -> Sequence[LoggedFact]:
            found = select(*logged_facts()).where(
                FACTS.c.owner == self._owner, FACTS.c.revision.between(first, last)
            )
            return [LoggedFact(*row) for row in connection.execute(found.order_by(FACTS.c.revision))]

        head = read_head(connection, self._owner, lock=True)
        return is_next(head, self._owner, self._epoch, batch, read_back)

    def _insert_facts(self, cursor: DBAPICursor, batch: Batch) -> None:
        owner, epoch, at_us = self._owner, self._epoch, batch.at_us
        values = [
            (owner, revision, at_us, fact.kind, fact.version, fact.blob, epoch)
            for revision, fact in enumerate(batch.facts, batch.revision_first)
        ]
        self._statements.facts.execute(cursor, values)

    @contextmanager
    def _in_sequence(self) -> Iterator[None]:
        """Only facts can collide with what is there: everything else replaces it or yields."""
        try:
            yield
        except self._engine.dialect.loaded_dbapi.IntegrityError as error:
            raise FenceLost(f"{self._owner}: a fact lies beyond the end of the log: {error}") from error

    def _change_rows(self, cursor: DBAPICursor, table: str, rows: dict[Key, Row | None]) -> None:
        owner = self._owner
        upserts = [(owner, *astuple(row)) for row in rows.values() if row is not None]
        self._statements.upserts[table].execute(cursor, upserts)
        if len(upserts) < len(rows):
            deletes = [(owner, *key) for key, row in rows.items() if row is None]
            cursor.executemany(self._statements.deletes[table], deletes)

    def _keep_answers(self, cursor: DBAPICursor, batch: Batch) -> None:
        owner, at_us = self._owner, batch.at_us
        values = [(answer.request_id, owner, at_us, answer.answer) for answer in batch.answers]
        self._statements.answers.execute(cursor, values)

    def _put_blobs(self, cursor: DBAPICursor, batch: Batch) -> None:
        owner, at_us = self._owner, batch.at_us
        values = [
            (owner, hash_, len(data), at_us, data) for hash_, data in distinct_blobs(batch.blobs).items()
        ]
        self._statements.blobs.execute(cursor, values)
