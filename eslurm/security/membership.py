"""A host's identity and its membership in the cluster.

Each daemon has an Ed25519 key pair of its own; a membership is the site's statement on the roles and names of that key.
Invariant: a private identity never leaves its host, and a membership is worth nothing without it.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from eslurm.security.files import UnsafeFile, read_private, write_private
from eslurm.security.sealing import UNREADABLE, BadSeal, Purpose
from eslurm.security.site_keys import Ring, SiteKeys

IDENTITY = "identity.key"
MEMBERSHIP = "membership"
_SEED_BYTES = 32
_CHECKED_MAX = 4096

Role = Literal["controller", "satellite", "agent", "login", "estimator"]


class Membership(msgspec.Struct, frozen=True, array_like=True):
    """The site's statement on one host's key. `names` is a host list: nodes, login hosts, or the daemon's own name.

    Times are UTC microseconds; `until_us` 0: until it is revoked. `serial` names it for revocation.
    """

    cluster: str
    serial: bytes
    role: Role
    names: str
    public: bytes
    since_us: int
    until_us: int = 0


class NotAMember(Exception):
    """The peer has not proved its membership; the text has the reason."""


class Identity:
    """The key pair of one daemon."""

    def __init__(self, seed: bytes) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self._seed = seed
        self.public = self._private.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> Identity:
        """A new one."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """A signature of 64 bytes."""
        return self._private.sign(message)

    def write(self, path: Path) -> None:
        """Write it for this user alone. Raises OSError."""
        write_private(path, self._seed)


def read_identity(path: Path) -> Identity:
    """The identity in a file. Raises `UnsafeFile`."""
    seed = read_private(path)
    if len(seed) != _SEED_BYTES:
        raise UnsafeFile(
            f"{path} holds {len(seed)} bytes, an identity has {_SEED_BYTES}: remove it and its membership, "
            "and issue a new one (eslurm keys issue)"
        )
    return Identity(seed)


def find_identity(path: Path) -> Identity:
    """The identity in a file, generated at its first use. Raises `UnsafeFile`, OSError."""
    if not path.exists() and not path.is_symlink():
        Identity.generate().write(path)
    return read_identity(path)


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Check whether the holder of the key behind `public` has signed the message."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def issue(keys: SiteKeys, membership: Membership) -> bytes:
    """The sealed membership."""
    return keys.seal(Purpose.MEMBER, msgspec.msgpack.encode(membership))


class Members:
    """Checks memberships against the ring and the revocations. Both may be replaced while links live."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self.revoked: frozenset[bytes] = frozenset()
        self._open = lru_cache(_CHECKED_MAX)(self._opened)

    @property
    def ring(self) -> Ring:
        """The trusted keys."""
        return self._ring

    @ring.setter
    def ring(self, ring: Ring) -> None:
        self._ring = ring
        self._open.cache_clear()

    def check(self, sealed: bytes, now_us: int) -> Membership:
        """The site's statement on a key. Raises `NotAMember`."""
        try:
            membership = self._open(sealed)
        except BadSeal as error:
            raise NotAMember(f"the membership is not of this cluster: {error}") from None
        if membership.cluster != self._ring.cluster:
            raise NotAMember(
                f"the membership is of cluster {membership.cluster!r}, not of {self._ring.cluster!r}"
            )
        if membership.serial in self.revoked:
            raise NotAMember(f"membership {membership.serial.hex()} was revoked")
        if membership.until_us and now_us >= membership.until_us:
            raise NotAMember(
                f"membership {membership.serial.hex()} has ended: issue a new one (eslurm keys issue)"
            )
        return membership

    def _opened(self, sealed: bytes) -> Membership:
        try:
            return msgspec.msgpack.decode(self._ring.keys.open(Purpose.MEMBER, sealed), type=Membership)
        except UNREADABLE:
            raise BadSeal("not a membership") from None
