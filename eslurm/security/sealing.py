"""Sealed statements: a body with an Ed25519 signature of one of the site's keys.

A sealed statement is `key id (8 bytes) | signature (64 bytes) | body`. The signature covers the purpose too, so a
statement made for one purpose never passes for another. Private keys lie on the controllers only; every other host holds
the public ring and can verify, not sign.

Statements that are made together may share one signature, that of a hash tree's root (`security.hash_tree`): `key id |
signature | number of statements (2 bytes) | place (2 bytes) | path | body`. Neither form passes for the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from enum import Enum

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from eslurm.security.hash_tree import LEAVES_MAX, climb, grow, leaf, path_bytes

KEY_ID_BYTES = 8
PUBLIC_BYTES = 32
SIGNATURE_BYTES = 64
HEAD_BYTES = KEY_ID_BYTES + SIGNATURE_BYTES
SHARED_HEAD_BYTES = HEAD_BYTES + 4
SHARED_SEAL_BYTES_MAX = SHARED_HEAD_BYTES + path_bytes(0, LEAVES_MAX)
"""Greatest size of a shared seal beside its body."""
ROOTS_KEPT_MAX = 256
_DOMAIN = b"eslurm/v2/"
_SHARED_DOMAIN = b"eslurm/v2/shared/"


class Purpose(Enum):
    """Purpose of a statement. The signature covers the value."""

    COMMAND = b"command"
    """A controller's command to nodes, and with it the launch credential (`core.model.protocol.Command`); always shared."""
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
    """The digest of the address book at a revision (`security.directory_seal`)."""


UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""Raised by msgspec for a body: it lets the error of a text that is no UTF-8 and that of too deep a nesting through."""


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
        """The secret bytes for the key's file."""
        return self._private.private_bytes_raw()

    def seal(self, purpose: Purpose, body: bytes) -> bytes:
        """The sealed statement around `body`."""
        return self.id + self._private.sign(_signed(purpose, body)) + body

    def seal_together(self, purpose: Purpose, bodies: Sequence[bytes]) -> list[bytes]:
        """The sealed statement around each of the bodies: one signature for up to `LEAVES_MAX` of them."""
        sealed: list[bytes] = []
        for at in range(0, len(bodies), LEAVES_MAX):
            some = bodies[at : at + LEAVES_MAX]
            context = _leaf_context(purpose, self.id)
            root, paths = grow([leaf(context, body) for body in some])
            count = len(some).to_bytes(2, "big")
            head = self.id + self._private.sign(_signed_root(purpose, count, root)) + count
            sealed += [
                b"".join((head, place.to_bytes(2, "big"), path, body))
                for place, (path, body) in enumerate(zip(paths, some, strict=True))
            ]
        return sealed


class KeyRing:
    """Public keys by id; each of them verifies, so that keys are replaced without a gap."""

    def __init__(self, publics: Iterable[bytes]) -> None:
        """Raises ValueError for an invalid key."""
        self._keys = {key_id(public): Ed25519PublicKey.from_public_bytes(public) for public in publics}
        # Signatures of roots that were verified: the key's id, the signature, and all that it covers. The oldest first.
        self._roots: dict[tuple[bytes, bytes], None] = {}

    def __contains__(self, identifier: bytes) -> bool:
        return identifier in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def publics(self) -> tuple[bytes, ...]:
        """The public keys, sorted."""
        return tuple(sorted(key.public_bytes_raw() for key in self._keys.values()))

    def open(self, purpose: Purpose, sealed: bytes) -> bytes:
        """The body of a sealed statement. Raises `BadSeal`."""
        if len(sealed) < HEAD_BYTES:
            raise BadSeal("not a sealed statement")
        body = sealed[HEAD_BYTES:]
        self._verify(sealed[:HEAD_BYTES], _signed(purpose, body))
        return body

    def open_shared(self, purpose: Purpose, sealed: bytes) -> bytes:
        """The body of one of the statements that `seal_together` made. Raises `BadSeal`.

        Their shared signature is verified once, as long as it is among the last `ROOTS_KEPT_MAX`.
        """
        if len(sealed) < SHARED_HEAD_BYTES:
            raise BadSeal("not a sealed statement")
        identifier, number = sealed[:KEY_ID_BYTES], sealed[HEAD_BYTES : HEAD_BYTES + 2]
        count = int.from_bytes(number, "big")
        place = int.from_bytes(sealed[HEAD_BYTES + 2 : SHARED_HEAD_BYTES], "big")
        try:
            begin = SHARED_HEAD_BYTES + path_bytes(place, count)
            body = sealed[begin:]
            digest = leaf(_leaf_context(purpose, identifier), body)
            root = climb(digest, place, count, sealed[SHARED_HEAD_BYTES:begin])
        except ValueError as error:
            raise BadSeal(f"not one of the statements under a signature: {error}") from None
        known = sealed[:HEAD_BYTES], _signed_root(purpose, number, root)
        if known in self._roots:
            return body
        self._verify(*known)
        self._roots[known] = None
        if len(self._roots) > ROOTS_KEPT_MAX:
            del self._roots[next(iter(self._roots))]
        return body

    def _verify(self, head: bytes, signed: bytes) -> None:
        """Raise `BadSeal` unless the key in the head has signed this."""
        key = self._keys.get(head[:KEY_ID_BYTES])
        if key is None:
            raise BadSeal(f"unknown key {head[:KEY_ID_BYTES].hex()}")
        try:
            key.verify(head[KEY_ID_BYTES:], signed)
        except InvalidSignature:
            raise BadSeal("the signature does not match") from None


def unverified_body(sealed: bytes) -> bytes:
    """The body of a statement without a check of its signature: only for display to its own holder."""
    return sealed[HEAD_BYTES:]


def unverified_shared_body(sealed: bytes) -> bytes:
    """The same for one of the statements that `seal_together` made. Raises ValueError for invalid bytes."""
    count = int.from_bytes(sealed[HEAD_BYTES : HEAD_BYTES + 2], "big")
    place = int.from_bytes(sealed[HEAD_BYTES + 2 : SHARED_HEAD_BYTES], "big")
    return sealed[SHARED_HEAD_BYTES + path_bytes(place, count) :]


def _signed(purpose: Purpose, body: bytes) -> bytes:
    return b"".join((_DOMAIN, purpose.value, b"\0", body))


def _leaf_context(purpose: Purpose, identifier: bytes) -> bytes:
    return b"".join((purpose.value, b"\0", identifier))


def _signed_root(purpose: Purpose, count: bytes, root: bytes) -> bytes:
    return b"".join((_SHARED_DOMAIN, purpose.value, b"\0", count, root))
