"""The handshake of links: who is let in, and what somebody on the path can do with its frames."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eslurm.links.hello import HELLO_BYTES_MAX, Handshake, LocalPeer, first_frame, only_item
from eslurm.ports.link import LinkRefused, PeerInfo
from eslurm.security.channel import BadFrame, LinkKeys
from eslurm.security.credentials import Credentials
from eslurm.security.membership import Identity, Members
from eslurm.security.revocation import seal_revoked
from eslurm.v1 import link_pb2
from tests.support.trust import Site

SITE = Site()
ANN = LocalPeer("test", "agent", "esnoded.cn1.aa", "127.0.0.1:1", "1", ("a", "b"), "ctl", 4)
BOB = LocalPeer("test", "controller", "main.bb", "127.0.0.1:2", owner="ctl", epoch=5)
OF_ANN = SITE.credentials("agent", "cn[1-4]")
OF_BOB = SITE.credentials("controller", "main")

Change = Callable[[bytes], bytes]


def same(frame: bytes) -> bytes:
    return frame


def met(
    changes: tuple[Change, Change, Change] = (same, same, same),
    ann: LocalPeer = ANN,
    of_ann: Credentials = OF_ANN,
    of_bob: Credentials = OF_BOB,
) -> tuple[PeerInfo, PeerInfo, LinkKeys, LinkKeys]:
    """A handshake whose frames pass through `changes`; both peers as seen from the other end, and both ends' keys."""
    dialler, listener = Handshake(ann, of_ann), Handshake(BOB, of_bob)
    listener.on_open(changes[0](dialler.open()))
    answer = changes[1](listener.answer())
    bob, confirmation = dialler.on_answer(only_item(answer, "hello_reply").hello_reply, answer)
    seen = listener.on_confirmation(changes[2](confirmation))
    return bob, seen, dialler.finish(dialled=True), listener.finish(dialled=False)


def test_a_full_handshake_tells_who_is_there_and_gives_both_the_same_keys() -> None:
    bob, ann, at_ann, at_bob = met()
    assert (ann.process, ann.role, ann.endpoint, ann.owner, ann.epoch) == (
        *("esnoded.cn1.aa", "agent", "127.0.0.1:1", "ctl", 4),
    )
    assert ann.names == "cn[1-4]" and len(ann.serial) == 16
    assert (bob.process, bob.role, bob.names) == ("main.bb", "controller", "main")
    for ours, theirs in ((at_ann.control, at_bob.control), (at_ann.bulk, at_bob.bulk)):
        for frame in (b"one", b"", b"x" * 100_000):
            assert theirs.opener.open(ours.sealer.seal(frame)) == frame
            assert ours.opener.open(theirs.sealer.seal(frame)) == frame
    assert at_bob.is_bulk_proof(at_ann.bulk_proof)


def changed(index: int, name: str, value: object) -> tuple[Change, Change, Change]:
    """Somebody on the path changes a field of one of the three Hellos."""

    def change(frame: bytes) -> bytes:
        decoded = link_pb2.Frame.FromString(frame)
        item = decoded.items[0]
        hello = item.hello_reply.hello if item.WhichOneof("kind") == "hello_reply" else item.hello
        assert getattr(hello, name) != value
        if name == "features":
            del hello.features[:]
            hello.features.extend(value)  # type: ignore[arg-type]
        else:
            setattr(hello, name, value)
        return decoded.SerializeToString()

    return tuple(change if at == index else same for at in range(3))  # type: ignore[return-value]


OTHER_KEY = Identity.generate().public


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("endpoint", "127.0.0.1:3"),
        ("epoch", 9),
        ("owner", "eve"),
        ("nonce", b"n" * 16),
        ("build", "9"),
        ("protocol_min", 0),
        ("features", ["ab"]),
        ("now_us", 7),
        ("ephemeral", OTHER_KEY),
        ("membership", OF_ANN.membership),
        ("role", "satellite"),
        ("process", "eve"),
        ("revoked_revision", 3),
        ("proof", b"p" * 64),
    ],
)
def test_nothing_of_a_handshake_can_be_changed_on_the_way(index: int, name: str, value: object) -> None:
    if index == 0 and name == "membership":
        value = SITE.credentials("agent", "cn[1-4]").membership
    with pytest.raises(LinkRefused):
        met(changed(index, name, value))


@pytest.mark.parametrize(
    ("name", "value"),
    [("nonce", b"n" * 16), ("challenge", b"n" * 16), ("process", "eve"), ("proof", b"p" * 64)],
)
def test_nor_of_its_confirmation(name: str, value: object) -> None:
    with pytest.raises(LinkRefused):
        met(changed(2, name, value))


def test_a_field_that_this_release_does_not_know_changes_nothing() -> None:
    """Field 900 of a later release in all three Hellos, put there by their senders: here it comes too late for a proof."""

    def append(frame: bytes) -> bytes:
        decoded = link_pb2.Frame.FromString(frame)
        decoded.items[0].hello.MergeFromString(b"\xa2\x38\x02hi")
        return decoded.SerializeToString()

    with pytest.raises(LinkRefused, match="has not proved"):
        met((append, same, same))


def test_a_recorded_dialler_opens_no_second_link() -> None:
    """Goal: a recording of one handshake is worth nothing. Method: both frames of the dialler to a new listener."""
    said: list[bytes] = []

    def record(frame: bytes) -> bytes:
        said.append(frame)
        return frame

    met((record, same, record))
    again = Handshake(BOB, OF_BOB)
    again.on_open(said[0])
    again.answer()
    with pytest.raises(LinkRefused, match="for another link"):
        again.on_confirmation(said[1])


def test_frames_that_come_back_to_their_sender_prove_nothing() -> None:
    dialler = Handshake(ANN, OF_ANN)
    own = dialler.open()
    hello = only_item(own, "hello").hello
    with pytest.raises(LinkRefused, match="link to itself"):
        dialler.on_answer(link_pb2.HelloReply(hello=hello, protocol=2), own)
    with pytest.raises(LinkRefused, match="link to itself"):
        Handshake(ANN, OF_ANN).on_open(own)


def test_a_membership_is_worth_nothing_without_its_key() -> None:
    thief = Credentials(Identity.generate(), OF_ANN.membership, Members(SITE.keys.ring))
    with pytest.raises(LinkRefused, match="has not proved that it holds the key of its membership"):
        met(of_ann=thief)


@pytest.mark.parametrize(
    ("ann", "of_ann", "text"),
    [
        (ANN, SITE.credentials("satellite", "cn1"), "says it is a 'agent'; its membership says satellite"),
        (
            LocalPeer("test", "controller", "esnoded.cn1.aa"),
            OF_ANN,
            "says it is a 'controller'; its .* agent",
        ),
        (
            LocalPeer("test", "agent", "esnoded.cn5.aa"),
            OF_ANN,
            r"says it is 'cn5'; its membership is for cn\[1-4\]",
        ),
        (LocalPeer("test", "agent", "main.bb.cc"), OF_ANN, "says it is 'main.bb'"),
        (LocalPeer("other", "agent", "esnoded.cn1.aa"), OF_ANN, "wrong cluster"),
        (ANN, Site().credentials("agent", "cn1"), "not of this cluster: unknown key"),
        (ANN, SITE.credentials("agent", "cn1", until_us=5), "has ended: issue a new one"),
        (
            ANN,
            Credentials(OF_ANN.identity, b"", OF_ANN.members),
            "agent has no membership: let the host join",
        ),
        (
            LocalPeer("test", "agent", "esnoded.cn1.aa", protocol_min=1, protocol_max=1),
            OF_ANN,
            "the peer 1 to 1; the cluster of the older release is converted by `eslurm convert`",
        ),
    ],
)
def test_what_a_peer_says_of_itself_must_be_what_the_site_says(
    ann: LocalPeer, of_ann: Credentials, text: str
) -> None:
    with pytest.raises(LinkRefused, match=text):
        met(ann=ann, of_ann=of_ann)


def test_a_revoked_member_is_refused() -> None:
    site = Site()
    bob, eve = site.credentials("controller", "main"), site.credentials("agent", "cn1")
    serial = met(of_ann=eve, of_bob=bob)[1].serial
    assert bob.learn_revoked(seal_revoked(site.keys, 1, frozenset({serial})))
    with pytest.raises(LinkRefused, match="was revoked"):
        met(of_ann=eve, of_bob=bob)


def test_a_handshake_brings_newer_site_keys_with_it() -> None:
    """A host that was away while the site's keys were replaced learns of them from any member."""
    site = Site()
    away = site.credentials("agent", "cn1")
    site.keys = site.keys.with_next(2)
    site.keys = site.keys.with_next_signing()
    bob = site.credentials("controller", "main")
    met(of_ann=away, of_bob=bob)
    assert away.members.ring.revision == 3
    forged = Site().keys.with_next(2)
    stranger = site.credentials("agent", "cn1")
    stranger.members.ring = forged.ring
    with pytest.raises(LinkRefused):
        met(of_ann=stranger, of_bob=bob)
    assert bob.members.ring.revision == 3


@pytest.mark.parametrize(
    "attack", ["flip", "drop", "repeat", "swap", "reflect", "other lane", "truncate", "empty"]
)
def test_a_frame_that_was_touched_does_not_decrypt(attack: str) -> None:
    _bob, _ann, at_ann, at_bob = met()
    first, second = at_ann.control.sealer.seal(b"first"), at_ann.control.sealer.seal(b"second")
    opener = at_bob.control.opener
    match attack:
        case "flip":
            frames = [first[:3] + bytes([first[3] ^ 1]) + first[4:]]
        case "drop":
            frames = [second]
        case "repeat":
            frames = [first, first]
        case "swap":
            frames = [second, first]
        case "reflect":
            frames, opener = [first], at_ann.control.opener
        case "other lane":
            frames, opener = [first], at_bob.bulk.opener
        case "truncate":
            frames = [first[:-1]]
        case _:
            frames = [b""]
    with pytest.raises(BadFrame):
        for frame in frames:
            opener.open(frame)


def test_the_highest_common_protocol_is_chosen() -> None:
    newer = LocalPeer("test", "agent", "cn1", protocol_min=2, protocol_max=5)
    older = LocalPeer("test", "controller", "main", protocol_min=2, protocol_max=3)
    assert Handshake(older, OF_BOB).on_open(Handshake(newer, OF_ANN).open()).protocol == 3


def test_the_first_frame_is_small_and_holds_the_expected_kind() -> None:
    frame = Handshake(ANN, OF_ANN).open()
    assert only_item(frame, "hello").hello.process == ANN.process
    large = first_frame(link_pb2.Item(hello=link_pb2.Hello(build="x" * HELLO_BYTES_MAX)))
    for bad, text in (
        (frame, "not a hello_reply"),
        (b"", "not a hello_reply"),
        (b"\xff", "decoded"),
        (large, "a Hello at most"),
    ):
        with pytest.raises(LinkRefused, match=text):
            only_item(bad, "hello_reply")
