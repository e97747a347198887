"""JSON Web Tokens of a site's own issuer, where the configuration names one.

Invariants: the algorithm is the configuration's and the key's, never the token's choice; the user is looked up in the
controller's name service and only the token's name, scope and end are used; root is never one of them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from eslurm.api.tokens import TOKENS_KEPT_MAX, Identified
from eslurm.core.model.job import Principal
from eslurm.ports.api import ApiError, Status
from eslurm.security.files import UnsafeFile, read_trusted

if TYPE_CHECKING:
    from eslurm.config.tokens import JwtSection

log = logging.getLogger(__name__)

WIDTH: Final = ("read", "own-jobs", "submit", "admin")
"""Scopes that a claim may map to, the narrowest first: of several the widest counts."""
KEYS_MAX: Final = 64
RSA_BITS_MIN: Final = 2048
LOOK_S: Final = 1.0
"""The key file is looked at so often at most."""
NAME_MAX: Final = 256
_ID_HEX_DIGITS: Final = 32


class JwtSettings(msgspec.Struct, frozen=True):
    """The settings of `[tokens.jwt]`, its file resolved."""

    issuer: str
    audience: str
    key_file: Path
    algorithms: tuple[str, ...]
    user_claim: str
    scope_claim: str
    scopes: dict[str, str]
    scope: str
    leeway_s: float
    life_max_s: int


def jwt_settings(section: JwtSection, state_dir: Path) -> JwtSettings:
    """The settings of a section of the configuration."""
    values = msgspec.structs.asdict(section)
    values["key_file"] = state_dir / section.key_file
    values["algorithms"] = tuple(section.algorithms)
    return JwtSettings(**values)


class JwtKeysError(Exception):
    """The issuer's keys are unusable; the text names the file and the reason."""


class JwtClaims(NamedTuple):
    """The used claims of a token. `id` names it in records."""

    user: str
    scope: str
    id: str
    expires_us: int


class _Key(NamedTuple):
    id: str
    algorithm: str
    key: Any


class JwtAuthenticator:
    """`find_user` asks the name service; it gives None for an unknown name."""

    def __init__(
        self, settings: JwtSettings, find_user: Callable[[str], Awaitable[Principal | None]]
    ) -> None:
        self._settings = settings
        self._find_user = find_user
        self._looked_s = -LOOK_S
        # Without keys no token is taken.
        self._take(())
        self._seen: tuple[int, int, int] | None = None
        self._look()

    async def identify(self, token: str, now_us: int) -> Identified:
        """The bearer. Raises `ApiError` UNAUTHENTICATED."""
        self._look()
        claims = self._verified(token)
        if now_us >= claims.expires_us:
            raise _refused("it has expired: ask its issuer for a new one")
        who = await self._find_user(claims.user)
        if who is None:
            raise _refused(f"user {claims.user!r} is not known on the controller's host")
        if who.uid == 0:
            raise _refused("it is root's, who comes with none")
        return Identified(msgspec.structs.replace(who, via="token", scope=claims.scope), claims.id)

    def _take(self, keys: tuple[_Key, ...]) -> None:
        """Use these keys; tokens of other keys are verified anew."""
        settings = self._settings
        self._verified = lru_cache(TOKENS_KEPT_MAX)(lambda token: verify(settings, keys, token))

    def _look(self) -> None:
        """Read the key file again when it has changed; an unusable one leaves the former keys in force."""
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        seen = _stamp(self._settings.key_file)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._take(read_keys(self._settings.key_file))
        except JwtKeysError as error:
            log.error("no keys of the issuer but the former ones are taken: %s", error)
        else:
            log.info("the issuer's keys are those in %s", self._settings.key_file)


def verify(settings: JwtSettings, keys: tuple[_Key, ...], token: str) -> JwtClaims:
    """A token's claims, all verified but the user. Raises `ApiError` UNAUTHENTICATED."""
    try:
        header = jwt.get_unverified_header(token)
        key = _key_for(header, settings.algorithms, keys)
        said: dict[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=[key.algorithm],
            audience=settings.audience,
            issuer=settings.issuer,
            leeway=settings.leeway_s,
            options={"require": ["exp", "iat", "iss", "aud"]},
        )
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError) as error:
        raise _refused(f"{error or type(error).__name__}") from None
    return _claims(settings, said, token)


def _key_for(header: Mapping[str, Any], algorithms: tuple[str, ...], keys: tuple[_Key, ...]) -> _Key:
    algorithm, name = header.get("alg"), header.get("kid")
    if algorithm not in algorithms:
        raise ValueError(f"algorithm {str(algorithm)[:16]!r} is not one of {', '.join(algorithms)}")
    if "crit" in header:
        raise ValueError("it has critical header fields, which are not known here")
    fitting = [key for key in keys if key.algorithm == algorithm and (name is None or key.id == name)]
    if not fitting:
        raise ValueError(f"no key {str(name)[:64]!r} for {algorithm} is known here")
    if len(fitting) > 1:
        raise ValueError("it names no key, and there are several")
    return fitting[0]


def _claims(settings: JwtSettings, said: Mapping[str, Any], token: str) -> JwtClaims:
    begins, ends = said["iat"], said["exp"]
    if not isinstance(begins, int | float) or not isinstance(ends, int | float):
        raise _refused("its times are no numbers")
    if not 0 < ends - begins <= settings.life_max_s:
        raise _refused(
            f"its life of {ends - begins:.15g} s is not within 0..{settings.life_max_s} s (tokens.jwt.life_max_s)"
        )
    user = said.get(settings.user_claim)
    if not isinstance(user, str) or not 0 < len(user) <= NAME_MAX or "\0" in user:
        raise _refused(f"its claim {settings.user_claim!r} names no user")
    name = said.get("jti")
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= _ID_HEX_DIGITS * 2:
        name = hashlib.sha256(token.encode()).hexdigest()[:_ID_HEX_DIGITS]
    return JwtClaims(user, _scope(settings, said), f"jwt:{name}", int((ends + settings.leeway_s) * 1e6))


def _scope(settings: JwtSettings, said: Mapping[str, Any]) -> str:
    """The widest scope that the claim's words map to."""
    if not settings.scope_claim:
        return settings.scope
    claim = said.get(settings.scope_claim)
    words = claim.split() if isinstance(claim, str) else claim if isinstance(claim, list) else []
    found = [settings.scopes[word] for word in words if isinstance(word, str) and word in settings.scopes]
    if not found:
        raise _refused(f"its claim {settings.scope_claim!r} has none of the scopes in tokens.jwt.scopes")
    return max(found, key=WIDTH.index)


# ---- keys ----


def read_keys(path: Path) -> tuple[_Key, ...]:
    """The public keys in a file: a JSON Web Key Set, or one in PEM. Raises `JwtKeysError`."""
    try:
        raw = read_trusted(path)
    except UnsafeFile as error:
        raise JwtKeysError(f"tokens.jwt.key_file: {error}") from None
    try:
        if raw.lstrip().startswith(b"-----BEGIN"):
            keys = [_keyed("", load_pem_public_key(raw))]
        else:
            keys = [_keyed(*pair) for pair in _of_set(json.loads(raw))]
    except (
        ValueError,
        TypeError,
        AttributeError,
        KeyError,
        RecursionError,
        jwt.PyJWTError,
        UnsupportedAlgorithm,
    ) as error:
        raise JwtKeysError(f"tokens.jwt.key_file: {path} holds no public keys: {error}") from None
    if not 0 < len(keys) <= KEYS_MAX:
        raise JwtKeysError(f"tokens.jwt.key_file: {path} holds {len(keys)} keys: give 1 to {KEYS_MAX}")
    return tuple(keys)


_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "RSA": RSAAlgorithm.from_jwk,
    "EC": ECAlgorithm.from_jwk,
    "OKP": OKPAlgorithm.from_jwk,
}


def _of_set(content: Any) -> list[tuple[str, Any]]:
    """The keys for signatures in a set, by their ids."""
    found: list[tuple[str, Any]] = []
    for entry in content["keys"]:
        if entry.get("use", "sig") != "sig":
            continue
        reader = _READERS.get(entry["kty"])
        if reader is None:
            raise ValueError(f"a key of type {str(entry['kty'])[:16]!r}: give public keys only")
        found.append((str(entry.get("kid", "")), reader(json.dumps(entry))))
    return found


def _keyed(name: str, key: Any) -> _Key:
    match key:
        case RSAPublicKey():
            if key.key_size < RSA_BITS_MIN:
                raise ValueError(f"an RSA key of {key.key_size} bits: at least {RSA_BITS_MIN} are needed")
            return _Key(name, "RS256", key)
        case EllipticCurvePublicKey() if isinstance(key.curve, SECP256R1):
            return _Key(name, "ES256", key)
        case Ed25519PublicKey():
            return _Key(name, "EdDSA", key)
    raise ValueError(f"key {name!r} is no public key of RSA, P-256 or Ed25519")


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _refused(why: str) -> ApiError:
    return ApiError(Status.UNAUTHENTICATED, f"the site's token is not taken: {why}")
