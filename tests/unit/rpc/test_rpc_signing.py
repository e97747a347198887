"""Keys, signed commands and Hello proofs: what verifies and what must not."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.ports.link import LinkRefused
from eslurm.rpc.hello import LocalPeer, Session, examine, first_frame, make_hello, only_item
from eslurm.rpc.signing import BadSignature, Keyring
from eslurm.v1 import link_pb2

OLD = Keyring({1: b"the key of last year"})
BOTH = Keyring({1: b"the key of last year", 2: b"the key of this year"})
ANN = LocalPeer("test", "agent", "ann", "127.0.0.1:1", "1.0", ("a", "b"), "ctl", 4)
BOB = LocalPeer("test", "satellite", "bob", "127.0.0.1:2")


@given(st.binary())
def test_what_was_signed_comes_back(body: bytes) -> None:
    assert OLD.verify(OLD.sign(body)) == body


def test_the_newest_key_signs_and_all_verify() -> None:
    signed = BOTH.sign(b"go")
    assert link_pb2.SignedCommand.FromString(signed).key_id == 2
    assert BOTH.verify(OLD.sign(b"go")) == b"go"
    assert Keyring({1: b"the key of last year", 2: b"the key of this year"}, signing_id=1).sign(
        b"x"
    ) == OLD.sign(b"x")
    with pytest.raises(BadSignature, match="unknown key 2"):
        OLD.verify(signed)


@given(st.data())
def test_any_flipped_bit_is_noticed(data: st.DataObject) -> None:
    signed = bytearray(OLD.sign(b"launch job 7"))
    position = data.draw(st.integers(0, len(signed) - 1))
    signed[position] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(BadSignature):
        # Only the framing may have changed without harm, never what was signed.
        assert OLD.verify(bytes(signed)) == b"launch job 7"


def test_a_changed_body_and_a_key_for_another_purpose_are_refused() -> None:
    command = link_pb2.SignedCommand.FromString(OLD.sign(b"signal job 7"))
    command.body = b"signal job 8"
    with pytest.raises(BadSignature, match="does not match"):
        OLD.verify(command.SerializeToString())
    command.signature = OLD.mac(b"token", 1, command.body)
    with pytest.raises(BadSignature, match="does not match"):
        OLD.verify(command.SerializeToString())
    with pytest.raises(BadSignature, match="not a signed command"):
        OLD.verify(b"\xff\xff")


@pytest.mark.parametrize(
    ("keys", "signing_id", "text"),
    [({}, None, "at least one"), ({1: b"short"}, None, "5 bytes"), ({1: b"k" * 16}, 2, "signing key 2")],
)
def test_a_ring_that_cannot_work_is_refused(
    keys: dict[int, bytes], signing_id: int | None, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        Keyring(keys, signing_id)


def test_a_full_handshake_tells_who_is_there() -> None:
    ann, bob = Session(), Session()
    dial = make_hello(ANN, OLD, ann, "dial")
    peer = examine(dial, BOB, OLD, bob, "dial")
    assert (peer.process, peer.role, peer.endpoint, peer.owner, peer.epoch) == (
        "ann",
        "agent",
        "127.0.0.1:1",
        "ctl",
        4,
    )
    bob.challenge = dial.nonce
    answer = make_hello(BOB, OLD, bob, "answer")
    assert examine(answer, ANN, OLD, ann, "answer").process == "bob"
    ann.challenge = answer.nonce
    for stage in ("confirm", "bulk"):
        assert examine(make_hello(ANN, OLD, ann, stage), BOB, OLD, bob, stage).process == "ann"


def test_a_recorded_proof_opens_no_second_link() -> None:
    """Goal: whoever listened to one handshake cannot repeat it. Method: replay the confirmation to a new session."""
    ann, bob = Session(), Session()
    bob.challenge = ann.nonce
    ann.challenge = bob.nonce
    confirm = make_hello(ANN, OLD, ann, "confirm")
    assert examine(confirm, BOB, OLD, bob, "confirm").process == "ann"
    with pytest.raises(LinkRefused, match="for another link"):
        examine(confirm, BOB, OLD, Session(), "confirm")
    with pytest.raises(LinkRefused, match="wrong cluster key"):
        examine(confirm, BOB, OLD, bob, "bulk")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("role", "controller"),
        ("process", "eve"),
        ("endpoint", "127.0.0.1:3"),
        ("epoch", 5),
        ("owner", "eve"),
        ("nonce", b"n" * 16),
        ("build", "9"),
        ("protocol_min", 0),
    ],
)
def test_the_proof_covers_every_field(name: str, value: object) -> None:
    hello = make_hello(ANN, OLD, Session(), "dial")
    setattr(hello, name, value)
    with pytest.raises(LinkRefused, match="wrong cluster key"):
        examine(hello, BOB, OLD, Session(), "dial")


def test_features_cannot_be_regrouped() -> None:
    hello = make_hello(ANN, OLD, Session(), "dial")
    del hello.features[:]
    hello.features.append("ab")
    with pytest.raises(LinkRefused, match="wrong cluster key"):
        examine(hello, BOB, OLD, Session(), "dial")


def test_the_highest_common_protocol_is_chosen() -> None:
    newer = LocalPeer("test", "agent", "new", protocol_min=1, protocol_max=5)
    older = LocalPeer("test", "agent", "old", protocol_min=1, protocol_max=3)
    hello = make_hello(newer, OLD, Session(), "dial")
    assert examine(hello, older, OLD, Session(), "dial").protocol == 3


def test_a_hello_without_nonce_is_refused() -> None:
    hello = make_hello(ANN, OLD, Session(nonce=b""), "dial")
    with pytest.raises(LinkRefused, match="lacks a nonce"):
        examine(hello, BOB, OLD, Session(), "dial")


def test_the_first_frame_holds_the_expected_kind() -> None:
    hello = make_hello(ANN, OLD, Session(), "dial")
    frame = first_frame(link_pb2.Item(hello=hello))
    assert only_item(frame, "hello").hello == hello
    for bad, text in ((frame, "not a hello_reply"), (b"", "not a hello_reply"), (b"\xff", "decoded")):
        with pytest.raises(LinkRefused, match=text):
            only_item(bad, "hello_reply")
