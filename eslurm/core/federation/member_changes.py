"""The changes that a member makes to its own keys: joining, showing that it is alive, changing its record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from eslurm.core.federation.actions import StoredEntry, Write
from eslurm.core.federation.mirror import Mirror
from eslurm.core.federation.swapping import Entries
from eslurm.core.federation.values import Keys, Reader, Unreadable, encode
from eslurm.core.model.federation import FORMAT, NUMBER_MAX, Alive, CellRecord, NextNumber

EPOCH_JUMP_MAX: Final = 1_000_000
"""Leads rise one by one: an `alive` word that is so far ahead was not written by a leader of this cell."""


class Own:
    """The keys of one cell, and how their values are judged. `is_own_ring` tells a sealed ring of its own site."""

    def __init__(self, keys: Keys, name: str, is_own_ring: Callable[[bytes], bool]) -> None:
        self.keys = keys
        self.name = name
        self.record_key = keys.cells + name
        self.alive_key = keys.alive + name
        self.summary_key = keys.summary + name
        self.usage_key = keys.usage + name
        self._is_own_ring = is_own_ring
        self._records = Reader(CellRecord, keys.cells)
        self._alive = Reader(Alive, keys.alive)
        self._judged = b"", False

    def read_record(self, entry: StoredEntry) -> CellRecord | Unreadable:
        """Its record, or what stands in its place."""
        return self._records.read_entry(entry)

    def read_alive(self, value: bytes) -> Alive | Unreadable:
        """The word that it is alive, as other cells read it."""
        return self._alive.read(self.alive_key, value)

    def is_own(self, record: CellRecord) -> bool:
        """Check whether this site wrote the record."""
        if record.ring != self._judged[0]:
            self._judged = record.ring, self._is_own_ring(record.ring)
        return self._judged[1]

    def find_record(self, entry: StoredEntry | None) -> CellRecord | None:
        """The record, if there is one that this site wrote."""
        record = self.read_record(entry) if entry is not None else None
        return record if isinstance(record, CellRecord) and self.is_own(record) else None

    def epoch_in(self, entry: StoredEntry | None, own: int) -> int:
        """Epoch of an `alive` word; 0: there is none, or none that a leader of this cell wrote."""
        alive = self._alive.read_entry(entry) if entry is not None else None
        return alive.epoch if isinstance(alive, Alive) and alive.epoch <= own + EPOCH_JUMP_MAX else 0


class Join:
    """Take a number and write the record of a cell that has none.

    The number is new for all that the mirror shows, and the swap fails if another cell has joined since.
    """

    def __init__(self, own: Own, record: CellRecord, cells: Mirror) -> None:
        self.keys = (own.record_key, own.keys.number)
        self._own = own
        self._record = record
        self._cells = cells

    def writes(self, current: Entries) -> tuple[Write, ...]:
        """None when there is a record, or while the mirror lacks the joining of another cell."""
        counter = current[self._own.keys.number]
        if current[self._own.record_key] is not None:
            return ()
        if counter is not None and counter.version > self._cells.revision:
            return ()
        number = self._choose(counter)
        following = number % NUMBER_MAX + 1
        record = msgspec.structs.replace(self._record, number=number)
        return (
            Write(self._own.keys.number, encode(NextNumber(FORMAT, following))),
            Write(self._own.record_key, encode(record)),
        )

    def is_mine(self, current: Entries) -> bool:
        """Any record of this site under this name will do."""
        return self._own.find_record(current[self._own.record_key]) is not None

    def _choose(self, counter: StoredEntry | None) -> int:
        reader = Reader(CellRecord, self._own.keys.cells)
        read = (reader.read(word.key, word.value, word.size) for word in self._cells.words.values())
        used = {record.number for record in read if isinstance(record, CellRecord)}
        following = Reader(NextNumber, self._own.keys.cells).read_entry(counter) if counter else None
        number = following.first if isinstance(following, NextNumber) else 1
        while number in used:
            number = number % NUMBER_MAX + 1
        return number


class ShowAlive:
    """Write the word that the cell is alive, bound to its lease."""

    def __init__(self, own: Own, alive: Alive, lease: int) -> None:
        self.keys = (own.alive_key,)
        self._own = own
        self._epoch = alive.epoch
        self._value = encode(alive)
        self.lease = lease

    def writes(self, current: Entries) -> tuple[Write, ...]:
        """None when a newer leader wrote."""
        entry = current[self._own.alive_key]
        if self._own.epoch_in(entry, self._epoch) > self._epoch or self.is_mine(current):
            return ()
        return (Write(self._own.alive_key, self._value, self.lease),)

    def is_mine(self, current: Entries) -> bool:
        """This value under this lease."""
        entry = current[self._own.alive_key]
        return entry is not None and entry.lease == self.lease and entry.value == self._value


class ChangeRecord:
    """Bring the record up to date. A cell that leaves is not alive any more, which is said in the same change."""

    def __init__(self, own: Own, epoch: int, update: Callable[[CellRecord], CellRecord]) -> None:
        self.keys = (own.record_key, own.alive_key)
        self._own = own
        self._epoch = epoch
        self._update = update

    def writes(self, current: Entries) -> tuple[Write, ...]:
        """None when the record is up to date or not this site's, or a newer leader wrote."""
        alive = current[self._own.alive_key]
        record = self._own.find_record(current[self._own.record_key])
        if record is None or self._own.epoch_in(alive, self._epoch) > self._epoch:
            return ()
        updated = self._update(record)
        if updated == record:
            return ()
        writes = (Write(self._own.record_key, encode(updated)),)
        return (*writes, Write(self._own.alive_key, None)) if updated.left and alive is not None else writes

    def is_mine(self, current: Entries) -> bool:
        """Nothing is left to change."""
        record = self._own.find_record(current[self._own.record_key])
        return record is not None and self._update(record) == record
