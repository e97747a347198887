"""Sealed statements: a body with an Ed25519 signature under one of the site's keys.

A sealed statement is `key id (8 bytes) | signature (64 bytes) | body`. The signature covers the purpose too, so a
statement made for one purpose never passes for another. Private keys lie on the controllers only; every other host holds
the public ring and can verify, not sign.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import Enum

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KEY_ID_BYTES = 8
PUBLIC_BYTES = 32
SIGNATURE_BYTES = 64
HEAD_BYTES = KEY_ID_BYTES + SIGNATURE_BYTES
_DOMAIN = b"eslurm/v2/"


class Purpose(Enum):
    """What a statement is for. The value goes under the signature."""

    COMMAND = b"command"
    """A controller's command to nodes, and with it the launch credential (`core.wire.Command`)."""
    MEMBER = b"member"
    """A host's membership: its key, its roles, its names (`security.membership.Membership`)."""
    TOKEN = b"token"
    """A remote caller's token."""
    RING = b"ring"
    """The site's public keys (`security.site_keys.RingStatement`)."""
    REVOKED = b"revoked"
    """The serials of memberships that are no longer valid."""
    JOIN = b"join"
    """An answer to a host that asks to become a member (`security.joining`)."""
    BOOK = b"book"
    """The digest of the address book at a revision (`security.book_seal`)."""


class BadSeal(Exception):
    """An unknown key, a wrong signature, or no sealed statement at all."""


def key_id(public: bytes) -> bytes:
    """The name of a public key: the first eight bytes of its SHA-256."""
    return hashlib.sha256(public).digest()[:KEY_ID_BYTES]


class SealingKey:
    """A private key of the site. `seed` are its 32 secret bytes."""

    def __init__(self, seed: bytes) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._private.public_key().public_bytes_raw()
        self.id = key_id(self.public)

    @classmethod
    def generate(cls) -> SealingKey:
        """A new key."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def seed(self) -> bytes:
        """The secret, for the key's file."""
        return self._private.private_bytes_raw()

    def seal(self, purpose: Purpose, body: bytes) -> bytes:
        """The sealed statement around `body`."""
        return self.id + self._private.sign(_signed(purpose, body)) + body


class KeyRing:
    """Public keys by id; each of them verifies, so that keys are replaced without a gap."""

    def __init__(self, publics: Iterable[bytes]) -> None:
        """Raises ValueError for a key that is none."""
        self._keys = {key_id(public): Ed25519PublicKey.from_public_bytes(public) for public in publics}

    def __contains__(self, identifier: bytes) -> bool:
        return identifier in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def publics(self) -> tuple[bytes, ...]:
        """The keys themselves, sorted."""
        return tuple(sorted(key.public_bytes_raw() for key in self._keys.values()))

    def open(self, purpose: Purpose, sealed: bytes) -> bytes:
        """The body of a sealed statement. Raises `BadSeal`."""
        if len(sealed) < HEAD_BYTES:
            raise BadSeal("not a sealed statement")
        key = self._keys.get(sealed[:KEY_ID_BYTES])
        if key is None:
            raise BadSeal(f"unknown key {sealed[:KEY_ID_BYTES].hex()}")
        body = sealed[HEAD_BYTES:]
        try:
            key.verify(sealed[KEY_ID_BYTES:HEAD_BYTES], _signed(purpose, body))
        except InvalidSignature:
            raise BadSeal("the signature does not match") from None
        return body


def unverified_body(sealed: bytes) -> bytes:
    """The body of a statement whose signature is not checked: for showing it to its own holder only."""
    return sealed[HEAD_BYTES:]


def _signed(purpose: Purpose, body: bytes) -> bytes:
    return b"".join((_DOMAIN, purpose.value, b"\0", body))
