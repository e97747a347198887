"""The port to the key-value store that the cells of a federation share.

Owns the vocabulary and the contract of every adapter; one contract suite runs over all of them. Keys are ASCII paths, values
are bytes. Every change of the store has a *revision*, one rising number for all keys. Invariants:

- changes, and reads that are not `stale`, are linearizable;
- a key's version is the revision of its last change and never repeats, so a comparison of versions has no ABA (X-30);
- a watch delivers each change after its start once, in order, whole revisions at a time, or it breaks and says so.

There is no unconditional put and no blind delete: a writer compares with the version that it saw last, so a second writer
that still believes in its lead finds out.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol, TypeAlias

import msgspec

KEY_BYTES_MAX = 512
VALUE_BYTES_MAX = 256 * 1024
OPERATIONS_MAX = 64
"""Conditions of a transaction, and its operations; etcd allows 128 of both together by default."""
LIST_MAX = 1_000
"""Entries of one page."""
PROGRESS_S = 5.0
"""A watch says at least so often up to which revision it has seen everything."""
LEASE_MIN_S = 2.0
LEASE_MAX_S = 3_600.0

_KEY = re.compile(r"/[!-~]*")


class KvError(Exception):
    """Anything that the store refuses or cannot do."""


class KvUnavailable(KvError):
    """Not now: no member answers, no leader, too many requests. A change that ends this way has not been made."""


class KvAmbiguous(KvError):
    """A change was sent and its outcome is unknown: read the key before anything else."""


class KvFull(KvAmbiguous):
    """The store's quota is reached. Reads, deletes and leases go on; this write may have been made all the same."""


class KvDenied(KvError):
    """Certificate, user, password or permission: no retry cures it; the text names which."""


class KvTooLarge(KvError, ValueError):
    """A key, a value or a transaction beyond the bounds of this port; refused before it is sent."""


class LeaseLost(KvError):
    """The lease does not exist any more, and neither do its keys."""


class WatchBroken(KvError):
    """The changes asked for are gone: list again. `compacted_revision` is 0 where the store did not compact."""

    def __init__(self, text: str, compacted_revision: int = 0) -> None:
        super().__init__(text)
        self.compacted_revision = compacted_revision


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A key and its value. `version` is the revision of its last change, `created` that at which the key came into being."""

    key: str
    value: bytes
    version: int
    created: int
    lease: int = 0


class Found(msgspec.Struct, frozen=True):
    """The answer to a read: the entry, or None where there is no such key, and the store's revision at that moment."""

    entry: Entry | None
    revision: int


class Page(msgspec.Struct, frozen=True):
    """A part of a listing in the order of keys. All pages of one listing are read at the same revision."""

    entries: tuple[Entry, ...]
    revision: int
    more: bool


class Put(msgspec.Struct, frozen=True):
    """Write a value; with a lease the key vanishes with the lease, without one (0) it stays."""

    key: str
    value: bytes
    lease: int = 0


class Delete(msgspec.Struct, frozen=True):
    """Remove a key."""

    key: str


Operation: TypeAlias = Put | Delete


class Expect(msgspec.Struct, frozen=True):
    """A condition: the key's version is this one; 0: there is no such key."""

    key: str
    version: int


class Swapped(msgspec.Struct, frozen=True):
    """The answer to a conditional change, and what the keys of its conditions and operations hold now.

    Not `done`: nothing has changed, and `current` has the entries of the conditions, read in the same transaction: a failed
    swap costs one message, not two (S-05).
    """

    done: bool
    revision: int
    current: Mapping[str, Entry | None]


class Changes(msgspec.Struct, frozen=True):
    """All changes of one or more whole revisions; each key once, at its last change in this message.

    Without entries and deleted keys it says only that nothing else has happened up to `revision`.
    """

    revision: int
    entries: tuple[Entry, ...] = ()
    deleted: tuple[str, ...] = ()


class Lease(msgspec.Struct, frozen=True):
    """Keys may hang on it. The store may have chosen a longer life than was asked for."""

    lease: int
    ttl_s: float


class KvMember(msgspec.Struct, frozen=True):
    """One server of the store, as seen now. `error` says why it does not answer; then the rest is empty."""

    endpoint: str
    version: str = ""
    is_leader: bool = False
    size_bytes: int = 0
    alarms: tuple[str, ...] = ()
    error: str = ""


class KvReader(Protocol):
    """Reads and watches."""

    async def get(self, key: str, *, stale: bool = False) -> Found:
        """The entry of a key. A `stale` read is answered by one member alone and may be old."""
        ...

    async def list(self, prefix: str, *, after: str = "", revision: int = 0, limit: int = LIST_MAX) -> Page:
        """Entries whose keys begin with `prefix`. `after` is the last key of the page before, with its `revision`.

        Raises `WatchBroken` when that revision is compacted.
        """
        ...

    def watch(self, prefix: str, revision: int) -> AsyncGenerator[Changes, None]:
        """Changes of keys with `prefix` after `revision` (that of a listing), until the generator is closed.

        Ends with `WatchBroken` (list again), `KvUnavailable` (watch again from the last `Changes.revision`) or `KvDenied`,
        never silently. A member without a quorum breaks it. Every PROGRESS_S some `Changes` come, if need be empty ones.
        """
        ...


class KvWriter(Protocol):
    """Conditional changes."""

    async def swap(self, expect: Sequence[Expect], then: Sequence[Operation]) -> Swapped:
        """Make the changes in one transaction if all conditions hold (S-05).

        At most OPERATIONS_MAX conditions and as many operations; a key is changed by one operation at most, and only keys
        with a condition are changed. Raises `LeaseLost` for a put with a lease that has ended; `KvAmbiguous` where the
        change may have been made.
        """
        ...


class KvLeases(Protocol):
    """Leases: keys that vanish when their owner is not heard from."""

    async def grant(self, ttl_s: float) -> Lease:
        """A new lease of LEASE_MIN_S to LEASE_MAX_S."""
        ...

    async def keep(self, lease: int) -> float:
        """Renew a lease; returns its full life in seconds. Raises `LeaseLost`."""
        ...

    async def revoke(self, lease: int) -> None:
        """End a lease and remove its keys; a lease that has ended is no error."""
        ...


class KeyValueStore(KvReader, KvWriter, KvLeases, Protocol):
    """All that a cell needs of the store."""

    async def open(self) -> None:
        """First contact. Raises `KvUnavailable` or `KvDenied`. After it, each call finds a member that answers by itself."""
        ...

    async def members(self) -> tuple[KvMember, ...]:
        """The servers and their state, for administrators; never raises for one that does not answer."""
        ...

    async def compact(self, revision: int) -> None:
        """Forget values that were overwritten or deleted before `revision`; watchers of older ones break."""
        ...

    async def close(self) -> None:
        """End watches and connections. Leases stay and run out."""
        ...


def check_key(key: str) -> None:
    """Raises `KvTooLarge` for a key that is too long, ValueError for one that is no ASCII path."""
    if len(key) > KEY_BYTES_MAX:
        raise KvTooLarge(f"key {key[:64]!r}... has {len(key)} bytes: at most {KEY_BYTES_MAX}")
    if not _KEY.fullmatch(key):
        raise ValueError(f"key {key!r} is no path of printable ASCII characters that begins with /")


def check_page(prefix: str, after: str, revision: int, limit: int) -> None:
    """Raises ValueError for a listing that no adapter answers."""
    check_key(prefix)
    if after and (not after.startswith(prefix) or revision <= 0):
        raise ValueError(f"after {after!r}: the last key of the page before, together with its revision")
    if not 0 < limit <= LIST_MAX:
        raise ValueError(f"limit {limit}: from 1 to {LIST_MAX}")


def check_swap(expect: Sequence[Expect], then: Sequence[Operation]) -> None:
    """Raises `KvTooLarge` for what is beyond the bounds, ValueError for a transaction that breaks the rules of `swap`."""
    if len(expect) > OPERATIONS_MAX or len(then) > OPERATIONS_MAX:
        raise KvTooLarge(
            f"{len(expect)} conditions and {len(then)} operations: at most {OPERATIONS_MAX} of each"
        )
    keys = {condition.key for condition in expect}
    changed = {operation.key for operation in then}
    if len(keys) != len(expect) or len(changed) != len(then):
        raise ValueError("a key has at most one condition and at most one operation")
    if not keys or not changed <= keys:
        raise ValueError(f"{sorted(changed - keys)} would be changed without a condition")
    for key in keys:
        check_key(key)
    for operation in then:
        if isinstance(operation, Put) and len(operation.value) > VALUE_BYTES_MAX:
            size = len(operation.value)
            raise KvTooLarge(f"the value of {operation.key} has {size} bytes: at most {VALUE_BYTES_MAX}")


def check_lease(ttl_s: float) -> None:
    """Raises ValueError for a life that no store grants."""
    if not LEASE_MIN_S <= ttl_s <= LEASE_MAX_S:
        raise ValueError(f"a lease of {ttl_s} s: from {LEASE_MIN_S:g} to {LEASE_MAX_S:g} s")
