"""Arbitrary bytes of a peer: every reader of the wire answers with a value or its own typed error, soon, and what
was written can be read again.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import example, given
from hypothesis import strategies as st

from escli.wire import WireError, decode, encode
from escli.wire_tables import JOB_REQUEST, SUBMIT_REPLY
from eslurm.api.methods import METHODS
from eslurm.api.tokens import from_this_host, open_token
from eslurm.core.model.endpoint import split_endpoint
from eslurm.core.model.job import Principal, StepEnd
from eslurm.core.model.protocol import (
    Command,
    End,
    Heartbeat,
    HeldAttempt,
    LaunchStep,
    NodeGone,
    NodeGroup,
    Prepare,
    Registration,
    RegistrationReply,
    Report,
    ReportAck,
    StepEnded,
)
from eslurm.core.relay import nodelist
from eslurm.core.relay.messages import Broadcast
from eslurm.core.relay.relay import Relay
from eslurm.links import codec
from eslurm.links.endpoint_directory import EndpointDirectory
from eslurm.links.hello import Handshake, LocalPeer, busy_after_s, examine, only_item
from eslurm.links.relay_envelopes import EnvelopeError, read_ack, read_broadcast, read_reply
from eslurm.ports.api import ApiError, Status
from eslurm.ports.link import LinkRefused
from eslurm.security.sealing import BadSeal, Purpose
from eslurm.v1 import controller_pb2 as pb
from eslurm.v1 import link_pb2
from tests.kits import api_tokens as tokens_kit
from tests.kits.launches import launch_of
from tests.kits.mutation import damaged, damaged_texts
from tests.support.trust import Site

SITE = Site()
ALICE = Principal("alice", 4001, 4001, (4001, 4002))
LAUNCH = launch_of(
    attempt=2,
    user=ALICE,
    groups=(NodeGroup(((1, 3), (9, 1)), (4, 512), 2),),
    node_names="cn[1-3,9]",
    script_hash=b"s" * 32,
    environment_hash=b"e" * 32,
)
BODIES = (
    Prepare(LAUNCH, True),
    End(7, 2, 30.0, "cancelled"),
    LaunchStep(7, 2, 0, LAUNCH.groups, ("a", "ü"), b"e" * 32, "/w", "login:1", b"c", 8),
    Heartbeat(12),
)
COMMANDS = [
    Command("test", "ctl", 3, 44, index, ((1, 3), (9, 1)), (1, 1), 10**15, body)
    for index, body in enumerate(BODIES)
]
REPORTS = [
    Report(
        "agent0#1", 1, Registration("cn1", "u", "b", "s", 3, "h:1", (4, 512), (HeldAttempt(7, 2, "running"),))
    ),
    Report("agent0#1", 2, StepEnded(1, 1, 7, 2, StepEnd(1, 9, "signalled", "killed"), True)),
    Report("agent0#1", 3, NodeGone(1, 1, 7, 2)),
]
ACK = ReportAck("agent0#1", (1, 2, 3), (RegistrationReply("cn1", 1, 1, 3, "ctl", "no"),), 44)
DEEP = b"\x91" * 5_000
"""Five thousand arrays in each other."""


def readable(read: Callable[[], Any], *errors: type[Exception]) -> Any:
    """The value, or None after one of these errors, which has a text."""
    try:
        return read()
    except errors as error:
        assert str(error)
        return None


# ---- MessagePack inside ----


@given(damaged([codec.encode_command(command) for command in COMMANDS]) | st.binary(max_size=60))
@example(b"\x99\xa1\xff")
@example(DEEP)
@example(codec.encode_command(COMMANDS[3]).replace(b"\x99", b"\x9a") + DEEP)
def test_commands(body: bytes) -> None:
    command = readable(lambda: codec.decode_command(body), codec.CodecError)
    if command is not None:
        assert codec.decode_command(codec.encode_command(command)) == command


@given(damaged([msgspec.msgpack.encode(report.body) for report in REPORTS]) | st.binary(max_size=60))
@example(b"\x99\xacregistration\xa1\xff\xa0\xa0\xa0\x00\xa0\x90")
@example(DEEP)
def test_reports(body: bytes) -> None:
    message = link_pb2.Report(process="agent0#1", seq=1, body=body)
    report = readable(lambda: codec.report_from_pb(message), codec.CodecError)
    if report is not None:
        assert codec.report_from_pb(codec.report_to_pb(report)) == report


@given(damaged([msgspec.msgpack.encode(ACK.registrations)]) | st.binary(max_size=60))
@example(b"\x91\x91\xa1\xff")
@example(DEEP)
def test_acknowledgements(registrations: bytes) -> None:
    message = link_pb2.ReportAck(process="p", seqs=[1], registrations=registrations)
    ack = readable(lambda: codec.report_ack_from_pb(message), codec.CodecError)
    if ack is not None:
        assert codec.report_ack_from_pb(codec.report_ack_to_pb(ack)) == ack


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command.body).__name__)
def test_commands_can_be_read_again(command: Command) -> None:
    assert codec.decode_command(codec.encode_command(command)) == command


def test_reports_and_acknowledgements_can_be_read_again() -> None:
    assert [codec.report_from_pb(codec.report_to_pb(report)) for report in REPORTS] == REPORTS
    assert codec.report_ack_from_pb(codec.report_ack_to_pb(ACK)) == ACK


# ---- signatures, tokens, handshakes ----

SEALED, *_ = SITE.keys.seal_together(Purpose.COMMAND, [codec.encode_command(one) for one in COMMANDS])
TOKEN = tokens_kit.Office().token(2_000)


@given(damaged([SEALED, SEALED + SEALED]) | st.binary(max_size=80))
def test_nothing_but_the_sealed_bytes_is_taken_for_sealed(sealed: bytes) -> None:
    body = readable(lambda: SITE.keys.ring.keys.open_shared(Purpose.COMMAND, sealed), BadSeal)
    assert body in (None, codec.encode_command(COMMANDS[0]))


@given(damaged_texts([TOKEN, TOKEN.swapcase(), "es2.", "es2.AAAA"]) | st.text(max_size=80))
@example("es2." + "A" * 1_000_000)
@example("es2.é")
def test_tokens(token: str) -> None:
    try:
        claims = open_token(tokens_kit.SITE.ring, token)
    except ApiError as refused:
        assert refused.status is Status.UNAUTHENTICATED and refused.text
        return
    # Base64 has several spellings of the same bytes: whatever is taken says the same.
    assert (claims.principal.name, claims.principal.uid, claims.scope) == ("alice", 4001, "submit")


@given(
    st.text(max_size=60) | damaged_texts(["ipv4:127.0.0.1:5", "ipv6:%5B::1%5D:5", "unix:", "ipv4:10.0.0.1:5"])
)
def test_only_loopback_and_sockets_are_this_host(peer: str) -> None:
    assert from_this_host(peer) in (True, False)


LOCAL = LocalPeer("test", "controller", "c1", "127.0.0.1:1", "b1", ("x", "y"), "ctl", 3)
PEER = LocalPeer("test", "agent", "a1", "127.0.0.1:2", "b2", ("y",), "ctl", 2)


OF_LOCAL = SITE.credentials("controller", "c1")
OF_PEER = SITE.credentials("agent", "a1")


def first_frames() -> list[bytes]:
    return [Handshake(PEER, OF_PEER).open() for _ in range(3)]


FRAMES = first_frames()


@given(damaged(FRAMES) | st.binary(max_size=80))
def test_first_frames(frame: bytes) -> None:
    handshake = Handshake(LOCAL, OF_LOCAL)
    info = readable(lambda: handshake.on_open(frame), LinkRefused)
    if info is not None:
        # It is not proven yet: what it says fits its membership, and the confirmation would not.
        assert (info.cluster, info.process, info.role) == ("test", "a1", "agent")
    for other in ("hello_reply", "bye"):
        with pytest.raises(LinkRefused):
            only_item(frame, other)


@given(damaged(FRAMES) | st.binary(max_size=80))
def test_confirmations(frame: bytes) -> None:
    handshake = Handshake(LOCAL, OF_LOCAL)
    handshake.on_open(FRAMES[0])
    handshake.answer()
    with pytest.raises(LinkRefused):
        handshake.on_confirmation(frame)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.text(max_size=20))
def test_a_hello_of_any_numbers_is_judged(epoch: int, protocol: int, text: str) -> None:
    hello = link_pb2.Hello(
        cluster="test", epoch=epoch, protocol_max=protocol, process=text, proof_key=protocol
    )
    with pytest.raises(LinkRefused):
        examine(hello, LOCAL, OF_LOCAL)


@given(st.text(max_size=60) | damaged_texts(["busy: all links are in use, come back in 1.500 s"]))
def test_refusals_are_texts_of_any_kind(refusal: str) -> None:
    after_s = busy_after_s(refusal)
    assert after_s is None or after_s >= 0


@given(st.text(max_size=40) | damaged_texts(["host:7400", "[::1]:0", "10.0.0.1:65535"]))
@example("h:" + "9" * 10_000)
@example("h:²")
@example("[:0")
def test_endpoints(endpoint: str) -> None:
    found = readable(lambda: split_endpoint(endpoint), ValueError)
    assert found is None or (found[0] and 0 <= found[1] < 1 << 16)


# ---- envelopes of the relay, the book, the blobs ----

LIST = link_pb2.NodeList(start=[5, 1], length=[2, 3])
TREE = [
    link_pb2.Broadcast(
        id=9, nodes=LIST, width=4, deadline_us=10**6, kind="end", command=SEALED, predicted=LIST
    ),
    link_pb2.BroadcastAck(id=9, nodes=LIST, refused="no"),
    link_pb2.BroadcastReply(
        id=9,
        final=True,
        heads=LIST,
        outcomes=[link_pb2.Outcome(nodes=LIST, status="failed", text="no", payload=b"p", code=3)],
        trace=link_pb2.Trace(spans=[link_pb2.Span(parent=-1, child=5, hop=1, nodes=2)], omitted=1),
    ),
]
READERS: dict[type[Message], Callable[[Any], Any]] = {
    link_pb2.Broadcast: read_broadcast,
    link_pb2.BroadcastAck: read_ack,
    link_pb2.BroadcastReply: read_reply,
}


@pytest.mark.parametrize("message", TREE, ids=lambda message: type(message).__name__)
@given(data=st.data())
def test_envelopes(message: Message, data: st.DataObject) -> None:
    kind = type(message)
    raw = data.draw(damaged([message.SerializeToString()]))
    parsed = readable(lambda: kind.FromString(raw), DecodeError)
    if parsed is not None:
        readable(lambda: READERS[kind](parsed), EnvelopeError)


BIG = 2**32 - 1


@pytest.mark.parametrize(
    "lists", [([0], [BIG]), ([0] * 9, [BIG] * 9), ([1], []), ([1], [0]), ([0] * 1_001, [1_000] * 1_001)]
)
def test_a_short_envelope_names_no_more_nodes_than_a_cluster_has(lists: tuple[list[int], list[int]]) -> None:
    """Goal: twelve bytes do not become four billion nodes anywhere behind. Method: each reader refuses them."""
    nodes = link_pb2.NodeList(start=lists[0], length=lists[1])
    outcome = link_pb2.Outcome(nodes=nodes, status="ok")
    for read in (
        lambda: read_broadcast(link_pb2.Broadcast(nodes=nodes)),
        lambda: read_broadcast(link_pb2.Broadcast(nodes=LIST, predicted=nodes)),
        lambda: read_broadcast(link_pb2.Broadcast(nodes=LIST, missing=nodes)),
        lambda: read_ack(link_pb2.BroadcastAck(nodes=nodes)),
        lambda: read_reply(link_pb2.BroadcastReply(heads=nodes)),
        lambda: read_reply(link_pb2.BroadcastReply(heads=LIST, outcomes=[outcome])),
    ):
        with pytest.raises(EnvelopeError):
            read()


@given(st.lists(st.integers(0, BIG), max_size=6), st.lists(st.integers(0, BIG), max_size=6))
def test_node_lists(starts: list[int], lengths: list[int]) -> None:
    nodes = readable(lambda: nodelist.decode(starts, lengths, 10_000), ValueError)
    if nodes is not None:
        assert nodelist.decode(*nodelist.encode(nodes)) == nodes


@given(
    st.lists(
        st.sampled_from(TREE).flatmap(
            lambda m: damaged([m.SerializeToString()]).map(lambda raw: (type(m), raw))
        ),
        max_size=8,
    )
)
def test_a_relay_survives_what_its_envelopes_may_say(messages: list[tuple[type[Message], bytes]]) -> None:
    """Goal: no message that can be read breaks the state machine behind. Method: damaged ones into a live relay."""
    relay = Relay([5, 6])
    now_us = 1_000
    began_s = time.process_time()
    relay.on_broadcast("up", Broadcast(9, (5, 1, 2, 3), 4, 10**6, "end", b"c", 0), now_us)
    for kind, raw in messages:
        parsed = readable(lambda kind=kind, raw=raw: kind.FromString(raw), DecodeError)
        value = (
            readable(lambda parsed=parsed, kind=kind: READERS[kind](parsed), EnvelopeError)
            if parsed
            else None
        )
        if value is None:
            continue
        on = {
            link_pb2.Broadcast: relay.on_broadcast,
            link_pb2.BroadcastAck: relay.on_ack,
            link_pb2.BroadcastReply: relay.on_reply,
        }[kind]
        now_us += 10
        on("peer", value, now_us)
    relay.on_timer(now_us + 10**7)
    assert time.process_time() - began_s < 5


BOOK = link_pb2.Book(
    revision=7, entries=[link_pb2.BookEntry(number=1, name="cn1", endpoint="h:1", incarnation=2)]
)


@given(st.lists(damaged([BOOK.SerializeToString()]), max_size=6))
def test_a_book_only_goes_forward(raws: list[bytes]) -> None:
    book = EndpointDirectory()
    for raw in raws:
        parsed = readable(lambda raw=raw: link_pb2.Book.FromString(raw), DecodeError)
        if parsed is not None:
            before = book.revision
            book.apply(parsed)
            assert book.revision >= before
    for item in book.since(0):
        assert link_pb2.Item.FromString(item.SerializeToString()) == item


ITEMS = [
    link_pb2.Item(broadcast=TREE[0]),
    link_pb2.Item(report=link_pb2.Report(process="p", seq=1, body=b"b")),
    link_pb2.Item(door_call=link_pb2.DoorCall(process="p", call=1, method="Ping", uid=7)),
]


@given(st.lists(st.sampled_from(ITEMS), max_size=5), st.text(max_size=20), st.integers(0, 2**64 - 1))
def test_frames_put_together_by_hand_are_frames(
    items: list[link_pb2.Item], trace: str, revision: int
) -> None:
    raw = codec.encode_frame([item.SerializeToString() for item in items], trace, revision)
    assert link_pb2.Frame.FromString(raw) == link_pb2.Frame(
        items=items, traceparent=trace, book_revision=revision
    )


@given(damaged([codec.encode_frame([item.SerializeToString() for item in ITEMS], "t", 5)]))
def test_frames(raw: bytes) -> None:
    frame = readable(lambda: link_pb2.Frame.FromString(raw), DecodeError)
    for item in frame.items if frame is not None else ():
        assert item.WhichOneof("kind") is not None or codec.unknown_field(item) >= 0


@given(st.integers(0, 2**64 - 1))
def test_varints(number: int) -> None:
    assert link_pb2.Credit.FromString(b"\x08" + codec.varint(number)).bytes == number


# ---- the door's messages ----


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@given(raw=st.binary(max_size=80))
def test_requests_and_replies(method: Any, raw: bytes) -> None:
    for kind in (method.request, method.reply):
        message = readable(lambda kind=kind: kind.FromString(raw), DecodeError)
        if message is not None:
            assert kind.FromString(message.SerializeToString()) == message


JOB = pb.JobRequest(
    name="a", script=b"#!/bin/sh\n", time_limit_s=5, umask=18, arguments=["x", "ü"], work_dir="/w"
)


@given(damaged([JOB.SerializeToString()]) | st.binary(max_size=80))
@example(b"\x9a\x01\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
@example(struct.pack("B", 0x1A) * 3_000)
def test_jobs_without_the_protobuf_runtime(raw: bytes) -> None:
    values = readable(lambda: decode(raw, JOB_REQUEST), WireError)
    if values is not None:
        assert decode(encode(values, JOB_REQUEST), JOB_REQUEST) == values
    readable(lambda: decode(raw, SUBMIT_REPLY), WireError)
