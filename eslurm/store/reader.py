"""Queries over the committed contents. Synchronous; used from the reading threads only.

Invariant: every answer is consistent as of one commit, however many statements or chunks it takes.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Column, Connection, Engine, Select, Table, desc, func, or_, select, tuple_

from eslurm.ports.store import (
    QUERY_VALUES_MAX,
    AccountingPage,
    AccountingQuery,
    AttemptRow,
    BlobMissing,
    Head,
    JobRow,
    Leader,
    LoggedFact,
    LogPruned,
    NodeRow,
    RecordRow,
    Row,
    SettingRow,
    SnapshotRow,
    StepRow,
    StoreFailed,
)
from eslurm.store.faults import translated
from eslurm.store.schema import (
    ATTEMPTS,
    BLOBS,
    FACTS,
    JOBS,
    LEADER,
    REQUESTS,
    ROW_TABLES,
    SCHEMA_VERSION,
    STEPS,
    check,
)
from eslurm.store.sqlite import size_of_files

RowT = TypeVar("RowT", bound=Row | LoggedFact)


def read_head(connection: Connection, owner: str, *, lock: bool = False) -> Head:
    """The end of the owner's log; with `lock` it waits for other transactions on the row, and holds them off until this
    one ends.
    """
    found = select(LEADER.c.epoch, LEADER.c.revision, LEADER.c.at_us).where(LEADER.c.owner == owner)
    if lock:
        found = found.with_for_update()
    row = connection.execute(found).one_or_none()
    return Head() if row is None else Head(*row)


def logged_facts() -> list[Column[Any]]:
    """The columns of `LoggedFact`, in its order."""
    return _payload(FACTS)


class Reader:
    """Answers questions about any owner. The generators hold a connection until they end or are closed."""

    def __init__(self, engine: Engine, cluster_id: str) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._version = 0

    def leader(self, owner: str) -> Leader:
        """See `StoreReader.leader`."""
        with self._connected() as connection:
            if self._version == 0:
                return Leader()
            # Before version 2 the row said no more than where the log stands.
            columns = _payload(LEADER) if self._version > 1 else _payload(LEADER)[:3]
            row = connection.execute(select(*columns).where(LEADER.c.owner == owner)).one_or_none()
            return Leader() if row is None else Leader(*row)

    def load_unfinished(self, owner: str, chunk_rows: int) -> Generator[Sequence[SnapshotRow], None, None]:
        """See `StoreReader.load_unfinished`."""
        with self._transaction() as connection:
            yield [read_head(connection, owner)]
            for row_type, found in _unfinished(owner, self._version):
                yield from _chunks(connection, row_type, found, chunk_rows)

    def load_facts(
        self, owner: str, from_revision: int, chunk_rows: int
    ) -> Generator[Sequence[LoggedFact], None, None]:
        """See `StoreReader.load_facts`."""
        first = max(from_revision, 1)
        with self._transaction() as connection:
            oldest = connection.scalar(select(func.min(FACTS.c.revision)).where(FACTS.c.owner == owner))
            start = read_head(connection, owner).revision + 1 if oldest is None else oldest
            if first < start:
                raise LogPruned(f"{owner}: the log starts at revision {start}, not at {first}")
            found = select(*logged_facts()).where(FACTS.c.owner == owner, FACTS.c.revision >= first)
            yield from _chunks(connection, LoggedFact, found.order_by(FACTS.c.revision), chunk_rows)

    def find_jobs(self, owner: str, job_ids: Sequence[int]) -> list[JobRow]:
        """See `StoreReader.find_jobs`."""
        if len(job_ids) > QUERY_VALUES_MAX:
            raise ValueError(f"more than {QUERY_VALUES_MAX} job ids in one query")
        found = select(*_payload(JOBS)).where(JOBS.c.owner == owner, JOBS.c.job_id.in_(job_ids))
        with self._transaction() as connection:
            return [JobRow(*row) for row in connection.execute(found.order_by(JOBS.c.job_id))]

    def accounting(self, owner: str, query: AccountingQuery) -> AccountingPage:
        """See `StoreReader.accounting`."""
        order = ATTEMPTS.c.job_id, ATTEMPTS.c.attempt
        found = _attempts(owner, query).order_by(
            *[desc(one) for one in order] if query.latest_first else order
        )
        found = found.limit(query.limit + 1)
        with self._transaction() as connection:
            attempts = [AttemptRow(*row) for row in connection.execute(found)]
            page = attempts[: query.limit]
            return AccountingPage(
                attempts=page,
                steps=_steps_of(connection, owner, page) if query.steps else [],
                next=(page[-1].job_id, page[-1].attempt) if len(attempts) > query.limit else None,
            )

    def lookup_request(self, request_id: bytes) -> bytes | None:
        """See `StoreReader.lookup_request`."""
        with self._transaction() as connection:
            return connection.scalar(select(REQUESTS.c.answer).where(REQUESTS.c.request_id == request_id))

    def get_blob(self, owner: str, hash_: bytes) -> bytes:
        """See `StoreReader.get_blob`."""
        found = select(BLOBS.c.data).where(BLOBS.c.owner == owner, BLOBS.c.hash == hash_)
        with self._transaction() as connection:
            data: bytes | None = connection.scalar(found)
        if data is None:
            raise BlobMissing(f"{owner}: no blob {hash_.hex()}")
        return data

    def get_blobs(self, owner: str, hashes: Collection[bytes], bytes_max: int) -> dict[bytes, bytes]:
        """See `StoreReader.get_blobs`."""
        if len(hashes) > QUERY_VALUES_MAX:
            raise ValueError(f"more than {QUERY_VALUES_MAX} hashes in one query")
        column = BLOBS.c
        found = select(column.hash, column.data).where(column.owner == owner, column.hash.in_(hashes))
        with self._transaction() as connection:
            rows = connection.execute(found.where(column.size <= bytes_max))
            return {row.hash: row.data for row in rows}

    def size_bytes(self) -> int:
        """See `StoreReader.size_bytes`."""
        if self._engine.dialect.name == "sqlite":
            return size_of_files(self._engine.url)
        with self._connected() as connection:
            return int(connection.scalar(select(func.pg_database_size(func.current_database()))) or 0)

    def close(self) -> None:
        """Lets go of all idle connections."""
        self._engine.dispose()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._connected() as connection:
            if self._version == 0:
                raise StoreFailed("the database is empty: no controller has opened it yet")
            yield connection

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        with translated(self._engine), self._engine.connect() as connection, connection.begin():
            # A claim of an older database migrates it while readers are connected.
            if self._version < SCHEMA_VERSION:
                self._version = check(connection, self._cluster_id)
            yield connection


def _payload(table: Table) -> list[Column[Any]]:
    """A table's columns without the owner: the fields of its row struct, in order."""
    return [column for column in table.columns if column.name != "owner"]


def _unfinished(owner: str, version: int) -> Iterator[tuple[type[Row], Select[Any]]]:
    for row_type in (SettingRow, RecordRow, NodeRow, JobRow, AttemptRow, StepRow):
        if row_type is RecordRow and version < 3:
            # An older database has none, and no table for them.
            continue
        table = ROW_TABLES[row_type.TABLE]
        found = select(*_payload(table)).where(table.c.owner == owner).order_by(*table.primary_key.columns)
        if row_type is JobRow:
            found = found.where(~JOBS.c.finished)
        elif row_type in (AttemptRow, StepRow):
            alive = select(JOBS.c.job_id).where(JOBS.c.owner == owner, ~JOBS.c.finished)
            found = found.where(table.c.job_id.in_(alive))
        yield row_type, found


def _chunks(
    connection: Connection, row_type: type[RowT], found: Select[Any], chunk_rows: int
) -> Iterator[list[RowT]]:
    with connection.execution_options(stream_results=True).execute(found) as result:
        for rows in result.partitions(chunk_rows):
            yield [row_type(*row) for row in rows]


def _attempts(owner: str, query: AccountingQuery) -> Select[Any]:
    column = ATTEMPTS.c
    found = select(*_payload(ATTEMPTS)).where(column.owner == owner)
    if query.user:
        found = found.where(column.user == query.user)
    if query.job_ids:
        tasks = select(JOBS.c.job_id).where(JOBS.c.owner == owner, JOBS.c.array_job_id.in_(query.job_ids))
        # Said again so that the index, which holds tasks only, is used.
        tasks = tasks.where(JOBS.c.array_job_id != 0)
        found = found.where(or_(column.job_id.in_(query.job_ids), column.job_id.in_(tasks)))
    if query.partition:
        found = found.where(column.partition == query.partition)
    if query.name:
        found = found.where(column.name == query.name)
    if query.states:
        found = found.where(column.state.in_(query.states))
    if query.since_us:
        found = found.where(or_(column.ended_us == 0, column.ended_us >= query.since_us))
    if query.until_us:
        found = found.where(column.submitted_us < query.until_us)
    if query.after is not None:
        key = tuple_(column.job_id, column.attempt)
        found = found.where(key < query.after if query.latest_first else key > query.after)
    return found


def _steps_of(connection: Connection, owner: str, attempts: Sequence[AttemptRow]) -> list[StepRow]:
    keys = {attempt.key for attempt in attempts}
    found = select(*_payload(STEPS)).where(
        STEPS.c.owner == owner, STEPS.c.job_id.in_({attempt.job_id for attempt in attempts})
    )
    rows = connection.execute(found.order_by(*STEPS.primary_key.columns))
    return [step for step in (StepRow(*row) for row in rows) if (step.job_id, step.attempt) in keys]
