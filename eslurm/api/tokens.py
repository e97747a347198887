"""Tokens: authentication of a caller that uses no socket of a cluster host.

A token is a statement of the site (`security.sealing`), made by the leading controller: a principal, a scope, an end.
Invariant: it is accepted only over TLS or from this very host, only by its own cluster, only until it expires, and only
while the cluster's state holds its record.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote

import msgspec

from eslurm.core.model.job import Principal
from eslurm.core.model.token import SCOPES, IssuedToken, TokenRules, life_max_s
from eslurm.ports.api import ApiError, Status
from eslurm.security.sealing import BadSeal, Purpose, unverified_body
from eslurm.security.site_keys import Ring

PREFIX: Final = "es2."
TOKEN_CHARS_MAX: Final = 8192
GROUPS_MAX: Final = 1000
"""Of a token's principal: with more it does not fit into a call's metadata."""
TOKENS_KEPT_MAX: Final = 1024
PEERS_KEPT_MAX: Final = 4096
CLOCK_TOLERANCE_US: Final = 60_000_000
"""Tolerated lead of the clock of the controller that made a token."""
_OLD_PREFIX: Final = "es1."


class Claims(msgspec.Struct, frozen=True, array_like=True):
    """Contents of a token. `cluster` is its audience; times are UTC microseconds."""

    id: bytes
    cluster: str
    principal: Principal
    scope: str
    issued_us: int
    expires_us: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Claims)


class Sealer(Protocol):
    """The site's signer: `SiteKeys`, or the daemon's signer that follows their file."""

    def seal(self, purpose: Purpose, body: bytes) -> bytes: ...


def seal_token(keys: Sealer, claims: Claims) -> str:
    """The token with these claims."""
    sealed = keys.seal(Purpose.TOKEN, _encoder.encode(claims))
    return PREFIX + base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def open_token(ring: Ring, token: str) -> Claims:
    """A token's claims with its signature checked, and nothing else. Raises `ApiError` UNAUTHENTICATED."""
    if token.startswith(_OLD_PREFIX):
        raise _refused("the token is of an older version of eslurm; have a new one made (esctl token create)")
    if not token.startswith(PREFIX):
        raise _refused("this is not a token of eslurm; have one made (esctl token create)")
    try:
        return _decoder.decode(ring.keys.open(Purpose.TOKEN, _unpacked(token)))
    except (binascii.Error, ValueError, BadSeal, msgspec.DecodeError, RecursionError):
        raise _refused("the token is not valid here; have a new one made (esctl token create)") from None


class Bearer(NamedTuple):
    """The unverified claims of a token for display."""

    user: str
    cluster: str
    expires_us: int
    scope: str


def find_bearer(token: str) -> Bearer | None:
    """A token's claims for its own holder, unverified. None when it is no token of eslurm."""
    try:
        claims = _decoder.decode(unverified_body(_unpacked(token)))
    except (binascii.Error, ValueError, msgspec.DecodeError, RecursionError):
        return None
    return Bearer(claims.principal.name, claims.cluster, claims.expires_us, claims.scope)


def _unpacked(token: str) -> bytes:
    text = token.removeprefix(PREFIX)
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Ledger(NamedTuple):
    """The token records of the cluster's committed state."""

    find: Callable[[bytes], IssuedToken | None]
    rules: Callable[[], TokenRules]


def check_claims(claims: Claims, cluster: str, ledger: Ledger, now_us: int) -> None:
    """Raise `ApiError` UNAUTHENTICATED unless the token is valid for this cluster and this moment."""
    if claims.cluster != cluster:
        raise _refused(f"the token is for cluster {claims.cluster}; this is {cluster}")
    if now_us >= claims.expires_us:
        raise _refused("the token has expired; have a new one made (esctl token create)")
    if claims.issued_us > now_us + CLOCK_TOLERANCE_US:
        raise _refused("the token is of a later time than now: are the controllers' clocks right?")
    if claims.principal.uid == 0 or claims.scope not in SCOPES:
        raise _refused(f"tokens of {claims.principal.name} with scope {claims.scope} are not taken")
    issued = ledger.find(claims.id)
    if issued is None:
        raise _refused("the token was revoked; have a new one made (esctl token create)")
    said = (claims.principal.uid, claims.scope, claims.issued_us, claims.expires_us)
    if said != (issued.uid, issued.scope, issued.issued_us, issued.expires_us):
        raise _refused("the token is not valid here: it is not the one that was issued under its id")
    longest_s = life_max_s(ledger.rules(), issued)
    if claims.expires_us - claims.issued_us > longest_s * 1_000_000:
        raise _refused(
            f"the token's life is longer than the {longest_s} s that tokens may have by now; have a new one made"
        )


class Identified(NamedTuple):
    """The caller, and the id of its token for the records."""

    principal: Principal
    token: str


class IssuedElsewhere(Protocol):
    """Tokens of a site's own issuer (`jwt_tokens.JwtAuthenticator`)."""

    async def identify(self, token: str, now_us: int) -> Identified:
        """The bearer. Raises `ApiError` UNAUTHENTICATED."""
        ...


class Authenticator(Protocol):
    """Identifies the caller of a gRPC call."""

    async def identify(self, metadata: Mapping[str, str], peer: str, *, encrypted: bool) -> Identified:
        """The caller. `peer` is gRPC's address of it. Raises `ApiError` UNAUTHENTICATED."""
        ...


class TokenAuthenticator:
    """Takes `authorization: Bearer <token>`: the site's own, and with `jwt` those of its issuer."""

    def __init__(
        self,
        ring: Callable[[], Ring],
        ledger: Ledger,
        now_us: Callable[[], int],
        jwt: IssuedElsewhere | None = None,
    ) -> None:
        self._ring = ring
        self._ledger = ledger
        self._now_us = now_us
        self._jwt = jwt
        # Programs send the same token with each call; everything but its signature is looked at each time.
        self._opened = lru_cache(TOKENS_KEPT_MAX)(open_token)

    async def identify(self, metadata: Mapping[str, str], peer: str, *, encrypted: bool) -> Identified:
        """See `Authenticator.identify`."""
        if not encrypted and not from_this_host(peer):
            raise _refused("tokens from other hosts are taken over TLS only; give the CA certificate")
        scheme, _, token = metadata.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise _refused("the call carries no token (authorization: Bearer ...)")
        if len(token) > TOKEN_CHARS_MAX:
            raise _refused(f"the token has {len(token)} characters, at most {TOKEN_CHARS_MAX} are possible")
        if self._jwt is not None and token.count(".") == 2:
            return await self._jwt.identify(token, self._now_us())
        ring = self._ring()
        claims = self._opened(ring, token)
        check_claims(claims, ring.cluster, self._ledger, self._now_us())
        who = msgspec.structs.replace(claims.principal, via="token", scope=claims.scope)
        return Identified(who, claims.id.hex())


@lru_cache(PEERS_KEPT_MAX)
def from_this_host(peer: str) -> bool:
    """Check whether gRPC's peer address (`ipv4:1.2.3.4:5`, `ipv6:%5B::1%5D:5`, `unix:...`) is this host's own."""
    scheme, _, rest = unquote(peer).partition(":")
    if scheme == "unix":
        return True
    try:
        return ipaddress.ip_address(rest.rpartition(":")[0].strip("[]")).is_loopback
    except ValueError:
        return False


def _refused(text: str) -> ApiError:
    return ApiError(Status.UNAUTHENTICATED, text)
