"""The site's keys: `site.key` on the controllers, `site.pub` on every host, and how they are replaced.

A key is `next` (it verifies, and does not sign yet), `signing`, or `old` (it verifies still). A ring is the public half:
a statement with a revision, sealed by a key that is already trusted. Invariant: a host replaces its ring only by one of a
higher revision that a key of its present ring has sealed; so a host that trusts the site once follows all its keys.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from eslurm.security.files import UnsafeFile, read_private, read_trusted, write_private, write_public
from eslurm.security.sealing import UNREADABLE, BadSeal, KeyRing, Purpose, SealingKey, key_id, unverified_body

SITE_KEY = "site.key"
SITE_PUB = "site.pub"
KEYS_MAX = 8

KeyState = Literal["next", "signing", "old"]


class RingStatement(msgspec.Struct, frozen=True, array_like=True):
    """The public keys that verify at a site from this revision on."""

    cluster: str
    revision: int
    publics: tuple[bytes, ...]


class KeyRecord(msgspec.Struct, frozen=True):
    """One private key. `created_us` is UTC."""

    seed: bytes
    state: KeyState
    created_us: int


class _SiteFile(msgspec.Struct, frozen=True):
    cluster: str
    revision: int
    keys: tuple[KeyRecord, ...]


class SiteKeyError(Exception):
    """The site's keys cannot be read or changed; the text has the reason and the way out."""


class Ring:
    """The keys that a host trusts for one cluster. `sealed` is the statement for other hosts."""

    def __init__(self, statement: RingStatement, sealed: bytes) -> None:
        self.cluster = statement.cluster
        self.revision = statement.revision
        self.sealed = sealed
        self.keys = KeyRing(statement.publics)

    @classmethod
    def from_sealed(cls, sealed: bytes) -> Ring:
        """The ring as a trust anchor: it vouches for itself. Raises `BadSeal`."""
        statement = _decode_ring(unverified_body(sealed))
        try:
            ring = cls(statement, sealed)
        except ValueError:
            raise BadSeal("a ring with a key that is none") from None
        ring.keys.open(Purpose.RING, sealed)
        return ring

    def successor(self, sealed: bytes) -> Ring | None:
        """The ring that replaces this one; None when it is no newer. Raises `BadSeal` when no key here vouches for it."""
        if sealed == self.sealed:
            return None
        statement = _decode_ring(self.keys.open(Purpose.RING, sealed))
        if statement.cluster != self.cluster:
            raise BadSeal(f"a ring of cluster {statement.cluster!r}, not {self.cluster!r}")
        if statement.revision <= self.revision:
            return None
        try:
            return Ring(statement, sealed)
        except ValueError:
            raise BadSeal("a ring with a key that is none") from None


class SiteKeys:
    """The signing keys of a controller. Made by `new_site` or `read_site_keys`; changes return a new value."""

    def __init__(self, cluster: str, revision: int, records: tuple[KeyRecord, ...]) -> None:
        signing = [record for record in records if record.state == "signing"]
        if len(signing) != 1 or len(records) > KEYS_MAX:
            raise SiteKeyError(f"{len(signing)} of {len(records)} keys sign: exactly one does")
        self.cluster = cluster
        self.revision = revision
        self.records = records
        self.signing = SealingKey(signing[0].seed)
        publics = tuple(SealingKey(record.seed).public for record in records)
        statement = RingStatement(cluster, revision, publics)
        # By the oldest: a host that missed a rotation trusts that one still.
        oldest = SealingKey(records[0].seed)
        self.ring = Ring(statement, oldest.seal(Purpose.RING, msgspec.msgpack.encode(statement)))

    def seal(self, purpose: Purpose, body: bytes) -> bytes:
        """A statement under the signing key."""
        return self.signing.seal(purpose, body)

    def seal_together(self, purpose: Purpose, bodies: Sequence[bytes]) -> list[bytes]:
        """Statements that share a signature of the signing key."""
        return self.signing.seal_together(purpose, bodies)

    def seal_by_each(self, purpose: Purpose, body: bytes) -> list[bytes]:
        """The same statement under each of the keys: its reader may know another one than the signing key."""
        return [SealingKey(record.seed).seal(purpose, body) for record in self.records]

    def with_next(self, now_us: int) -> SiteKeys:
        """Add a key that verifies and does not sign yet. Raises `SiteKeyError` when there is one already."""
        if any(record.state == "next" for record in self.records):
            raise SiteKeyError("a new key waits already: let it sign (eslurm keys rotate --finish) first")
        if len(self.records) >= KEYS_MAX:
            raise SiteKeyError(f"there are {KEYS_MAX} keys: retire an old one first (eslurm keys retire ID)")
        record = KeyRecord(SealingKey.generate().seed, "next", now_us)
        return SiteKeys(self.cluster, self.revision + 1, (*self.records, record))

    def with_next_signing(self) -> SiteKeys:
        """Make the next key the signing one. Raises `SiteKeyError` without one."""
        if not any(record.state == "next" for record in self.records):
            raise SiteKeyError("no new key waits: make one first (eslurm keys rotate)")
        moves: dict[KeyState, KeyState] = {"next": "signing", "signing": "old", "old": "old"}
        moved = (msgspec.structs.replace(record, state=moves[record.state]) for record in self.records)
        return SiteKeys(self.cluster, self.revision + 1, tuple(moved))

    def without(self, identifier: bytes) -> SiteKeys:
        """Remove a key that signs no more: its statements become invalid everywhere. Raises `SiteKeyError`."""
        kept = tuple(
            record for record in self.records if key_id(SealingKey(record.seed).public) != identifier
        )
        if len(kept) == len(self.records):
            raise SiteKeyError(f"there is no key {identifier.hex()}: see eslurm keys list")
        if not any(record.state == "signing" for record in kept):
            raise SiteKeyError(f"key {identifier.hex()} signs: rotate first (eslurm keys rotate)")
        return SiteKeys(self.cluster, self.revision + 1, kept)


def new_site(cluster: str, now_us: int) -> SiteKeys:
    """Keys for a new site."""
    return SiteKeys(cluster, 1, (KeyRecord(SealingKey.generate().seed, "signing", now_us),))


def read_site_keys(directory: Path) -> SiteKeys:
    """The private keys in a controller's directory. Raises `SiteKeyError`."""
    path = directory / SITE_KEY
    try:
        file = msgspec.json.decode(read_private(path, may_group_read=True), type=_SiteFile)
        return SiteKeys(file.cluster, file.revision, file.keys)
    except UnsafeFile as error:
        raise SiteKeyError(str(error)) from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise SiteKeyError(f"{path} holds no keys of a site: {error}") from None


def write_site_keys(directory: Path, keys: SiteKeys) -> None:
    """Write both halves, the public one last. Raises OSError."""
    # Of a group are the controllers that root has started as another user.
    write_private(directory / SITE_KEY, site_key_file(keys), may_group_read=True)
    write_ring(directory / SITE_PUB, keys.ring)


def site_key_file(keys: SiteKeys) -> bytes:
    """The content of the private half's file."""
    file = _SiteFile(keys.cluster, keys.revision, keys.records)
    return msgspec.json.format(msgspec.json.encode(file)) + b"\n"


def read_ring(path: Path) -> Ring:
    """The ring in a file. Raises `SiteKeyError`."""
    try:
        lines = read_trusted(path).decode("ascii").splitlines()
        text = "".join(line for line in lines if not line.startswith("#"))
        return Ring.from_sealed(base64.b64decode(text, validate=True))
    except UnsafeFile as error:
        raise SiteKeyError(str(error)) from None
    except (UnicodeDecodeError, binascii.Error, BadSeal) as error:
        raise SiteKeyError(f"{path} holds no public keys of a site: {error}") from None


def write_ring(path: Path, ring: Ring) -> None:
    """Write a ring to a file that all users may read. Raises OSError."""
    write_public(path, ring_file(ring))


def ring_file(ring: Ring) -> bytes:
    """The content of a ring's file."""
    ids = " ".join(key_id(public).hex() for public in ring.keys.publics)
    head = f"# public keys of cluster {ring.cluster}, revision {ring.revision}: {ids}\n"
    return head.encode("ascii", "replace") + base64.encodebytes(ring.sealed)


def _decode_ring(body: bytes) -> RingStatement:
    try:
        statement = msgspec.msgpack.decode(body, type=RingStatement)
    except UNREADABLE:
        raise BadSeal("not a ring") from None
    if not 1 <= len(statement.publics) <= KEYS_MAX:
        raise BadSeal(f"a ring of {len(statement.publics)} keys")
    return statement
