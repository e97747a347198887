"""Tokens: how a caller who does not come through a socket of a cluster host says who they are.

A token is a principal with an expiry, signed with the cluster's key. Invariant: a token is accepted only over TLS or
from this very host, only by its own cluster and only until it expires.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple, Protocol
from urllib.parse import unquote

import msgspec

from eslurm.core.job.model import Principal
from eslurm.ports.door import DoorError, Status
from eslurm.rpc.signing import BadSignature, Keyring

_PREFIX = "es1."
_MAC_BYTES = 32
TOKENS_KEPT_MAX = 1024
PEERS_KEPT_MAX = 4096
_KEY_ID_BYTES = 4


class _Claims(msgspec.Struct, frozen=True, array_like=True):
    cluster: str
    principal: Principal
    expires_us: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Claims)


def mint_token(keyring: Keyring, cluster: str, principal: Principal, expires_us: int) -> str:
    """A token that lets its bearer act as `principal` until `expires_us` (UTC)."""
    body = _encoder.encode(_Claims(cluster, principal, expires_us))
    mac = keyring.mac(b"token", keyring.signing_id, body)
    raw = keyring.signing_id.to_bytes(_KEY_ID_BYTES, "big") + mac + body
    return _PREFIX + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def read_token(keyring: Keyring, cluster: str, token: str, now_us: int) -> Principal:
    """Who the bearer is. Raises `DoorError` UNAUTHENTICATED."""
    return _admitted(_read_claims(keyring, token), cluster, now_us)


class Bearer(NamedTuple):
    """What a token says of itself."""

    user: str
    cluster: str
    expires_us: int


def find_bearer(token: str) -> Bearer | None:
    """What a token says to whoever holds it; nobody vouches for that. None when it is no token."""
    try:
        claims = _decoder.decode(_unpacked(token)[_KEY_ID_BYTES + _MAC_BYTES :])
    except (binascii.Error, ValueError, msgspec.DecodeError, RecursionError):
        return None
    return Bearer(claims.principal.name, claims.cluster, claims.expires_us)


def _unpacked(token: str) -> bytes:
    text = token.removeprefix(_PREFIX)
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _read_claims(keyring: Keyring, token: str) -> _Claims:
    """What a token says, its signature checked."""
    if not token.startswith(_PREFIX):
        raise DoorError(Status.UNAUTHENTICATED, "this is not a token of eslurm; ask an operator for one")
    try:
        raw = _unpacked(token)
        key_id = int.from_bytes(raw[:_KEY_ID_BYTES], "big")
        mac, body = raw[_KEY_ID_BYTES:][:_MAC_BYTES], raw[_KEY_ID_BYTES + _MAC_BYTES :]
        keyring.check(b"token", key_id, body, mac)
        return _decoder.decode(body)
    except (binascii.Error, ValueError, BadSignature, msgspec.DecodeError, RecursionError):
        raise DoorError(
            Status.UNAUTHENTICATED, "the token is not valid here; ask an operator for one"
        ) from None


def _admitted(claims: _Claims, cluster: str, now_us: int) -> Principal:
    """The principal, if the token is for this cluster and this moment."""
    if claims.cluster != cluster:
        raise DoorError(
            Status.UNAUTHENTICATED, f"the token is for cluster {claims.cluster}; this is {cluster}"
        )
    if now_us >= claims.expires_us:
        raise DoorError(Status.UNAUTHENTICATED, "the token has expired; ask an operator for a new one")
    return msgspec.structs.replace(claims.principal, via="token")


class Authenticator(Protocol):
    """Who makes a gRPC call."""

    def principal(self, metadata: Mapping[str, str], peer: str, *, encrypted: bool) -> Principal:
        """The caller. `peer` is gRPC's address of it. Raises `DoorError` UNAUTHENTICATED."""
        ...


class TokenAuthenticator:
    """Takes `authorization: Bearer <token>`."""

    def __init__(self, keyring: Keyring, cluster: str, now_us: Callable[[], int]) -> None:
        self._keyring = keyring
        self._cluster = cluster
        self._now_us = now_us
        # Programs send the same token with each call; whether it has expired is looked at each time.
        self._claims = lru_cache(TOKENS_KEPT_MAX)(self._verified)

    def principal(self, metadata: Mapping[str, str], peer: str, *, encrypted: bool) -> Principal:
        """See `Authenticator.principal`."""
        if not encrypted and not from_this_host(peer):
            raise DoorError(
                Status.UNAUTHENTICATED,
                "tokens from other hosts are taken over TLS only; give the CA certificate",
            )
        scheme, _, token = metadata.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise DoorError(Status.UNAUTHENTICATED, "the call carries no token (authorization: Bearer ...)")
        return _admitted(self._claims(token.strip()), self._cluster, self._now_us())

    def _verified(self, token: str) -> _Claims:
        return _read_claims(self._keyring, token)


@lru_cache(PEERS_KEPT_MAX)
def from_this_host(peer: str) -> bool:
    """Whether gRPC's peer address (`ipv4:1.2.3.4:5`, `ipv6:%5B::1%5D:5`, `unix:...`) is this host's own."""
    scheme, _, rest = unquote(peer).partition(":")
    if scheme == "unix":
        return True
    try:
        return ipaddress.ip_address(rest.rpartition(":")[0].strip("[]")).is_loopback
    except ValueError:
        return False
