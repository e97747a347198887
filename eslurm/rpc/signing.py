"""Shared keys of the cluster: signed commands and the proofs that open links.

Invariant: each purpose (commands, links, tokens) signs with a key of its own derived from the shared one,
so nothing signed for one purpose passes for another. All comparisons take constant time.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping

from google.protobuf.message import DecodeError

from eslurm.v1 import link_pb2

_DIGEST = "sha256"


class BadSignature(Exception):
    """Unknown key, wrong signature, or no signed message at all."""


class Keyring:
    """Keys by id. The highest id signs unless `signing_id` says otherwise; all of them verify, so keys can be rolled.

    Raises ValueError for an empty ring, an unknown `signing_id`, or a key below 16 bytes.
    """

    def __init__(self, keys: Mapping[int, bytes], signing_id: int | None = None) -> None:
        if not keys:
            raise ValueError("a keyring needs at least one key")
        for key_id, key in keys.items():
            if len(key) < 16:
                raise ValueError(f"key {key_id} has {len(key)} bytes; at least 16 are needed")
        self.signing_id = max(keys) if signing_id is None else signing_id
        if self.signing_id not in keys:
            raise ValueError(f"signing key {self.signing_id} is not in the keyring")
        self._derived = {
            (key_id, purpose): hmac.digest(key, b"eslurm/v1/" + purpose, _DIGEST)
            for key_id, key in keys.items()
            for purpose in (b"command", b"hello", b"token")
        }

    def mac(self, purpose: bytes, key_id: int, message: bytes) -> bytes:
        """HMAC-SHA256 of `message` under key `key_id` derived for `purpose`. Raises `BadSignature` for an unknown key."""
        key = self._derived.get((key_id, purpose))
        if key is None:
            raise BadSignature(f"unknown key {key_id}")
        return hmac.digest(key, message, _DIGEST)

    def check(self, purpose: bytes, key_id: int, message: bytes, mac: bytes) -> None:
        """Raise `BadSignature` unless `mac` is what `mac()` gives."""
        if not hmac.compare_digest(self.mac(purpose, key_id, message), mac):
            raise BadSignature("the signature does not match")

    def sign(self, body: bytes) -> bytes:
        """The encoded `SignedCommand` around an encoded command."""
        return link_pb2.SignedCommand(
            key_id=self.signing_id, body=body, signature=self.mac(b"command", self.signing_id, body)
        ).SerializeToString()

    def verify(self, signed: bytes) -> bytes:
        """The command inside an encoded `SignedCommand`. Raises `BadSignature`."""
        try:
            command = link_pb2.SignedCommand.FromString(signed)
        except DecodeError:
            raise BadSignature("not a signed command") from None
        self.check(b"command", command.key_id, command.body, command.signature)
        return command.body


def _joined(parts: Iterable[bytes]) -> bytes:
    # Lengths go in, so that no two different lists of fields have the same image.
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def hello_message(hello: link_pb2.Hello, stage: str) -> bytes:
    """What the proof of a Hello covers. `stage` (dial, answer, confirm, bulk) keeps one from passing for another."""
    texts = (stage, hello.cluster, hello.role, hello.process, hello.endpoint, hello.owner, hello.build)
    numbers = (hello.protocol_min, hello.protocol_max, hello.epoch)
    features = hashlib.sha256(_joined(feature.encode() for feature in hello.features)).digest()
    return _joined(
        [
            *(text.encode() for text in texts),
            *(number.to_bytes(8, "big") for number in numbers),
            features,
            hello.nonce,
            hello.challenge,
        ]
    )


def prove_hello(keyring: Keyring, hello: link_pb2.Hello, stage: str) -> None:
    """Fill in the proof of a Hello that is complete otherwise."""
    hello.proof_key = keyring.signing_id
    hello.proof = keyring.mac(b"hello", hello.proof_key, hello_message(hello, stage))


def check_hello(keyring: Keyring, hello: link_pb2.Hello, stage: str) -> None:
    """Raise `BadSignature` unless the Hello was made by a holder of a key, for this stage."""
    keyring.check(b"hello", hello.proof_key, hello_message(hello, stage), hello.proof)
