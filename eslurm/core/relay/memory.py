"""Memory of finished broadcasts, so that late copies repeat nothing.

Owns, per finished broadcast, the answers of reached nodes and the local nodes that were started. Unreached nodes are
forgotten on purpose: a repeated request wants another try.

Invariant: an entry lives for `remember_us` unless the count or byte bound pushes the oldest out; beyond that the
tombstones of the agent keep a command from being done twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eslurm.core.relay.messages import BroadcastId, Tuning
from eslurm.core.relay.nodelist import decode, encode
from eslurm.core.relay.record import Record
from eslurm.core.relay.results import EMPTY, Outcome, Results, Status, from_mapping, merge

ENTRY_BYTES = 400
RUN_BYTES = 16


@dataclass(slots=True)
class _Entry:
    results: Results
    started: tuple[tuple[int, ...], tuple[int, ...]]
    expires_us: int
    bytes: int


class Memory:
    """Finished broadcasts, oldest first, within three bounds: age, count and bytes."""

    def __init__(self, tuning: Tuning) -> None:
        self._tuning = tuning
        self._entries: dict[BroadcastId, _Entry] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def store(self, record: Record, now_us: int) -> None:
        """Remember a record that is being closed."""
        reached = {n: o for n, o in record.outcomes.items() if o.status is not Status.UNREACHED}
        results = from_mapping(reached) if reached else EMPTY
        started = encode(sorted(record.started))
        expires_us = now_us + self._tuning.remember_us
        entry = _Entry(results, started, expires_us, _size(results, started))
        self._entries[record.broadcast.broadcast_id] = entry
        self._bytes += entry.bytes
        while (
            len(self._entries) > self._tuning.max_remembered
            or self._bytes > self._tuning.max_remembered_bytes
        ):
            self._drop(next(iter(self._entries)))

    def restore(self, record: Record) -> None:
        """Give a reopened record what was remembered of it, and forget that here."""
        broadcast_id = record.broadcast.broadcast_id
        entry = self._entries.get(broadcast_id)
        if entry is None:
            return
        self._drop(broadcast_id)
        record.outcomes = entry.results.expand()
        record.started = set(decode(*entry.started))
        known: Iterable[int] = (*record.outcomes, *record.started)
        record.waiters = dict.fromkeys(known)

    def add(self, broadcast_id: BroadcastId, nodes: Iterable[int], outcome: Outcome) -> None:
        """A local node finished after its broadcast did: a later copy gets the true answer."""
        entry = self._entries.get(broadcast_id)
        if entry is None:
            return
        started = set(decode(*entry.started))
        news = from_mapping({node: outcome for node in nodes if node in started})
        entry.results = merge((entry.results, news))
        self._bytes -= entry.bytes
        entry.bytes = _size(entry.results, entry.started)
        self._bytes += entry.bytes

    def purge(self, now_us: int) -> None:
        """Drop what is too old."""
        while self._entries:
            broadcast_id = next(iter(self._entries))
            if self._entries[broadcast_id].expires_us > now_us:
                return
            self._drop(broadcast_id)

    def next_expiry_us(self) -> int | None:
        """Time at which the oldest entry expires."""
        return next(iter(self._entries.values())).expires_us if self._entries else None

    def _drop(self, broadcast_id: BroadcastId) -> None:
        self._bytes -= self._entries.pop(broadcast_id).bytes


def _size(results: Results, started: tuple[tuple[int, ...], tuple[int, ...]]) -> int:
    total = ENTRY_BYTES + RUN_BYTES * len(started[0])
    for row in results.rows:
        total += RUN_BYTES * len(row.starts) + len(row.outcome.text) + len(row.outcome.payload)
    return total
