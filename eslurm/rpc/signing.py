"""The key of the cluster that signs tokens. All comparisons take constant time."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

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
            for purpose in (b"token",)
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
