"""Tokens: who they name, and all the ways they are not taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.ports.door import DoorError, Status
from eslurm.rpc.signing import Keyring
from eslurm.rpc.tokens import TokenAuthenticator, from_this_host, mint_token, read_token
from tests.unit.rpc.kit import ALICE, KEYRING

TOKEN = mint_token(KEYRING, "test", ALICE, expires_us=1000)


def test_a_token_names_its_principal_and_the_door() -> None:
    principal = read_token(KEYRING, "test", TOKEN, 999)
    assert (principal.name, principal.uid, principal.groups, principal.via) == (
        "alice",
        4001,
        (4001,),
        "token",
    )


@pytest.mark.parametrize(
    ("keyring", "cluster", "token", "now_us", "text"),
    [
        (KEYRING, "test", TOKEN, 1000, "expired"),
        (KEYRING, "other", TOKEN, 1, "for cluster test"),
        (Keyring({1: b"some other cluster's key"}), "test", TOKEN, 1, "not valid"),
        (KEYRING, "test", TOKEN[:-2] + "xx", 1, "not valid"),
        (KEYRING, "test", "es1.", 1, "not valid"),
        (KEYRING, "test", "es1.\u00e4\u00f6", 1, "not valid"),
        (KEYRING, "test", "Basic abc", 1, "not a token of eslurm"),
    ],
)
def test_tokens_that_are_not_taken(
    keyring: Keyring, cluster: str, token: str, now_us: int, text: str
) -> None:
    with pytest.raises(DoorError, match=text) as refused:
        read_token(keyring, cluster, token, now_us)
    assert refused.value.status is Status.UNAUTHENTICATED


@given(st.text())
def test_any_text_is_refused_in_good_order(text: str) -> None:
    for token in (text, "es1." + text):
        with pytest.raises(DoorError):
            read_token(KEYRING, "test", token, 1)


def test_a_token_from_another_host_needs_encryption() -> None:
    authenticator = TokenAuthenticator(KEYRING, "test", lambda: 5)
    bearer = {"authorization": f"Bearer {TOKEN}"}
    assert authenticator.principal(bearer, "ipv4:127.0.0.1:5", encrypted=False).name == "alice"
    assert authenticator.principal(bearer, "ipv4:10.0.0.1:5", encrypted=True).name == "alice"
    with pytest.raises(DoorError, match="over TLS only"):
        authenticator.principal(bearer, "ipv4:10.0.0.1:5", encrypted=False)
    for metadata in ({}, {"authorization": "Basic x"}, {"authorization": "Bearer"}):
        with pytest.raises(DoorError, match="carries no token"):
            authenticator.principal(metadata, "ipv4:127.0.0.1:5", encrypted=False)


@pytest.mark.parametrize(
    ("peer", "own"),
    [
        ("ipv4:127.0.0.1:1", True),
        ("ipv6:%5B::1%5D:1", True),
        ("ipv6:[::1]:1", True),
        ("unix:/run/x", True),
        ("ipv4:192.0.2.1:1", False),
        ("ipv6:%5B2001:db8::1%5D:1", False),
        ("nonsense", False),
    ],
)
def test_peers_on_this_host(peer: str, own: bool) -> None:
    assert from_this_host(peer) is own
