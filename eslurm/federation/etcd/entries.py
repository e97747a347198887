"""From etcd's keys and values to the port's entries.

Invariant: a key that no cell can have written through the port is not shown; other programs may have written it.
"""

from __future__ import annotations

from typing import Any

from eslurm.ports.kv import Entry, check_key


def prefix_end(prefix: str) -> bytes:
    """The first key beyond all keys with this prefix. The port's keys are ASCII, so the last byte can be raised."""
    data = prefix.encode()
    return data[:-1] + bytes([data[-1] + 1])


def key_of(raw: bytes) -> str | None:
    """The key as text; None: it is none of the port's."""
    try:
        key = raw.decode("ascii")
        check_key(key)
    except ValueError:
        return None
    return key


def entry_of(key: str, kv: Any) -> Entry:
    """The entry of etcd's message `KeyValue`."""
    return Entry(key, kv.value, kv.mod_revision, kv.create_revision, kv.lease)
