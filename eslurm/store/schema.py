"""The tables, their version, and how an older database is brought forward.

Invariant: a database at SCHEMA_VERSION has exactly the tables of `METADATA`, whether it was created so or
migrated. Changing a table raises SCHEMA_VERSION and adds a migration from the version before (migrations.py).

Every table but `meta` names the owner. Tables with large blobs are ordinary ones: inside a clustered index a
kilobyte already spills to an overflow page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    inspect,
    select,
    text,
)

from eslurm.ports.store import (
    ROW_TYPES,
    AttemptRow,
    ForeignStore,
    JobRow,
    LoggedFact,
    NodeRow,
    RecordRow,
    SchemaTooNew,
    SettingRow,
    StepRow,
    StoreFailed,
)
from eslurm.store.migrations import MIGRATIONS, Migration

SCHEMA_VERSION = 3

METADATA = MetaData()


# Byte by byte: keys sort alike in every database, and an index outlives an update of the server's locales.
_TEXT = String().with_variant(String(collation="C"), "postgresql")


def _text(name: str, *, key: bool = False, **how: Any) -> Column[str]:
    return Column(name, _TEXT, primary_key=key, nullable=False, **how)


def _integer(name: str, *, key: bool = False) -> Column[int]:
    return Column(name, BigInteger, primary_key=key, nullable=False, autoincrement=False)


def _bytes(name: str, *, key: bool = False) -> Column[bytes]:
    return Column(name, LargeBinary, primary_key=key, nullable=False)


def _owner(*, key: bool = True) -> Column[str]:
    return _text("owner", key=key)


_SHORT = ("version", "exit_code", "signal")
"""Columns of 32 bits, as they have been from the first version on."""


def _table(name: str, row_type: type[msgspec.Struct], *keys: str) -> Table:
    """A table with a column for each field of its rows, in their order, behind the owner."""
    types: dict[type, Any] = {str: _TEXT, int: BigInteger, bytes: LargeBinary, bool: Boolean}
    columns: list[Column[Any]] = [
        Column(
            field.name,
            Integer if field.name in _SHORT else types[field.type],
            primary_key=field.name in keys,
            nullable=False,
            autoincrement=False,
        )
        for field in msgspec.structs.fields(row_type)
    ]
    return Table(name, METADATA, _owner(), *columns)


META = Table("meta", METADATA, _text("name", key=True), _text("value"))

# The columns of version 1, then those that came with version 2: a row written before them says nothing there.
LEADER = Table(
    "leader",
    METADATA,
    _owner(),
    _integer("epoch"),
    _integer("revision"),
    _integer("at_us"),
    _text("holder", server_default=""),
    _text("endpoint", server_default=""),
    Column("beat", BigInteger, nullable=False, server_default=text("0")),
    Column("released", Boolean, nullable=False, server_default=text("false")),
    _text("successor", server_default=""),
)

FACTS = _table("facts", LoggedFact, "revision")
JOBS = _table(JobRow.TABLE, JobRow, "job_id")
# Restart reads the unfinished few among the many: the index holds nothing else.
Index(
    "jobs_unfinished",
    JOBS.c.owner,
    JOBS.c.job_id,
    sqlite_where=~JOBS.c.finished,
    postgresql_where=~JOBS.c.finished,
)
# An array's tasks, which accounting asks for; other jobs are not in it.
Index(
    "jobs_by_array",
    JOBS.c.owner,
    JOBS.c.array_job_id,
    sqlite_where=JOBS.c.array_job_id != 0,
    postgresql_where=JOBS.c.array_job_id != 0,
)

ATTEMPTS = _table(AttemptRow.TABLE, AttemptRow, "job_id", "attempt")
Index("attempts_by_user", ATTEMPTS.c.owner, ATTEMPTS.c.user, ATTEMPTS.c.job_id, ATTEMPTS.c.attempt)

STEPS = _table(StepRow.TABLE, StepRow, "job_id", "attempt", "step")
NODES = _table(NodeRow.TABLE, NodeRow, "number")
SETTINGS = _table(SettingRow.TABLE, SettingRow, "name")
RECORDS = _table(RecordRow.TABLE, RecordRow, "kind", "name")

# A request id is unique across owners: whichever controller a client asks again, the first answer is found.
REQUESTS = Table(
    "requests",
    METADATA,
    _bytes("request_id", key=True),
    _owner(key=False),
    _integer("at_us"),
    _bytes("answer"),
    sqlite_with_rowid=False,
)
Index("requests_by_age", REQUESTS.c.owner, REQUESTS.c.at_us)

# Per owner, so that pruning needs to know no other owner's references.
BLOBS = Table(
    "blobs",
    METADATA,
    _owner(),
    _bytes("hash", key=True),
    _integer("size"),
    _integer("at_us"),
    _bytes("data"),
)
Index("blobs_by_age", BLOBS.c.owner, BLOBS.c.at_us)

ROW_TABLES: dict[str, Table] = {row_type.TABLE: METADATA.tables[row_type.TABLE] for row_type in ROW_TYPES}

_CREATION_LOCK = 0x65736C75726D
_VERSION = "schema_version"
_CLUSTER = "cluster_id"


def check(connection: Connection, cluster_id: str, version: int = SCHEMA_VERSION) -> int:
    """The database's schema version; 0 if it is empty.

    Raises SchemaTooNew, or ForeignStore for another cluster's database and for one that is not ours at all.
    """
    names = set(inspect(connection).get_table_names())
    if META.name not in names:
        if names:
            raise ForeignStore(
                f"not a database of eslurm: it has tables but no {META.name!r}: {sorted(names)[:5]}"
            )
        return 0
    meta = {row.name: row.value for row in connection.execute(select(META))}
    found = int(meta[_VERSION])
    if found > version:
        raise SchemaTooNew(
            f"the database has schema version {found}, this release knows versions up to {version}: "
            "start the release that wrote it, or a newer one"
        )
    if meta[_CLUSTER] != cluster_id:
        raise ForeignStore(f"the database belongs to cluster {meta[_CLUSTER]!r}, not {cluster_id!r}")
    return found


def bring_up_to_date(
    connection: Connection,
    cluster_id: str,
    version: int = SCHEMA_VERSION,
    migrations: Mapping[int, Migration] = MIGRATIONS,
) -> None:
    """Create the tables, or run the migrations from the database's version on, in one transaction.

    Raises the errors of `check`, StoreFailed if a migration is missing.
    """
    found = check(connection, cluster_id, version)
    if found < version and connection.dialect.name == "postgresql":
        # One at a time. SQLite's transactions take turns anyhow.
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})")
        found = check(connection, cluster_id, version)
    if found == 0:
        METADATA.create_all(connection)
        connection.execute(
            META.insert(),
            [{"name": _VERSION, "value": str(version)}, {"name": _CLUSTER, "value": cluster_id}],
        )
        return
    for step in range(found, version):
        if step not in migrations:
            raise StoreFailed(f"no migration from schema version {step}")
        migrations[step](connection)
    if found < version:
        connection.execute(META.update().where(META.c.name == _VERSION).values(value=str(version)))
