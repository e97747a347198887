"""Proofs between a host that joins and a controller, and the answers that count."""

from __future__ import annotations

import hashlib

import pytest

from eslurm.security.joining import (
    BadToken,
    CannotTrust,
    Conversation,
    JoinSecret,
    Trust,
    check_issued,
    fingerprint,
    prove_answer,
    seal_answer,
)
from eslurm.security.membership import Identity
from eslurm.security.sealing import Purpose
from eslurm.telemetry.logs import _TOKEN, HIDDEN
from tests.support.trust import Site

SITE, OTHER = Site(), Site("other")
TOKEN = JoinSecret.new()
[PUBLIC] = SITE.keys.ring.keys.publics
PIN = fingerprint(PUBLIC)


def test_a_token_is_read_as_it_was_shown_and_hidden_in_logs() -> None:
    assert JoinSecret.parse(f"{TOKEN.text}\n") == TOKEN
    assert hashlib.sha256(TOKEN.secret).digest() == TOKEN.hash
    assert _TOKEN.sub(HIDDEN, f"with {TOKEN.text} in it") == f"with {HIDDEN} in it"


@pytest.mark.parametrize(
    "text", ["", "esj1.", TOKEN.text[:-3], TOKEN.text.replace("esj1", "es1"), "esj1.ü", "esj1.%"]
)
def test_what_is_no_token_is_said(text: str) -> None:
    with pytest.raises(BadToken):
        JoinSecret.parse(text)


def test_both_proofs_cover_all_that_was_said() -> None:
    identity = Identity.generate()
    one = Conversation(b"asked", b"challenge")
    signature, proof = one.sign(identity), one.prove(TOKEN.hash)
    assert one.is_signed(identity.public, signature) and one.is_proved(TOKEN.hash, proof)
    assert not one.is_signed(Identity.generate().public, signature)
    assert not one.is_signed(identity.public, b"") and not one.is_signed(b"", signature)
    assert not one.is_proved(JoinSecret.new().hash, proof) and not one.is_proved(TOKEN.hash, b"")
    for other in (
        Conversation(b"asked", b"challengf"),
        Conversation(b"aske", b"dchallenge"),
        Conversation(b"askee", b"challenge"),
    ):
        assert not other.is_signed(identity.public, signature) and not other.is_proved(TOKEN.hash, proof)
    # What proves the host proves no answer.
    assert prove_answer(TOKEN.hash, one.answered(b"proof", b"answer")) != proof


ANSWERED = Conversation(b"asked", b"challenge").answered(b"proof", b"answer")
RING = SITE.keys.ring.sealed
GOOD = prove_answer(TOKEN.hash, ANSWERED)
SEALS = seal_answer(SITE.keys, ANSWERED)


@pytest.mark.parametrize(
    ("trust", "proof", "seals"),
    [
        (Trust(TOKEN), GOOD, []),
        (Trust(None, PIN), b"", SEALS),
        (Trust(TOKEN, PIN), GOOD, SEALS),
    ],
)
def test_an_answer_of_this_site_counts(trust: Trust, proof: bytes, seals: list[bytes]) -> None:
    assert trust.check(ANSWERED, RING, proof, seals).cluster == "test"


@pytest.mark.parametrize(
    ("trust", "answered", "ring", "proof", "seals"),
    [
        (Trust(), ANSWERED, RING, GOOD, SEALS),
        (Trust(TOKEN), ANSWERED, RING, b"", SEALS),
        (Trust(JoinSecret.new()), ANSWERED, RING, GOOD, SEALS),
        (Trust(TOKEN), b"another", RING, GOOD, SEALS),
        (Trust(TOKEN, PIN), ANSWERED, RING, GOOD, []),
        (Trust(TOKEN, PIN), ANSWERED, RING, b"", SEALS),
        (Trust(None, PIN), b"another", RING, b"", SEALS),
        (Trust(None, PIN), ANSWERED, OTHER.keys.ring.sealed, b"", SEALS),
        (Trust(None, PIN), ANSWERED, b"", b"", SEALS),
        # Another site's seal that begins with the id of the key that is asked for.
        (Trust(None, PIN), ANSWERED, RING, b"", [SEALS[0][:8] + seal_answer(OTHER.keys, ANSWERED)[0][8:]]),
        # Another statement of the right site.
        (Trust(None, PIN), ANSWERED, RING, b"", [SITE.keys.seal(Purpose.TOKEN, ANSWERED)]),
        (Trust(None, "0" * 32), ANSWERED, RING, b"", SEALS),
    ],
)
def test_an_answer_counts_only_with_the_proof_that_was_asked_for(
    trust: Trust, answered: bytes, ring: bytes, proof: bytes, seals: list[bytes]
) -> None:
    with pytest.raises(CannotTrust):
        trust.check(answered, ring, proof, seals)


def test_while_keys_are_replaced_the_fingerprint_of_each_counts() -> None:
    keys = SITE.keys.with_next(2).with_next_signing()
    seals = seal_answer(keys, ANSWERED)
    for public in keys.ring.keys.publics:
        assert Trust(None, fingerprint(public)).check(ANSWERED, keys.ring.sealed, b"", seals).revision == 3


def test_the_membership_is_the_one_that_was_asked_for() -> None:
    identity = Identity.generate()
    ring = SITE.keys.ring
    sealed = SITE.issue(identity, "agent", "cn[1-4]")
    assert check_issued(ring, sealed, identity, "agent", "cn[1-4]", 1).names == "cn[1-4]"
    for other, role, names in (
        (Identity.generate(), "agent", "cn1"),
        (identity, "satellite", "cn1"),
        (identity, "agent", "cn[1-5]"),
    ):
        with pytest.raises(CannotTrust):
            check_issued(ring, sealed, other, role, names, 1)  # type: ignore[arg-type]
    with pytest.raises(CannotTrust):
        check_issued(ring, OTHER.issue(identity, "agent", "cn1"), identity, "agent", "cn1", 1)
