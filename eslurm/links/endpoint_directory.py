"""The endpoint directory (address book): the endpoint of each node number, by revision.

The controller's book is the original; satellites and agents hold copies and pull updates. Invariants: a copy at revision R
has every change up to R and nothing else; an interrupted pull leaves the copy as it was; every revision of a controller's
term is above all of those before it, so that a copy of an old term is recognised. A copy from an untrusted peer counts
only if the whole of it has the digest that the leader has sealed.
"""

from __future__ import annotations

import hashlib
import hmac
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from eslurm.ports.link import ANYBODY, Wanted
from eslurm.security.sealing import BadSeal
from eslurm.v1 import link_pb2

ENTRIES_PER_ITEM = 4_000
ENTRIES_MAX = 1 << 20
"""Of a copy that is being pulled."""
_EPOCH_SHIFT = 32

Seal = Callable[[int, bytes], bytes]
"""From a revision and a digest to the leader's sealed statement."""
OpenSeal = Callable[[bytes], tuple[int, bytes]]
"""The way back; raises `BadSeal`."""


class Entry(NamedTuple):
    """Endpoint of a node, and the book's revision since which it is known."""

    name: str
    endpoint: str
    incarnation: int
    revision: int


class BadDirectory(Exception):
    """A copy that is not the leader's book; the text has the reason."""


class _Pull(NamedTuple):
    """The parts of a copy received so far from one peer."""

    start: int
    revision: int
    entries: dict[int, Entry]


class EndpointDirectory:
    """A copy of the book, or on the controller the book itself, which begins anew with each `epoch`.

    With `seal` it seals the copies it gives away, once for each requested revision.
    """

    def __init__(self, epoch: int = 0, seal: Seal | None = None) -> None:
        self.revision = epoch << _EPOCH_SHIFT
        self._entries: dict[int, Entry] = {}
        self._pulls: dict[object, _Pull] = {}
        self._seal = seal
        self._sealed = b""
        self._sealed_revision = -1

    def __len__(self) -> int:
        return len(self._entries)

    def find_endpoint(self, number: int) -> str | None:
        """Endpoint of the node's process; None when the book does not have it."""
        entry = self._entries.get(number)
        return entry.endpoint or None if entry is not None else None

    def wanted(self, number: int) -> Wanted:
        """The required membership of the peer at a node's endpoint: the book alone proves no identity."""
        entry = self._entries.get(number)
        return Wanted(name=entry.name) if entry is not None else ANYBODY

    def put(self, revision: int, entries: Iterable[tuple[int, str, str, int]]) -> None:
        """Record changes as (number, name, endpoint, incarnation) under a new revision; for the controller."""
        for number, name, endpoint, incarnation in entries:
            self._entries[number] = Entry(name, endpoint, incarnation, revision)
        self.revision = max(self.revision, revision)

    # ---- pulling ----

    def apply(self, book: link_pb2.Book, source: object = None, open_seal: OpenSeal | None = None) -> bool:
        """Take a part of a pull from `source`; True when the copy has reached a new revision.

        With `open_seal` the copy must be the one that the leader has sealed. Raises `BadDirectory`.
        """
        start = getattr(book, "from")
        if start > self.revision or book.revision < self.revision:
            self._pulls.pop(source, None)
            return False
        pull = self._pulls.get(source)
        if pull is None or (pull.start, pull.revision) != (start, book.revision):
            pull = self._pulls[source] = _Pull(start, book.revision, self._basis(book.revision))
        for entry in book.entries:
            # One string for the thousands of nodes that a process may serve.
            endpoint = sys.intern(entry.endpoint)
            pull.entries[entry.number] = Entry(entry.name, endpoint, entry.incarnation, book.revision)
        if len(pull.entries) > ENTRIES_MAX:
            del self._pulls[source]
            raise BadDirectory(f"more than {ENTRIES_MAX} entries")
        if book.more:
            return False
        del self._pulls[source]
        if open_seal is not None:
            _check(pull, book.sealed, open_seal)
        if book.revision == self.revision:
            return False
        self._entries = pull.entries
        self.revision = book.revision
        self._sealed, self._sealed_revision = book.sealed, book.revision
        return True

    def forget(self, source: object) -> None:
        """Drop the unfinished pull from this source."""
        self._pulls.pop(source, None)

    def _basis(self, revision: int) -> dict[int, Entry]:
        """The entries to which a pull adds: none of an earlier term."""
        is_same = revision >> _EPOCH_SHIFT == self.revision >> _EPOCH_SHIFT
        return dict(self._entries) if is_same else {}

    # ---- giving ----

    def since(self, revision: int) -> Iterator[link_pb2.Item]:
        """The items that bring a copy from `revision` to this book's."""
        changed = [(number, entry) for number, entry in self._entries.items() if entry.revision > revision]
        for at in range(0, max(1, len(changed)), ENTRIES_PER_ITEM):
            part = changed[at : at + ENTRIES_PER_ITEM]
            more = at + ENTRIES_PER_ITEM < len(changed)
            book = link_pb2.Book(
                revision=self.revision,
                entries=[
                    link_pb2.BookEntry(
                        number=number, name=entry.name, endpoint=entry.endpoint, incarnation=entry.incarnation
                    )
                    for number, entry in part
                ],
                more=more,
                sealed=b"" if more else self._seal_now(),
            )
            setattr(book, "from", min(revision, self.revision))
            yield link_pb2.Item(book=book)

    def _seal_now(self) -> bytes:
        """The leader's statement about this revision; empty: a copy has none."""
        if self._sealed_revision != self.revision:
            self._sealed = self._seal(self.revision, digest(self._entries)) if self._seal is not None else b""
            self._sealed_revision = self.revision
        return self._sealed


def digest(entries: Mapping[int, Entry]) -> bytes:
    """Digest of all entries, without their revisions, which differ from copy to copy."""
    rows = [(number, *entry[:3]) for number, entry in sorted(entries.items())]
    return hashlib.sha256(msgspec.msgpack.encode(rows)).digest()


def _check(pull: _Pull, sealed: bytes, open_seal: OpenSeal) -> None:
    try:
        revision, wanted = open_seal(sealed)
    except BadSeal as error:
        raise BadDirectory(str(error)) from None
    if revision != pull.revision or not hmac.compare_digest(digest(pull.entries), wanted):
        raise BadDirectory(f"what came as revision {pull.revision} is not what the leader has sealed")
