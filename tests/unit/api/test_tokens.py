"""Tokens: who they name, and all the ways they are not taken."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from eslurm.api.tokens import (
    CLOCK_TOLERANCE_US,
    GROUPS_MAX,
    TOKEN_CHARS_MAX,
    Claims,
    Identified,
    find_bearer,
    from_this_host,
    open_token,
    seal_token,
)
from eslurm.core.model.job import Principal
from eslurm.core.model.token import TokenRules
from eslurm.ports.api import ApiError, Status
from eslurm.security.sealing import Purpose
from tests.kits.api import ALICE
from tests.kits.api_tokens import SITE, STRANGERS, Office
from tests.support.loops import run

OFFICE = Office()
TOKEN = OFFICE.token(1000)
FAR_US = 10**15


def identify(
    office: Office, token: str, now_us: int = 1, peer: str = "ipv4:127.0.0.1:5", *, encrypted: bool = False
) -> Identified:
    async def scenario() -> Identified:
        bearer = {"authorization": f"Bearer {token}"}
        return await office.authenticator(lambda: now_us).identify(bearer, peer, encrypted=encrypted)

    found: list[Identified] = []

    async def keep() -> None:
        found.append(await scenario())

    run(keep())
    return found[0]


def refusal(office: Office, token: str, now_us: int = 1) -> str:
    with pytest.raises(ApiError) as refused:
        identify(office, token, now_us)
    assert refused.value.status is Status.UNAUTHENTICATED
    return refused.value.text


def test_a_token_names_its_principal_its_scope_and_itself() -> None:
    principal, name = identify(OFFICE, TOKEN, 999)
    assert principal == replace(ALICE, via="token", scope="submit")
    assert name == "00" * 15 + "01"
    assert find_bearer(TOKEN) == ("alice", "test", 1000, "submit")


@pytest.mark.parametrize(
    ("token", "now_us", "text"),
    [
        (TOKEN, 1000, "expired"),
        (
            seal_token(SITE, replace(OFFICE.claims(1000), cluster="other")),
            1,
            "for cluster other; this is test",
        ),
        (seal_token(STRANGERS, OFFICE.claims(1000)), 1, "not valid"),
        (TOKEN[:-2] + "xx", 1, "not valid"),
        ("es2.", 1, "not valid"),
        ("es2.AAAA", 1, "not valid"),
        ("es2.\u00e4\u00f6", 1, "not valid"),
        ("es1.AAAA", 1, "of an older version"),
        ("Basic", 1, "not a token of eslurm"),
        ("eyJhbGciOiJub25lIn0.e30.", 1, "not a token of eslurm"),
        ("es2." + "A" * TOKEN_CHARS_MAX, 1, "characters, at most 8192"),
        (
            seal_token(SITE, OFFICE.claims(FAR_US, issued_us=CLOCK_TOLERANCE_US + 2)),
            1,
            "of a later time than now",
        ),
        (OFFICE.token(1000, Principal("root", 0, 0)), 1, "tokens of root with scope submit are not taken"),
        (OFFICE.token(1000, scope="everything"), 1, "with scope everything are not taken"),
        (OFFICE.token(1000, scope=""), 1, "are not taken"),
    ],
)
def test_tokens_that_are_not_taken(token: str, now_us: int, text: str) -> None:
    assert text in refusal(OFFICE, token, now_us)


def test_a_statement_for_another_purpose_is_no_token() -> None:
    """A membership or a command under the same key."""
    body = open_token(SITE.ring, TOKEN)
    for purpose in Purpose:
        sealed = SITE.seal(purpose, msgspec.msgpack.encode(body))
        text = "es2." + base64.urlsafe_b64encode(sealed).decode().rstrip("=")
        if purpose is Purpose.TOKEN:
            assert identify(OFFICE, text).principal.name == "alice"
        else:
            assert "not valid" in refusal(OFFICE, text)


def test_what_the_state_no_longer_knows_is_revoked() -> None:
    office = Office()
    authenticator = office.authenticator(lambda: 1)
    metadata = {"authorization": f"Bearer {office.token(1000)}"}

    async def scenario() -> None:
        await authenticator.identify(metadata, "unix:", encrypted=False)
        office.issued.clear()
        # Its signature was verified before and is remembered; that does not help it.
        with pytest.raises(ApiError, match="was revoked"):
            await authenticator.identify(metadata, "unix:", encrypted=False)

    run(scenario())


@pytest.mark.parametrize(
    "changed",
    [{"scope": "admin"}, {"expires_us": 2000}, {"issued_us": 1}, {"principal": Principal("a", 1, 1)}],
)
def test_a_sealed_token_says_what_was_issued_under_its_id(changed: dict[str, Any]) -> None:
    """Even who could have things sealed gets no more than the log says."""
    office = Office()
    claims = office.claims(1000)
    assert "not the one that was issued" in refusal(office, seal_token(SITE, replace(claims, **changed)))


def test_life_is_bounded_when_it_is_shown_too() -> None:
    office = Office(TokenRules(life_user_max_s=10, life_max_s=20))
    second = 1_000_000
    for by_uid, ends_s, works in ((None, 10, True), (None, 11, False), (0, 20, True), (0, 21, False)):
        token = seal_token(SITE, office.claims(ends_s * second, by_uid=by_uid))
        if works:
            identify(office, token)
        else:
            assert f"longer than the {ends_s - 1} s" in refusal(office, token)


def test_the_largest_token_fits() -> None:
    who = Principal("a" * 32, 2**31, 2**31, tuple(range(2**31, 2**31 + GROUPS_MAX)))
    token = OFFICE.token(1000, who)
    assert len(token) <= TOKEN_CHARS_MAX
    assert identify(OFFICE, token).principal.groups == who.groups


@given(st.text())
def test_any_text_is_refused_in_good_order(text: str) -> None:
    for token in (text, "es2." + text):
        with pytest.raises(ApiError):
            open_token(SITE.ring, token)
        find_bearer(token)


@given(st.binary(max_size=200))
def test_any_sealed_body_is_refused_in_good_order(body: bytes) -> None:
    sealed = SITE.seal(Purpose.TOKEN, body)
    token = "es2." + base64.urlsafe_b64encode(sealed).decode().rstrip("=")
    try:
        claims = open_token(SITE.ring, token)
    except ApiError as refused:
        assert refused.status is Status.UNAUTHENTICATED
    else:
        assert isinstance(claims, Claims)


def test_a_token_from_another_host_needs_encryption() -> None:
    authenticator = OFFICE.authenticator(lambda: 5)
    bearer = {"authorization": f"Bearer {TOKEN}"}

    async def scenario() -> None:
        for peer, encrypted in (("ipv4:127.0.0.1:5", False), ("ipv4:10.0.0.1:5", True)):
            assert (await authenticator.identify(bearer, peer, encrypted=encrypted)).principal.name == "alice"
        with pytest.raises(ApiError, match="over TLS only"):
            await authenticator.identify(bearer, "ipv4:10.0.0.1:5", encrypted=False)
        for metadata in ({}, {"authorization": "Basic x"}, {"authorization": "Bearer"}):
            with pytest.raises(ApiError, match="carries no token"):
                await authenticator.identify(metadata, "ipv4:127.0.0.1:5", encrypted=False)

    run(scenario())


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
