"""The handshake of every link: mutual authentication and key exchange.

dial -> Hello; answer -> HelloReply{Hello}; confirm -> Hello. The first two bring an X25519 key and a membership each; from
the second on, a signature by the identity that the membership names covers the whole conversation. Invariant: no item
reaches the process before both signatures were checked, and nothing after them travels in clear.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from eslurm.core.model.hostlist import holds
from eslurm.ports.link import CELL, LinkRefused, PeerInfo
from eslurm.security.channel import EPHEMERAL_BYTES, BadExchange, Ephemeral, LinkKeys, Transcript
from eslurm.security.credentials import Credentials
from eslurm.security.files import UnsafeFile
from eslurm.security.membership import Membership, NotAMember, verify
from eslurm.security.sealing import BadSeal
from eslurm.v1 import link_pb2

if TYPE_CHECKING:
    from eslurm.security.cells import CellKeys

log = logging.getLogger(__name__)

PROTOCOL_MIN = 2
PROTOCOL_MAX = 2
NONCE_BYTES = 16
HELLO_BYTES_MAX = 16 * 1024
"""Of a first frame: strangers send it."""
_BUSY = "busy: all links are in use, come back in "
_CONVERT = "; the cluster of the older release is converted by `eslurm convert` (docs/guide/upgrades.md)"


@dataclass(slots=True)
class LocalPeer:
    """This process as it presents itself. `owner`, `epoch` and `book_revision` may change while links live.

    `process` begins with one of the names in its membership: NAME.RANDOM, or esnoded.NAME.RANDOM.
    """

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
    """Identity of one link: both nonces, the peer's own name for its process, its membership, and its revision of the
    revocations.
    """

    nonce: bytes = field(default_factory=lambda: os.urandom(NONCE_BYTES))
    process: str = ""
    challenge: bytes = b""
    membership: bytes = b""
    revoked_revision: int = 0
    keys: LinkKeys | None = None
    """Set when the handshake is over."""


class Handshake:
    """One handshake from one end's view, without the wire: frames in, frames out. Any refusal is a `LinkRefused`.

    The dialler: `open`, `on_answer`. The listener: `on_open`, `answer`, `on_confirmation`. Then both `finish`.
    """

    def __init__(self, local: LocalPeer, credentials: Credentials) -> None:
        self.session = Session()
        try:
            if credentials.renew(_now_us()):
                log.info("a newer membership is in use")
        except (UnsafeFile, NotAMember) as error:
            log.error("the former membership stays in use: %s", error)
        self._local = local
        self._credentials = credentials
        self._ephemeral = Ephemeral()
        self._transcript = Transcript()
        self._peer: PeerInfo | None = None
        self._public = b""
        self._secret = b""

    # ---- the dialler ----

    def open(self) -> bytes:
        """The first frame."""
        return self._said(link_pb2.Item(hello=self._hello()))

    def on_answer(self, reply: link_pb2.HelloReply, frame: bytes) -> tuple[PeerInfo, bytes]:
        """The listener, proven by its reply (in `frame`), and the frame that proves this end to it."""
        peer = self._meet(reply.hello)
        if reply.hello.challenge != self.session.nonce:
            raise LinkRefused("the proof was made for another link")
        self._check_proof(reply.hello, "answer")
        if reply.protocol != peer.protocol:
            raise LinkRefused(f"the peer chose protocol {reply.protocol}, expected {peer.protocol}")
        self._transcript.add(frame)
        confirmation = link_pb2.Hello(
            process=self._local.process, nonce=self.session.nonce, challenge=self.session.challenge
        )
        self._prove(confirmation, "confirm")
        return peer, self._said(link_pb2.Item(hello=confirmation))

    # ---- the listener ----

    def on_open(self, frame: bytes) -> PeerInfo:
        """The dialler as it presents itself, nothing proven yet."""
        hello = only_item(frame, "hello").hello
        peer = self._meet(hello)
        self._transcript.add(frame)
        return peer

    def answer(self) -> bytes:
        """The second frame."""
        assert self._peer is not None
        hello = self._hello()
        self._prove(hello, "answer")
        reply = link_pb2.HelloReply(hello=hello, protocol=self._peer.protocol)
        return self._said(link_pb2.Item(hello_reply=reply))

    def on_confirmation(self, frame: bytes) -> PeerInfo:
        """The dialler, proven."""
        assert self._peer is not None
        hello = only_item(frame, "hello").hello
        if hello.nonce != self.session.challenge or hello.process != self.session.process:
            raise LinkRefused("the confirmation is another peer's")
        if hello.challenge != self.session.nonce:
            raise LinkRefused("the proof was made for another link")
        self._check_proof(hello, "confirm")
        self._transcript.add(frame)
        return self._peer

    # ---- both ----

    def finish(self, *, dialled: bool) -> LinkKeys:
        """The link's keys, after the last frame."""
        keys = LinkKeys(self._secret, self._transcript.digest, dialled=dialled)
        self.session.keys = keys
        return keys

    def _hello(self) -> link_pb2.Hello:
        local = self._local
        return link_pb2.Hello(
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
            nonce=self.session.nonce,
            challenge=self.session.challenge,
            now_us=_now_us(),
            ephemeral=self._ephemeral.public,
            membership=self._credentials.membership,
            ring=self._credentials.members.ring.sealed,
            revoked_revision=self._credentials.revoked.revision,
        )

    def _said(self, item: link_pb2.Item) -> bytes:
        frame = first_frame(item)
        self._transcript.add(frame)
        return frame

    def _prove(self, hello: link_pb2.Hello, stage: str) -> None:
        hello.proof = self._credentials.identity.sign(self._transcript.with_claim(stage, _claim(hello)))

    def _check_proof(self, hello: link_pb2.Hello, stage: str) -> None:
        if not verify(self._public, self._transcript.with_claim(stage, _claim(hello)), hello.proof):
            raise LinkRefused("the peer has not proved that it holds the key of its membership")

    def _meet(self, hello: link_pb2.Hello) -> PeerInfo:
        """Compare the peer's Hello with its membership."""
        peer, membership = examine(hello, self._local, self._credentials)
        try:
            self._secret = self._ephemeral.exchange(hello.ephemeral)
        except BadExchange as error:
            raise LinkRefused(str(error)) from None
        session = self.session
        session.challenge, session.membership = hello.nonce, hello.membership
        session.process = hello.process
        session.revoked_revision = hello.revoked_revision
        self._public = membership.public
        self._peer = peer
        return peer


def examine(hello: link_pb2.Hello, local: LocalPeer, credentials: Credentials) -> tuple[PeerInfo, Membership]:
    """(the peer by its Hello, its membership). Raises `LinkRefused` with a reason that the peer may see.

    A peer of another cell is checked by that cell's keys alone, and is nothing but a cell here.
    """
    cell = credentials.cell_of(hello.membership, hello.ring) if credentials.cells else None
    if cell is None and hello.cluster != local.cluster:
        pinned = (
            "; none of the cells that are trusted here has issued its membership" if credentials.cells else ""
        )
        text = f"wrong cluster: this is {local.cluster!r}, the peer belongs to {hello.cluster!r}{pinned}"
        raise LinkRefused(text)
    protocol = min(hello.protocol_max, local.protocol_max)
    if protocol < max(hello.protocol_min, local.protocol_min):
        raise LinkRefused(
            f"no common protocol: this side speaks {local.protocol_min} to {local.protocol_max}, "
            f"the peer {hello.protocol_min} to {hello.protocol_max}{_CONVERT if hello.protocol_max < PROTOCOL_MIN else ''}"
        )
    sizes = len(hello.nonce), len(hello.ephemeral)
    if sizes != (NONCE_BYTES, EPHEMERAL_BYTES) or not hello.process:
        raise LinkRefused("the Hello lacks a nonce, a key or a process identity")
    if hello.process == local.process:
        raise LinkRefused("a process cannot have a link to itself")
    # Before the membership: a newer key may have sealed it. An older ring, or one of strangers, changes nothing.
    keys: Credentials | CellKeys = credentials if cell is None else cell
    with suppress(BadSeal):
        keys.learn_ring(hello.ring)
    if not hello.membership:
        raise LinkRefused(f"{hello.role or 'the peer'} has no membership: let the host join (eslurm join)")
    try:
        membership = keys.members.check(hello.membership, _now_us())
    except NotAMember as error:
        raise LinkRefused(str(error)) from None
    if cell is not None and membership.role != "controller":
        raise LinkRefused(
            f"only controllers speak for cell {cell.name}; the peer's membership says {membership.role}"
        )
    if membership.role != hello.role:
        raise LinkRefused(f"the peer says it is a {hello.role[:32]!r}; its membership says {membership.role}")
    name = hello.process.rsplit(".", 1)[0].removeprefix("esnoded.")
    if not holds(membership.names, name):
        raise LinkRefused(f"the peer says it is {name[:64]!r}; its membership is for {membership.names}")
    peer = PeerInfo(
        hello.cluster,
        hello.role if cell is None else CELL,
        # Of another cluster no name is ours: it might be that of one of our own processes.
        hello.process if cell is None else f"{cell.name}/{hello.process}",
        hello.endpoint,
        frozenset(hello.features),
        protocol,
        hello.epoch,
        hello.owner,
        hello.build,
        hello.now_us - _now_us() if hello.now_us else None,
        membership.names,
        membership.serial,
        "" if cell is None else cell.name,
    )
    return peer, membership


def busy_text(after_s: float) -> str:
    """The refusal of a peer with too many links, with the time of a retry."""
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
    if len(frame) > HELLO_BYTES_MAX:
        raise LinkRefused(f"the first frame has {len(frame)} bytes, a Hello at most {HELLO_BYTES_MAX}")
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


def _claim(hello: link_pb2.Hello) -> bytes:
    """A Hello without its proof, as the proof covers it. Fields are only appended, so one that this release does not know
    stands at the end at both ends.
    """
    bare = link_pb2.Hello()
    bare.CopyFrom(hello)
    bare.ClearField("proof")
    return bare.SerializeToString(deterministic=True)


def _now_us() -> int:
    return time.time_ns() // 1000
