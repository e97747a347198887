"""The leader's statement on its address book: the digest of the whole book at a revision.

Agents pass the book on among themselves; the statement proves a copy, whichever host it came from.
"""

from __future__ import annotations

import msgspec

from eslurm.security.sealing import UNREADABLE, BadSeal, Purpose
from eslurm.security.site_keys import Ring, SiteKeys


class BookStatement(msgspec.Struct, frozen=True, array_like=True):
    """`digest` is the SHA-256 of all entries, in the order of their numbers."""

    cluster: str
    revision: int
    digest: bytes


def seal_book(keys: SiteKeys, revision: int, digest: bytes) -> bytes:
    """The sealed statement."""
    return keys.seal(Purpose.BOOK, msgspec.msgpack.encode(BookStatement(keys.cluster, revision, digest)))


def open_book(ring: Ring, sealed: bytes) -> tuple[int, bytes]:
    """Revision and digest that a key of the site has sealed. Raises `BadSeal`."""
    try:
        found = msgspec.msgpack.decode(ring.keys.open(Purpose.BOOK, sealed), type=BookStatement)
    except UNREADABLE:
        raise BadSeal("not a statement about an address book") from None
    if found.cluster != ring.cluster:
        raise BadSeal(f"an address book of cluster {found.cluster!r}, not {ring.cluster!r}")
    return found.revision, found.digest
