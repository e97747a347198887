"""The address book: which endpoint serves a node number, by revision.

The controller's book is the truth; satellites and agents hold copies and pull what they lack. Invariants:
a copy at revision R has every change up to R; an interrupted pull leaves the revision as it was; every revision of
a controller's reign is above all of those before it, so that a copy of an old reign is known for what it is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from eslurm.ports.link import ANYBODY, Wanted
from eslurm.v1 import link_pb2

ENTRIES_PER_ITEM = 4_000
_EPOCH_SHIFT = 32


class Entry(NamedTuple):
    """Where a node is, and since which revision of the book."""

    name: str
    endpoint: str
    incarnation: int
    revision: int


class AddressBook:
    """A copy of the book, or on the controller the book itself, which begins anew with each `epoch`."""

    def __init__(self, epoch: int = 0) -> None:
        self.revision = epoch << _EPOCH_SHIFT
        self._entries: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def find_endpoint(self, number: int) -> str | None:
        """Where the node's process listens; None when the book does not have it."""
        entry = self._entries.get(number)
        return entry.endpoint or None if entry is not None else None

    def wanted(self, number: int) -> Wanted:
        """What the peer at a node's endpoint has to be a member as: the book says only where it is."""
        entry = self._entries.get(number)
        return Wanted(name=entry.name) if entry is not None else ANYBODY

    def put(self, revision: int, entries: Iterable[tuple[int, str, str, int]]) -> None:
        """Record changes as (number, name, endpoint, incarnation) under a new revision; for the controller."""
        for number, name, endpoint, incarnation in entries:
            self._entries[number] = Entry(name, endpoint, incarnation, revision)
        self.revision = max(self.revision, revision)

    def apply(self, book: link_pb2.Book) -> bool:
        """Take in a part of a pull; True when the copy has reached a new revision."""
        if getattr(book, "from") > self.revision or book.revision < self.revision:
            return False
        revision = book.revision
        for entry in book.entries:
            # One string for the thousands of nodes that a process may serve.
            endpoint = sys.intern(entry.endpoint)
            self._entries[entry.number] = Entry(entry.name, endpoint, entry.incarnation, revision)
        if book.more or book.revision == self.revision:
            return False
        self.revision = book.revision
        return True

    def since(self, revision: int) -> Iterator[link_pb2.Item]:
        """The items that bring a copy from `revision` to this book's."""
        changed = [(number, entry) for number, entry in self._entries.items() if entry.revision > revision]
        for at in range(0, max(1, len(changed)), ENTRIES_PER_ITEM):
            part = changed[at : at + ENTRIES_PER_ITEM]
            book = link_pb2.Book(
                revision=self.revision,
                entries=[
                    link_pb2.BookEntry(
                        number=number, name=entry.name, endpoint=entry.endpoint, incarnation=entry.incarnation
                    )
                    for number, entry in part
                ],
                more=at + ENTRIES_PER_ITEM < len(changed),
            )
            setattr(book, "from", min(revision, self.revision))
            yield link_pb2.Item(book=book)
