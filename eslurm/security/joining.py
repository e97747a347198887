"""The join protocol of a new host: the proofs of its request, and the proofs of the answer.

The host proves that it holds its identity key, and with a join token that it knows the token's secret, which never
travels. An answer is valid when that secret proves it, or when the site's key with the known fingerprint sealed it. All
proofs cover the whole conversation, with a fresh nonce of each end. Invariant: nothing of an answer is used before.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence

import msgspec

from eslurm.core.model.hostlist import holds, unfold
from eslurm.security.membership import Identity, Members, Membership, NotAMember, Role, verify
from eslurm.security.sealing import KEY_ID_BYTES, BadSeal, KeyRing, Purpose
from eslurm.security.site_keys import Ring, SiteKeys

NONCE_BYTES = 32
FINGERPRINT_DIGITS = 32
_ID_BYTES = 16
_SECRET_BYTES = 32
_PREFIX = "esj1."
_DOMAIN = b"eslurm/v2/join"


class CannotTrust(Exception):
    """The answer is not from the site that the host wants to join; the text has the reason."""


class BadToken(Exception):
    """The text is no join token."""


class JoinSecret(msgspec.Struct, frozen=True):
    """A join token in its bearer's form."""

    id: bytes
    secret: bytes

    @classmethod
    def new(cls) -> JoinSecret:
        """A random one."""
        return cls(secrets.token_bytes(_ID_BYTES), secrets.token_bytes(_SECRET_BYTES))

    @classmethod
    def parse(cls, text: str) -> JoinSecret:
        """The token from its text. Raises `BadToken`."""
        prefix, _, packed = text.strip().partition(".")
        try:
            data = base64.b64decode(packed + "=" * (-len(packed) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError):
            data = b""
        if f"{prefix}." != _PREFIX or len(data) != _ID_BYTES + _SECRET_BYTES:
            raise BadToken(f"no join token: it begins with {_PREFIX} (esctl node token create makes one)")
        return cls(data[:_ID_BYTES], data[_ID_BYTES:])

    @property
    def text(self) -> str:
        """The text form; a secret."""
        return _PREFIX + base64.urlsafe_b64encode(self.id + self.secret).decode().rstrip("=")

    @property
    def hash(self) -> bytes:
        """The controllers' copy, and the key of both ends' proofs."""
        return hashlib.sha256(self.secret).digest()


def fingerprint(public: bytes) -> str:
    """A public key in the form for comparison. It begins with the key's id."""
    return hashlib.sha256(public).hexdigest()[:FINGERPRINT_DIGITS]


class Conversation:
    """The exchanged bytes of both ends: the host's request and the controller's challenge; proofs cover them."""

    def __init__(self, request: bytes, challenge: bytes) -> None:
        self._digest = _digest(b"asked", request, challenge)

    def sign(self, identity: Identity) -> bytes:
        """The host's signature with its identity key."""
        return identity.sign(_DOMAIN + b"/key/" + self._digest)

    def is_signed(self, public: bytes, signature: bytes) -> bool:
        """Check the host's signature."""
        return verify(public, _DOMAIN + b"/key/" + self._digest, signature)

    def prove(self, secret_hash: bytes) -> bytes:
        """The host's proof that it knows the token's secret."""
        return hmac.digest(secret_hash, _DOMAIN + b"/ask/" + self._digest, "sha256")

    def is_proved(self, secret_hash: bytes, proof: bytes) -> bool:
        """Check the token's proof, in constant time."""
        return hmac.compare_digest(self.prove(secret_hash), proof)

    def answered(self, proof: bytes, answer: bytes) -> bytes:
        """The bytes of an answer that the site's keys and the token's secret prove. `proof` is the host's last frame."""
        return _digest(b"answered", self._digest, proof, answer)


def prove_answer(secret_hash: bytes, answered: bytes) -> bytes:
    """The token's proof of an answer."""
    return hmac.digest(secret_hash, _DOMAIN + b"/answer/" + answered, "sha256")


def seal_answer(keys: SiteKeys, answered: bytes) -> list[bytes]:
    """The same by each of the site's keys: the host knows the fingerprint of one of them."""
    return keys.seal_by_each(Purpose.JOIN, answered)


class Trust(msgspec.Struct, frozen=True):
    """The accepted authors of an answer: a controller that knows the token, or the site key with this fingerprint."""

    token: JoinSecret | None = None
    site_key: str = ""

    def check(self, answered: bytes, ring: bytes, token_proof: bytes, seals: Sequence[bytes]) -> Ring:
        """The site's keys in the answer. Raises `CannotTrust`."""
        if self.token is None and not self.site_key:
            raise CannotTrust("neither a join token nor the fingerprint of the site's key is known")
        if self.token is not None and not hmac.compare_digest(
            prove_answer(self.token.hash, answered), token_proof
        ):
            raise CannotTrust("the answer was not made by a controller that knows the join token")
        try:
            found = Ring.from_sealed(ring)
            if self.site_key:
                self._check_seal(found.keys, answered, seals)
        except BadSeal as error:
            raise CannotTrust(f"the answer has no keys of a site: {error}") from None
        return found

    def _check_seal(self, keys: KeyRing, answered: bytes, seals: Sequence[bytes]) -> None:
        wanted = [public for public in keys.publics if fingerprint(public) == self.site_key]
        sealed = [seal for seal in seals if self.site_key.startswith(seal[:KEY_ID_BYTES].hex())]
        if not wanted or not sealed:
            raise CannotTrust(
                f"the answer is of a site with other keys than {self.site_key} (eslurm keys list shows them on a "
                "controller's host)"
            )
        if KeyRing(wanted).open(Purpose.JOIN, sealed[0]) != answered:
            raise CannotTrust("the site's key has sealed another answer")


def check_issued(
    ring: Ring, membership: bytes, identity: Identity, role: Role, names: str, now_us: int
) -> Membership:
    """The requested membership. Raises `CannotTrust`."""
    try:
        found = Members(ring).check(membership, now_us)
    except NotAMember as error:
        raise CannotTrust(str(error)) from None
    held = found.public == identity.public and found.role == role
    if not held or not all(holds(found.names, name) for name in unfold(names)):
        raise CannotTrust("the membership is not the one that was asked for")
    return found


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.sha256(_DOMAIN)
    for part in parts:
        digest.update(len(part).to_bytes(4, "big") + part)
    return digest.digest()
