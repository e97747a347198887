"""Seals, site keys and memberships: what verifies and what must not."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.security.files import UnsafeFile, read_private, read_trusted, write_private
from eslurm.security.membership import (
    Identity,
    Members,
    Membership,
    NotAMember,
    find_identity,
    issue,
    verify,
)
from eslurm.security.sealing import BadSeal, KeyRing, Purpose, SealingKey, key_id
from eslurm.security.site_keys import (
    SiteKeyError,
    SiteKeys,
    new_site,
    read_ring,
    read_site_keys,
    write_ring,
    write_site_keys,
)

KEY = SealingKey(bytes(range(32)))
OTHER = SealingKey(bytes(range(1, 33)))
RING = KeyRing([KEY.public])


@given(st.binary(), st.sampled_from(Purpose))
def test_a_sealed_body_comes_back(body: bytes, purpose: Purpose) -> None:
    assert RING.open(purpose, KEY.seal(purpose, body)) == body


@given(st.data())
def test_any_flipped_bit_is_noticed(data: st.DataObject) -> None:
    sealed = bytearray(KEY.seal(Purpose.TOKEN, b"ada may read"))
    position = data.draw(st.integers(0, len(sealed) - 1))
    sealed[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(BadSeal):
        RING.open(Purpose.TOKEN, bytes(sealed))


def test_a_seal_of_another_key_or_purpose_is_refused() -> None:
    with pytest.raises(BadSeal, match=f"unknown key {OTHER.id.hex()}"):
        RING.open(Purpose.MEMBER, OTHER.seal(Purpose.MEMBER, b"x"))
    with pytest.raises(BadSeal, match="does not match"):
        RING.open(Purpose.MEMBER, KEY.seal(Purpose.TOKEN, b"x"))
    with pytest.raises(BadSeal, match="not a sealed"):
        RING.open(Purpose.MEMBER, b"short")


def test_a_site_s_keys_are_read_as_they_were_written(tmp_path: Path) -> None:
    keys = new_site("c1", 7)
    write_site_keys(tmp_path, keys)
    assert (tmp_path / "site.key").stat().st_mode & 0o777 == 0o600
    again = read_site_keys(tmp_path)
    assert again.records == keys.records
    ring = read_ring(tmp_path / "site.pub")
    assert (ring.cluster, ring.revision, ring.keys.publics) == ("c1", 1, keys.ring.keys.publics)


def test_keys_are_rotated_with_both_valid_in_between() -> None:
    first = new_site("c1", 1)
    both = first.with_next(2)
    held = first.ring
    after = held.successor(both.ring.sealed)
    assert after is not None and len(after.keys) == 2
    assert held.successor(first.ring.sealed) is None
    finished = both.with_next_signing()
    assert finished.signing.id != first.signing.id
    # What either key has sealed is valid at a host that follows.
    for keys in (first, finished):
        assert after.keys.open_shared(Purpose.COMMAND, *keys.seal_together(Purpose.COMMAND, [b"go"])) == b"go"
    with pytest.raises(BadSeal, match="unknown key"):
        held.keys.open_shared(Purpose.COMMAND, *finished.seal_together(Purpose.COMMAND, [b"go"]))
    retired = finished.without(first.signing.id)
    last = after.successor(retired.ring.sealed)
    assert last is not None
    with pytest.raises(BadSeal, match="unknown key"):
        last.keys.open_shared(Purpose.COMMAND, *first.seal_together(Purpose.COMMAND, [b"go"]))


def test_a_ring_is_replaced_only_by_a_newer_one_that_it_vouches_for() -> None:
    ours, theirs = new_site("c1", 1), new_site("c1", 1)
    with pytest.raises(BadSeal):
        ours.ring.successor(theirs.with_next(2).ring.sealed)
    both = ours.with_next(2)
    assert both.ring.successor(ours.ring.sealed) is None
    foreign = SiteKeys("c2", 9, ours.records)
    with pytest.raises(BadSeal, match="cluster 'c2'"):
        ours.ring.successor(foreign.ring.sealed)


def test_what_rotation_refuses() -> None:
    keys = new_site("c1", 1)
    with pytest.raises(SiteKeyError, match="no new key waits"):
        keys.with_next_signing()
    with pytest.raises(SiteKeyError, match="a new key waits already"):
        keys.with_next(2).with_next(3)
    with pytest.raises(SiteKeyError, match="signs: rotate first"):
        keys.without(keys.signing.id)
    with pytest.raises(SiteKeyError, match="there is no key"):
        keys.without(b"12345678")


@pytest.mark.parametrize("text", ["", "# nothing\n", "!!!!", "aGVsbG8="])
def test_a_ring_s_file_that_holds_none_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "site.pub"
    path.write_text(text)
    with pytest.raises(SiteKeyError, match=r"site\.pub holds no public keys"):
        read_ring(path)


def test_secrets_are_refused_when_others_could_read_or_replace_them(tmp_path: Path) -> None:
    path = tmp_path / "identity.key"
    write_private(path, b"s" * 32)
    assert read_private(path) == b"s" * 32
    path.chmod(0o640)
    with pytest.raises(UnsafeFile, match="chmod 600"):
        read_private(path)
    assert read_trusted(path) == b"s" * 32
    path.chmod(0o660)
    with pytest.raises(UnsafeFile, match="chmod go-w"):
        read_trusted(path)
    link = tmp_path / "link"
    link.symlink_to(path)
    path.chmod(0o600)
    assert read_private(link) == b"s" * 32
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(UnsafeFile, match="not a regular file"):
        read_private(tmp_path / "fifo")
    with pytest.raises(UnsafeFile, match="not a regular file"):
        read_trusted(tmp_path)


def test_an_identity_is_drawn_once_and_signs(tmp_path: Path) -> None:
    path = tmp_path / "identity.key"
    identity = find_identity(path)
    assert find_identity(path).public == identity.public
    signature = identity.sign(b"hello")
    assert verify(identity.public, b"hello", signature)
    assert not verify(identity.public, b"hullo", signature)
    assert not verify(b"short", b"hello", signature)
    path.write_bytes(b"short")
    with pytest.raises(UnsafeFile, match="holds 5 bytes"):
        find_identity(path)


def test_a_membership_is_valid_for_its_cluster_until_it_ends_or_is_revoked() -> None:
    keys, identity = new_site("c1", 1), Identity.generate()
    membership = Membership("c1", b"serial01", "agent", "cn[1-4]", identity.public, 10, 100)
    sealed = issue(keys, membership)
    members = Members(keys.ring)
    assert members.check(sealed, 50) == membership
    with pytest.raises(NotAMember, match="has ended"):
        members.check(sealed, 100)
    members.revoked = frozenset({b"serial01"})
    with pytest.raises(NotAMember, match="was revoked"):
        members.check(sealed, 50)
    with pytest.raises(NotAMember, match="not of this cluster"):
        Members(new_site("c1", 1).ring).check(sealed, 50)
    with pytest.raises(NotAMember, match="of cluster 'c2'"):
        members.check(issue(keys, msgspec.structs.replace(membership, cluster="c2")), 50)
    with pytest.raises(NotAMember, match="not a membership"):
        members.check(keys.seal(Purpose.MEMBER, b"\xc1"), 50)


def test_a_key_is_named_by_its_hash(tmp_path: Path) -> None:
    assert len(key_id(KEY.public)) == 8
    write_ring(tmp_path / "ring", new_site("c1", 1).ring)
    assert "revision 1" in (tmp_path / "ring").read_text()
