"""JSON Web Tokens of a site's issuer: what is taken, and every confusion that is not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from msgspec.structs import replace

from eslurm.api import jwt_tokens
from eslurm.api.jwt_tokens import JwtAuthenticator, JwtKeysError, JwtSettings, read_keys
from eslurm.api.tokens import TOKEN_CHARS_MAX, Identified, TokenAuthenticator
from eslurm.core.model.job import Principal
from eslurm.ports.api import ApiError, Status
from tests.kits.api_tokens import SITE, Office
from tests.support.loops import run

ADA = Principal("ada", 4711, 4711, (4711, 5000))
KNOWN = {"ada": ADA, "root": Principal("root", 0, 0), "toor": Principal("toor", 0, 0)}
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()
OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
NOW_S = int(time.time())


def jwk(reader: Any, key: Any, name: str, **more: str) -> dict[str, Any]:
    return {**json.loads(reader.to_jwk(key.public_key())), "kid": name, "use": "sig", **more}


KEYS = [jwk(RSAAlgorithm, RSA_KEY, "r1"), jwk(ECAlgorithm, EC_KEY, "e1"), jwk(OKPAlgorithm, ED_KEY, "d1")]


def pem(key: Any) -> bytes:
    made: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return made


def write(path: Path, content: bytes) -> Path:
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.chmod(0o644)
    os.replace(fresh, path)
    return path


class AtNow(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> AtNow:
        return cls.fromtimestamp(NOW_S, tz)


@pytest.fixture(autouse=True)
def clock_of_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters hold tokens made at collection: without this they expire in a run of more than ten minutes."""
    monkeypatch.setattr("jwt.api_jwt.datetime", AtNow)


@pytest.fixture
def settings(tmp_path: Path) -> JwtSettings:
    file = write(tmp_path / "jwks.json", json.dumps({"keys": KEYS}).encode())
    return JwtSettings(
        "https://login.test",
        "eslurm",
        file,
        ("RS256", "ES256", "EdDSA"),
        "preferred_username",
        "",
        {},
        "submit",
        5.0,
        3600,
    )


def claims(**more: Any) -> dict[str, Any]:
    said = {
        "iss": "https://login.test",
        "aud": "eslurm",
        "sub": "17",
        "preferred_username": "ada",
        "iat": NOW_S,
        "exp": NOW_S + 600,
        **more,
    }
    return {name: value for name, value in said.items() if value is not None}


def token(algorithm: str = "RS256", key: Any = RSA_KEY, kid: str | None = "r1", **more: Any) -> str:
    return jwt.encode(claims(**more), key, algorithm, headers={"kid": kid} if kid else None)


async def find_user(name: str) -> Principal | None:
    return KNOWN.get(name)


def identify(settings: JwtSettings, text: str, now_us: int | None = None) -> Identified:
    found: list[Identified] = []

    async def scenario() -> None:
        one = JwtAuthenticator(settings, find_user)
        site = TokenAuthenticator(
            lambda: SITE.ring, Office().ledger, lambda: now_us or NOW_S * 1_000_000, one
        )
        bearer = {"authorization": f"Bearer {text}"}
        found.append(await site.identify(bearer, "unix:", encrypted=False))

    run(scenario())
    return found[0]


def refused(settings: JwtSettings, text: str, now_us: int | None = None) -> str:
    with pytest.raises(ApiError) as error:
        identify(settings, text, now_us)
    assert error.value.status is Status.UNAUTHENTICATED
    assert text not in error.value.text or len(text) < 20
    return error.value.text


@pytest.mark.parametrize(
    ("algorithm", "key", "kid"), [("RS256", RSA_KEY, "r1"), ("ES256", EC_KEY, "e1"), ("EdDSA", ED_KEY, "d1")]
)
@pytest.mark.parametrize("named", [True, False])
def test_each_algorithm_with_its_key(
    settings: JwtSettings, algorithm: str, key: Any, kid: str, *, named: bool
) -> None:
    found = identify(settings, token(algorithm, key, kid if named else None, jti="abc"))
    assert found == (replace(ADA, via="token", scope="submit"), "jwt:abc")


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def by_hand(header: dict[str, Any], sign: Callable[[bytes], bytes], **more: Any) -> str:
    signed = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(claims(**more)).encode())}"
    return f"{signed}.{b64(sign(signed.encode()))}"


def hs256(secret: bytes) -> Callable[[bytes], bytes]:
    return lambda message: hmac.digest(secret, message, hashlib.sha256)


def test_the_algorithm_is_never_the_tokens_choice(settings: JwtSettings) -> None:
    for header in ({"alg": "none"}, {"alg": "None", "kid": "r1"}, {"alg": ""}, {"kid": "r1"}):
        assert "algorithm" in refused(settings, by_hand(header, lambda _message: b"")), header
    # The public key is known to everybody: it is no secret to sign with.
    for secret in (pem(RSA_KEY), json.dumps(KEYS[0]).encode(), b""):
        for alg in ("HS256", "HS512"):
            text = refused(settings, by_hand({"alg": alg, "kid": "r1"}, hs256(secret)))
            assert f"algorithm '{alg}' is not one of RS256, ES256, EdDSA" in text
    only = replace(settings, algorithms=("ES256",))
    assert "algorithm 'RS256' is not one of ES256" in refused(only, token())
    # A key serves its own algorithm only.
    assert "no key 'e1' for RS256" in refused(settings, by_hand({"alg": "RS256", "kid": "e1"}, hs256(b"x")))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (token(key=OTHER_RSA), "Signature verification failed"),
        (token(kid="gone"), "no key 'gone' for RS256 is known here"),
        (token(aud="another"), "doesn't match"),
        (token(aud=None), 'missing the "aud"'),
        (token(iss="https://evil.test"), "Invalid issuer"),
        (token(iss=None), 'missing the "iss"'),
        (token(exp=NOW_S - 60, iat=NOW_S - 120), "expired"),
        (token(exp=None), 'missing the "exp"'),
        (token(iat=None), 'missing the "iat"'),
        (token(nbf=NOW_S + 600), "not yet valid"),
        (token(iat=NOW_S + 600, exp=NOW_S + 700), "not yet valid"),
        (token(exp=NOW_S + 3601), "its life of 3601 s is not within 0..3600 s"),
        (token(preferred_username=None), "names no user"),
        (token(preferred_username=["ada"]), "names no user"),
        (token(preferred_username=""), "names no user"),
        (token(preferred_username="a\0b"), "names no user"),
        (token(preferred_username="a" * 257), "names no user"),
        (token(preferred_username="eve\x1b[2J"), r"user 'eve\x1b[2J' is not known"),
        (token(preferred_username="root"), "it is root's"),
        (token(preferred_username="toor"), "it is root's"),
        (jwt.encode(claims(), RSA_KEY, "RS256", headers={"kid": "r1", "crit": ["x"], "x": 1}), "critical"),
        ("a.b.c", "Invalid header"),
        ("..", "not"),
        ("eyJhbGciOiJSUzI1NiJ9.e30.", "site's token is not taken"),
        ("A" * TOKEN_CHARS_MAX + ".b.c", "at most 8192 are possible"),
        ("[" * 4000 + ".b.c", "not taken"),
        (b64(b"[" * 3000) + ".e30.e30", "not taken"),
    ],
)
def test_what_is_not_taken(settings: JwtSettings, text: str, why: str) -> None:
    assert why in refused(settings, text)


def test_times_that_are_none(settings: JwtSettings) -> None:
    wide = replace(settings, leeway_s=300.0)
    assert "its life of -1 s is not within" in refused(wide, token(exp=NOW_S + 60, iat=NOW_S + 61))
    for times in ({"exp": 1e400}, {"exp": float("nan")}, {"iat": "x"}, {"exp": "9" * 30}, {"iat": -1e308}):
        refused(settings, token(**times))


def test_it_ends_while_it_is_remembered(settings: JwtSettings) -> None:
    async def scenario() -> None:
        one = JwtAuthenticator(settings, find_user)
        text = token()
        await one.identify(text, NOW_S * 1_000_000)
        with pytest.raises(ApiError, match="has expired"):
            await one.identify(text, (NOW_S + 606) * 1_000_000)

    run(scenario())


@pytest.mark.parametrize(
    ("said", "scope"),
    [
        ("openid hpc:read", "read"),
        (["hpc:read", "hpc:own", 7], "own-jobs"),
        ("hpc:admin hpc:read", "admin"),
        ("openid", ""),
        ("", ""),
        (None, ""),
        ({"hpc:admin": 1}, ""),
        (7, ""),
    ],
)
def test_scopes_come_from_a_claim(settings: JwtSettings, said: Any, scope: str) -> None:
    words = {"hpc:read": "read", "hpc:own": "own-jobs", "hpc:admin": "admin"}
    mapping = replace(settings, scope_claim="scope", scopes=words)
    text = token(scope=said)
    if scope:
        assert identify(mapping, text).principal.scope == scope
    else:
        assert "has none of the scopes in tokens.jwt.scopes" in refused(mapping, text)


def test_without_a_good_name_its_digest_stands_in_the_records(settings: JwtSettings) -> None:
    for name in (None, "", "x" * 65, "a\nb"):
        found = identify(settings, token(jti=name)).token
        assert found.startswith("jwt:") and len(found) == 36 and found.isalnum() is False


def test_keys_are_read_anew(settings: JwtSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(jwt_tokens.time, "monotonic", lambda: clock[0])

    async def scenario() -> None:
        one = JwtAuthenticator(settings, find_user)
        now_us = NOW_S * 1_000_000
        await one.identify(token(), now_us)
        write(settings.key_file, pem(OTHER_RSA))
        # Not looked at yet; then what the former key has signed is taken no more, though it was verified before.
        await one.identify(token(), now_us)
        clock[0] += 2
        with pytest.raises(ApiError, match="no key 'r1'"):
            await one.identify(token(), now_us)
        await one.identify(token(key=OTHER_RSA, kid=None), now_us)
        write(settings.key_file, b"nonsense")
        clock[0] += 2
        await one.identify(token(key=OTHER_RSA, kid=None), now_us)

    run(scenario())


def test_two_keys_and_no_name(settings: JwtSettings) -> None:
    keys = [KEYS[0], jwk(RSAAlgorithm, OTHER_RSA, "r2")]
    write(settings.key_file, json.dumps({"keys": keys}).encode())
    assert "names no key, and there are several" in refused(settings, token(kid=None))


def private_pem(key: Any) -> bytes:
    made: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return made


SMALL = rsa.generate_private_key(public_exponent=65537, key_size=1024)
P384 = ec.generate_private_key(ec.SECP384R1())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "holds no public keys"),
        (b"{}", "holds no public keys"),
        (b"[" * 100_000, "holds no public keys"),
        (b'{"keys": []}', "holds 0 keys: give 1 to 64"),
        (b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "a key of type 'oct': give public keys only"),
        (b'{"keys": [7]}', "holds no public keys"),
        (b'{"keys": [{"kty": "RSA", "n": "!", "e": "AQAB"}]}', "holds no public keys"),
        (pem(SMALL), "an RSA key of 1024 bits: at least 2048"),
        (pem(P384), "is no public key of RSA, P-256 or Ed25519"),
        (private_pem(RSA_KEY), "holds no public keys"),
        (json.dumps({"keys": [json.loads(RSAAlgorithm.to_jwk(RSA_KEY))]}).encode(), "is no public key"),
        (json.dumps({"keys": KEYS * 30}).encode(), "holds 90 keys"),
    ],
)
def test_files_without_usable_keys(tmp_path: Path, content: bytes, why: str) -> None:
    with pytest.raises(JwtKeysError, match=r"tokens\.jwt\.key_file: ") as error:
        read_keys(write(tmp_path / "keys", content))
    assert why in str(error.value)


def test_a_file_that_others_can_change_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "keys", pem(RSA_KEY))
    path.chmod(0o666)
    with pytest.raises(JwtKeysError, match="can be changed by others"):
        read_keys(path)


def test_keys_for_encryption_are_left_out(tmp_path: Path) -> None:
    entries = [KEYS[1], jwk(RSAAlgorithm, OTHER_RSA, "x", use="enc")]
    found = read_keys(write(tmp_path / "keys", json.dumps({"keys": entries}).encode()))
    assert [(key.id, key.algorithm) for key in found] == [("e1", "ES256")]
