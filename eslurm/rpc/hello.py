"""The handshake that opens every link: who am I, who are you, do we belong together.

dial -> Hello{nonce}; answer -> HelloReply{Hello{nonce, challenge}}; confirm -> Hello{challenge}. Each Hello proves
that its sender holds a cluster key and, from the second on, that it was made for this very link. Invariant: no item
reaches the process before both proofs were checked.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from eslurm.ports.link import LinkRefused, PeerInfo
from eslurm.rpc.signing import BadSignature, Keyring, check_hello, prove_hello
from eslurm.v1 import link_pb2

PROTOCOL_MIN = 1
PROTOCOL_MAX = 1
NONCE_BYTES = 16
_BUSY = "busy: all links are in use, come back in "


@dataclass(slots=True)
class LocalPeer:
    """This process as it presents itself. `owner`, `epoch` and `book_revision` may change while links live."""

    cluster: str
    role: str
    process: str
    endpoint: str = ""
    build: str = ""
    features: tuple[str, ...] = ()
    owner: str = ""
    epoch: int = 0
    book_revision: int = 0
    protocol_min: int = PROTOCOL_MIN
    protocol_max: int = PROTOCOL_MAX


@dataclass(slots=True)
class Session:
    """Both nonces of one link; together they are its identity."""

    nonce: bytes = field(default_factory=lambda: os.urandom(NONCE_BYTES))
    challenge: bytes = b""


def make_hello(local: LocalPeer, keyring: Keyring, session: Session, stage: str) -> link_pb2.Hello:
    """A Hello of this process with its proof for `stage`: dial, answer, confirm or bulk."""
    hello = link_pb2.Hello(
        cluster=local.cluster,
        protocol_min=local.protocol_min,
        protocol_max=local.protocol_max,
        build=local.build,
        features=local.features,
        role=local.role,
        process=local.process,
        endpoint=local.endpoint,
        epoch=local.epoch,
        owner=local.owner,
        nonce=session.nonce,
        challenge=session.challenge,
        now_us=time.time_ns() // 1000,
    )
    prove_hello(keyring, hello, stage)
    return hello


def examine(
    hello: link_pb2.Hello, local: LocalPeer, keyring: Keyring, session: Session, stage: str
) -> PeerInfo:
    """Who the peer is. Raises `LinkRefused` with the reason it may be told."""
    if hello.cluster != local.cluster:
        raise LinkRefused(f"wrong cluster: this is {local.cluster!r}, the peer belongs to {hello.cluster!r}")
    protocol = min(hello.protocol_max, local.protocol_max)
    if protocol < max(hello.protocol_min, local.protocol_min):
        raise LinkRefused(
            f"no common protocol: this side speaks {local.protocol_min} to {local.protocol_max}, "
            f"the peer {hello.protocol_min} to {hello.protocol_max}"
        )
    try:
        check_hello(keyring, hello, stage)
    except BadSignature as error:
        raise LinkRefused(f"wrong cluster key: {error}") from None
    if stage != "dial" and hello.challenge != session.nonce:
        raise LinkRefused("the proof was made for another link")
    if len(hello.nonce) != NONCE_BYTES or not hello.process:
        raise LinkRefused("the Hello lacks a nonce or a process identity")
    if hello.process == local.process:
        raise LinkRefused("a process cannot have a link to itself")
    return PeerInfo(
        hello.cluster,
        hello.role,
        hello.process,
        hello.endpoint,
        frozenset(hello.features),
        protocol,
        hello.epoch,
        hello.owner,
        hello.build,
        hello.now_us - time.time_ns() // 1000 if hello.now_us else None,
    )


def busy_text(after_s: float) -> str:
    """How a peer that takes no more links now says so, and when to come back."""
    return f"{_BUSY}{after_s:.3f} s"


def busy_after_s(refusal: str) -> float | None:
    """The time that `busy_text` named; None for any other refusal."""
    if not refusal.startswith(_BUSY):
        return None
    try:
        return max(0.0, float(refusal.removeprefix(_BUSY).removesuffix(" s")))
    except ValueError:
        return None


def only_item(frame: bytes, kind: str) -> link_pb2.Item:
    """The first item of a frame, which must be of this kind. Raises `LinkRefused`."""
    try:
        items = link_pb2.Frame.FromString(frame).items
    except DecodeError:
        raise LinkRefused("the first frame cannot be decoded") from None
    if not items or items[0].WhichOneof("kind") != kind:
        raise LinkRefused(f"the first item is not a {kind}")
    return items[0]


def first_frame(item: link_pb2.Item) -> bytes:
    """A frame with one handshake item."""
    return link_pb2.Frame(items=[item]).SerializeToString()
