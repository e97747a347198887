"""A shared key-value store as plain dictionaries: synchronous, single-threaded, nothing on disk.

The in-memory store wraps it in coroutines and the simulator's servers answer from it; both give the answers that etcd gives.
It keeps every version since the last compaction. Invariant: a swap changes everything or raises before it changes anything.
Time comes from outside, in microseconds of a clock that never goes back.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence

import msgspec

from eslurm.ports.kv import (
    Changes,
    Delete,
    Entry,
    Expect,
    Found,
    KvFull,
    Lease,
    LeaseLost,
    Operation,
    Page,
    Put,
    Swapped,
    WatchBroken,
)

FIRST_REVISION = 1
"""Of a store in which nothing was ever written."""
_ENTRY_BYTES = 64
"""The size of an entry beside its key and value."""


class _Change(msgspec.Struct, frozen=True):
    """The value of a key from `revision` on; None: it was removed then."""

    revision: int
    entry: Entry | None


class _Lease(msgspec.Struct):
    ttl_us: int
    until_us: int
    keys: set[str]


class KvImage:
    """All keys with their versions, and the leases. `quota_bytes` bounds what all kept versions take; 0: no bound."""

    def __init__(self, quota_bytes: int = 0) -> None:
        self.revision = FIRST_REVISION
        self.compacted = 0
        self.size_bytes = 0
        self._quota_bytes = quota_bytes
        self._versions: dict[str, list[_Change]] = {}
        self._keys: list[str] = []
        # Of each revision since the compaction: the keys that it changed.
        self._changed: list[tuple[int, tuple[str, ...]]] = []
        self._leases: dict[int, _Lease] = {}
        self._last_lease = 0
        self._listeners: list[Callable[[], None]] = []

    # ---- reads ----

    def get(self, key: str, revision: int = 0) -> Found:
        """The entry of a key as it was at `revision`; 0: as it is."""
        return Found(self._entry(key, revision or self.revision), self.revision)

    def list(self, prefix: str, after: str, revision: int, limit: int) -> Page:
        """See `KvReader.list`."""
        at = revision or self.revision
        self._check_kept(at)
        entries: list[Entry] = []
        first = bisect_right(self._keys, after) if after else bisect_left(self._keys, prefix)
        for key in self._keys[first:]:
            if not key.startswith(prefix):
                break
            if entry := self._entry(key, at):
                if len(entries) == limit:
                    return Page(tuple(entries), at, more=True)
                entries.append(entry)
        return Page(tuple(entries), at, more=False)

    def changes(self, prefix: str, after: int, until: int = 0) -> Changes:
        """Changes of keys with `prefix` after revision `after`, up to `until` (0: all). Raises `WatchBroken`."""
        if after < self.compacted:
            raise WatchBroken(f"revisions up to {self.compacted} are compacted", self.compacted)
        at = min(until or self.revision, self.revision)
        entries: dict[str, Entry] = {}
        deleted: dict[str, None] = {}
        for revision, keys in self._changed[bisect_right(self._changed, after, key=_revision_of) :]:
            if revision > at:
                break
            for key in keys:
                if not key.startswith(prefix):
                    continue
                if entry := self._entry(key, revision):
                    entries[key] = entry
                    deleted.pop(key, None)
                else:
                    deleted[key] = None
                    entries.pop(key, None)
        return Changes(max(at, after), tuple(entries.values()), tuple(deleted))

    # ---- changes ----

    def swap(self, expect: Sequence[Expect], then: Sequence[Operation]) -> Swapped:
        """See `KvWriter.swap`."""
        named = [condition.key for condition in expect]
        if any(self._version(condition.key) != condition.version for condition in expect):
            return Swapped(False, self.revision, {key: self._entry(key, self.revision) for key in named})
        for operation in then:
            if isinstance(operation, Put) and operation.lease and operation.lease not in self._leases:
                raise LeaseLost(f"lease {operation.lease:x} does not exist")
        if 0 < self._quota_bytes <= self.size_bytes and any(isinstance(change, Put) for change in then):
            raise KvFull(f"{self.size_bytes} of {self._quota_bytes} bytes are used")
        self._write(then)
        return Swapped(True, self.revision, {key: self._entry(key, self.revision) for key in named})

    def compact(self, revision: int) -> None:
        """See `KeyValueStore.compact`. The present values stay; a revision beyond the last is the last."""
        at = min(revision, self.revision)
        if at <= self.compacted:
            return
        self.compacted = at
        del self._changed[: bisect_right(self._changed, at, key=_revision_of)]
        for key in list(self._versions):
            changes = self._versions[key]
            last = bisect_right(changes, at, key=lambda change: change.revision) - 1
            gone = changes[: max(last, 0)]
            if last >= 0 and changes[last].entry is None:
                gone = changes[: last + 1]
            self.size_bytes -= sum(_size(key, change) for change in gone)
            del changes[: len(gone)]
            if not changes:
                del self._versions[key]
                del self._keys[bisect_left(self._keys, key)]

    # ---- leases ----

    def grant(self, ttl_us: int, now_us: int) -> Lease:
        """See `KvLeases.grant`."""
        self._last_lease += 1
        self._leases[self._last_lease] = _Lease(ttl_us, now_us + ttl_us, set())
        return Lease(self._last_lease, ttl_us / 1e6)

    def keep(self, lease: int, now_us: int) -> float:
        """See `KvLeases.keep`."""
        found = self._leases.get(lease)
        if found is None:
            raise LeaseLost(f"lease {lease:x} does not exist")
        found.until_us = now_us + found.ttl_us
        return found.ttl_us / 1e6

    def revoke(self, lease: int) -> None:
        """See `KvLeases.revoke`."""
        found = self._leases.pop(lease, None)
        if found is not None and found.keys:
            self._write([Delete(key) for key in sorted(found.keys)])

    def extend_all(self, now_us: int) -> None:
        """Give every lease its full life again, as a new leader of the servers does."""
        for found in self._leases.values():
            found.until_us = now_us + found.ttl_us

    def expire(self, now_us: int) -> None:
        """End the leases whose time has come."""
        for lease in [lease for lease, found in self._leases.items() if found.until_us <= now_us]:
            self.revoke(lease)

    def is_over(self, lease: int, now_us: int) -> bool:
        """Check whether the time of a lease has come; it may not have ended yet."""
        found = self._leases.get(lease)
        return found is not None and found.until_us <= now_us

    def next_expiry_us(self) -> int | None:
        """The end of the next lease that runs out unless it is kept; None without leases."""
        return min((found.until_us for found in self._leases.values()), default=None)

    # ---- watchers ----

    def listen(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call `on_change` after each revision; returns what ends that."""
        self._listeners.append(on_change)
        return lambda: self._listeners.remove(on_change)

    # ---- within ----

    def _write(self, then: Sequence[Operation]) -> None:
        if not then:
            return
        self.revision += 1
        changed = [operation.key for operation in then if self._apply(operation)]
        if changed:
            self._changed.append((self.revision, tuple(changed)))
        for listener in list(self._listeners):
            listener()

    def _apply(self, operation: Operation) -> bool:
        key = operation.key
        before = self._entry(key, self.revision)
        if before is not None and before.lease in self._leases:
            self._leases[before.lease].keys.discard(key)
        after = None
        if isinstance(operation, Put):
            created = before.created if before else self.revision
            after = Entry(key, operation.value, self.revision, created, operation.lease)
            if operation.lease:
                self._leases[operation.lease].keys.add(key)
        elif before is None:
            return False
        if key not in self._versions:
            self._versions[key] = []
            insort(self._keys, key)
        change = _Change(self.revision, after)
        self._versions[key].append(change)
        self.size_bytes += _size(key, change)
        return True

    def _entry(self, key: str, revision: int) -> Entry | None:
        changes = self._versions.get(key)
        if not changes:
            return None
        if changes[-1].revision <= revision:
            return changes[-1].entry
        last = bisect_right(changes, revision, key=lambda change: change.revision) - 1
        return changes[last].entry if last >= 0 else None

    def _version(self, key: str) -> int:
        entry = self._entry(key, self.revision)
        return entry.version if entry else 0

    def _check_kept(self, revision: int) -> None:
        if revision < self.compacted:
            raise WatchBroken(f"revision {revision} is compacted", self.compacted)


def _revision_of(changed: tuple[int, tuple[str, ...]]) -> int:
    return changed[0]


def _size(key: str, change: _Change) -> int:
    return _ENTRY_BYTES + len(key) + (len(change.entry.value) if change.entry else 0)
