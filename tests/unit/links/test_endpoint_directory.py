"""The address book among hosts that are not trusted: a copy is the leader's book, or it is not taken."""

from __future__ import annotations

from typing import Any

import pytest

from eslurm.links import endpoint_directory as book_module
from eslurm.links.endpoint_directory import ENTRIES_PER_ITEM, BadDirectory, EndpointDirectory
from eslurm.security.directory_seal import open_book, seal_book
from eslurm.v1 import link_pb2
from tests.support.trust import Site
from tests.unit.links.test_envelopes import entries, over_the_wire

SITE = Site()


def sealing(revision: int, digest: bytes) -> bytes:
    return seal_book(SITE.keys, revision, digest)


def opened(sealed: bytes) -> tuple[int, bytes]:
    return open_book(SITE.keys.ring, sealed)


def pulled(copy: EndpointDirectory, book: EndpointDirectory, open_seal: Any = opened) -> bool:
    """The copy asks the book, and takes the answer over the wire."""
    return [copy.apply(over_the_wire(item).book, "peer", open_seal) for item in book.since(copy.revision)][-1]


def test_a_copy_of_copies_is_the_leader_s_book() -> None:
    """Goal: whatever way it came, the seal holds. Method: copies that are behind by different revisions, over two reigns."""
    book = EndpointDirectory(1, sealing)
    near, far, late = EndpointDirectory(), EndpointDirectory(), EndpointDirectory()
    for round_ in range(1, 6):
        book.put(book.revision + 1, entries(range(round_, round_ + 3), port=round_))
        assert pulled(near, book)
        if round_ % 2:
            assert pulled(far, near)
    assert pulled(late, far) and late.revision == book.revision
    successor = EndpointDirectory(2, sealing)
    # Nodes 1 to 3 are no more.
    successor.put(successor.revision + 1, entries(range(4, 8), port=9))
    assert pulled(near, successor) and pulled(far, near) and pulled(late, far)
    assert late.find_endpoint(2) is None and late.find_endpoint(5) == "127.0.0.1:9" and len(late) == 4


def test_a_false_book_is_not_taken_and_leaves_the_copy_as_it_was() -> None:
    book, copy = EndpointDirectory(1, sealing), EndpointDirectory()
    book.put(book.revision + 1, entries(range(9)))
    assert pulled(copy, book)
    before = copy.revision
    book.put(book.revision + 1, entries(range(2), port=2))
    [item] = book.since(before)
    good = item.book.sealed

    def changed(**fields: Any) -> link_pb2.Book:
        false = link_pb2.Book.FromString(item.book.SerializeToString())
        for name, value in fields.items():
            setattr(false, name, value)
        return false

    elsewhere = changed()
    elsewhere.entries[0].endpoint = "192.0.2.66:1"
    renamed = changed()
    renamed.entries[0].name = "cn5"
    added = changed()
    added.entries.add(number=99, name="cn99", endpoint="192.0.2.66:1", incarnation=1)
    left_out = changed()
    del left_out.entries[0]
    unsealed = changed(sealed=b"")
    forged = changed(sealed=seal_book(Site().keys, item.book.revision, b"d" * 32))
    later = changed(revision=item.book.revision + 1)
    for_ever = changed(revision=2**63)
    for false in (elsewhere, renamed, added, left_out, unsealed, forged, later, for_ever):
        with pytest.raises(BadDirectory):
            copy.apply(false, "peer", opened)
        assert copy.revision == before and copy.find_endpoint(0) == "127.0.0.1:1"
    assert copy.apply(item.book, "peer", opened) and copy.find_endpoint(0) == "127.0.0.1:2"
    assert good and next(iter(copy.since(before))).book.sealed == good, "it goes on to others"


def test_two_pulls_at_once_do_not_mix() -> None:
    book, copy = EndpointDirectory(1, sealing), EndpointDirectory()
    book.put(book.revision + 1, entries(range(ENTRIES_PER_ITEM + 1)))
    older = [item.book for item in book.since(0)]
    book.put(book.revision + 1, entries(range(ENTRIES_PER_ITEM + 1), port=2))
    newer = [item.book for item in book.since(0)]
    assert not copy.apply(older[0], "one", opened) and not copy.apply(newer[0], "two", opened)
    assert copy.apply(older[1], "one", opened) and copy.apply(newer[1], "two", opened)
    assert copy.revision == book.revision and copy.find_endpoint(0) == "127.0.0.1:2"
    # One that ends in between leaves nothing behind.
    fresh = EndpointDirectory()
    fresh.apply(newer[0], "one", opened)
    fresh.forget("one")
    with pytest.raises(BadDirectory):
        fresh.apply(newer[1], "one", opened)


def test_a_pull_without_an_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_module, "ENTRIES_MAX", 10)
    copy = EndpointDirectory()
    part = link_pb2.Book(revision=1, more=True)
    part.entries.extend(link_pb2.BookEntry(number=number) for number in range(11))
    with pytest.raises(BadDirectory, match="more than 10 entries"):
        copy.apply(part, "peer", opened)
