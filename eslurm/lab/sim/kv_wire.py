"""Messages between a client of the shared key-value store and its servers."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from eslurm.ports.kv import LIST_MAX, Changes, Expect, Found, KvError, Lease, Operation, Page, Swapped


class Get(msgspec.Struct, frozen=True):
    """See `KvReader.get`."""

    key: str
    stale: bool = False


class ListPage(msgspec.Struct, frozen=True):
    """See `KvReader.list`."""

    prefix: str
    after: str = ""
    revision: int = 0
    limit: int = LIST_MAX


class Swap(msgspec.Struct, frozen=True):
    """See `KvWriter.swap`."""

    expect: tuple[Expect, ...]
    then: tuple[Operation, ...]


class Grant(msgspec.Struct, frozen=True):
    """See `KvLeases.grant`."""

    ttl_us: int


class Keep(msgspec.Struct, frozen=True):
    """See `KvLeases.keep`."""

    lease: int


class Revoke(msgspec.Struct, frozen=True):
    """See `KvLeases.revoke`."""

    lease: int


class Compact(msgspec.Struct, frozen=True):
    """See `KeyValueStore.compact`."""

    revision: int


Request: TypeAlias = Get | ListPage | Swap | Grant | Keep | Revoke | Compact
Result: TypeAlias = Found | Page | Swapped | Lease | float | None


class Ask(msgspec.Struct, frozen=True):
    """One call; `Answer` has the same number."""

    ask_id: int
    request: Request


class Answer(msgspec.Struct, frozen=True):
    """The result of a call."""

    ask_id: int
    result: Result | KvError


class BeginWatch(msgspec.Struct, frozen=True):
    """See `KvReader.watch`."""

    watch_id: int
    prefix: str
    revision: int


class EndWatch(msgspec.Struct, frozen=True):
    """Nothing of it is wanted any more."""

    watch_id: int


class Told(msgspec.Struct, frozen=True):
    """Changes that a watch shows; `serial` counts from 0, as the bytes of a stream do."""

    watch_id: int
    serial: int
    changes: Changes


class Broke(msgspec.Struct, frozen=True):
    """The watch has ended."""

    watch_id: int
    serial: int
    error: KvError
