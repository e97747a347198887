"""The secrets of one link: an X25519 exchange over a transcript, and an AES-256-GCM key for each lane and direction.

Invariants: a key encrypts with each counter once, in order; a frame that was changed, dropped, repeated, sent back or moved
to another lane does not decrypt; the keys depend on every byte of the handshake.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

EPHEMERAL_BYTES = 32
TAG_BYTES = 16
_KEY_BYTES = 32
_NONCE_BYTES = 12
_DOMAIN = b"eslurm/v2/link"


class BadExchange(Exception):
    """The peer's part of the exchange is no key."""


class BadFrame(Exception):
    """A frame does not decrypt: it was changed, or is not the next one of its lane."""


class Ephemeral:
    """A key pair for one handshake."""

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    def exchange(self, peer: bytes) -> bytes:
        """The secret that both ends share. Raises `BadExchange`."""
        try:
            return self._private.exchange(X25519PublicKey.from_public_bytes(peer))
        except ValueError:
            raise BadExchange("its part of the key exchange is no key") from None


class Transcript:
    """The handshake's content so far, as one hash; each part with its length."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256(_DOMAIN)

    def add(self, part: bytes) -> None:
        """Add the next part."""
        self._hash.update(len(part).to_bytes(4, "big") + part)

    @property
    def digest(self) -> bytes:
        """The hash of all parts."""
        return self._hash.digest()

    def with_claim(self, stage: str, claim: bytes) -> bytes:
        """The bytes that an end signs: all parts so far, then its present claim."""
        later = self._hash.copy()
        for part in (stage.encode("ascii"), claim):
            later.update(len(part).to_bytes(4, "big") + part)
        return _DOMAIN + b"/" + later.digest()


class FrameSealer:
    """Encrypts the frames of one lane in one direction."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        self._count = 0

    def seal(self, frame: bytes) -> bytes:
        """The frame as it travels, `TAG_BYTES` longer."""
        nonce = self._count.to_bytes(_NONCE_BYTES, "big")
        self._count += 1
        return self._cipher.encrypt(nonce, frame, None)


class FrameOpener:
    """Decrypts the frames of one lane in one direction, in the order they were sealed."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        self._count = 0

    def open(self, sealed: bytes) -> bytes:
        """The frame. Raises `BadFrame`; nothing is opened after that."""
        nonce = self._count.to_bytes(_NONCE_BYTES, "big")
        self._count += 1
        try:
            return self._cipher.decrypt(nonce, sealed, None)
        except (InvalidTag, ValueError):
            raise BadFrame("a frame that does not decrypt") from None


class LaneKeys(NamedTuple):
    """The keys of one lane, from one end's view."""

    sealer: FrameSealer
    opener: FrameOpener


class LinkKeys:
    """All keys of one link. `dialled`: for the end that dialled."""

    def __init__(self, secret: bytes, transcript: bytes, *, dialled: bool) -> None:
        """`secret` is the exchanged secret, `transcript` the hash of the whole handshake."""
        drawn = HKDF(SHA256(), 5 * _KEY_BYTES, salt=transcript, info=_DOMAIN).derive(secret)
        keys = [drawn[at : at + _KEY_BYTES] for at in range(0, len(drawn), _KEY_BYTES)]
        self.control = _lane(keys[0], keys[1], dialled=dialled)
        self.bulk = _lane(keys[2], keys[3], dialled=dialled)
        self._bulk_proof = hmac.digest(keys[4], b"bulk", "sha256")

    @property
    def bulk_proof(self) -> bytes:
        """The proof that opens the bulk lane: only the two ends of the link know it."""
        return self._bulk_proof

    def is_bulk_proof(self, proof: bytes) -> bool:
        """Check whether this opens the bulk lane; takes the same time for every answer."""
        return hmac.compare_digest(self._bulk_proof, proof)


def _lane(down: bytes, up: bytes, *, dialled: bool) -> LaneKeys:
    """The keys of a lane; `down` is for the dialler's frames."""
    ours, theirs = (down, up) if dialled else (up, down)
    return LaneKeys(FrameSealer(ours), FrameOpener(theirs))
