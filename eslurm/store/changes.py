"""The net effect of a batch's row changes.

Invariant: each key of a table is named once, with its latest change; so the order in which a store applies
them does not matter, and no row is written twice in a transaction.
"""

from __future__ import annotations

from collections.abc import Iterable

from eslurm.ports.store import ROW_TYPES, BlobRow, Key, Row, RowChange, RowDelete, StoreFailed

TABLES = frozenset(row_type.TABLE for row_type in ROW_TYPES)


def net_changes(changes: Iterable[RowChange]) -> dict[str, dict[Key, Row | None]]:
    """Per table and key the row to be stored, None to delete it. StoreFailed for an unknown table."""
    net: dict[str, dict[Key, Row | None]] = {}
    for change in changes:
        if isinstance(change, RowDelete):
            if change.table not in TABLES:
                raise StoreFailed(f"no table {change.table!r}")
            net.setdefault(change.table, {})[change.key] = None
        else:
            net.setdefault(change.TABLE, {})[change.key] = change
    return net


def distinct_blobs(blobs: Iterable[BlobRow]) -> dict[bytes, bytes]:
    """The blobs by hash: many jobs of one batch may share a script."""
    return {blob.hash: blob.data for blob in blobs}
