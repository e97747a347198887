"""Envelopes and values: both ways without loss, and garbage with one kind of error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.model.protocol import (
    Command,
    End,
    HeldAttempt,
    NodeGone,
    NodeGroup,
    Prepare,
    Registration,
    RegistrationReply,
    Report,
    ReportAck,
)
from eslurm.links import codec
from eslurm.v1 import link_pb2
from tests.kits.launches import launch_of


def test_commands_come_back() -> None:
    launch = launch_of(groups=(NodeGroup(((3, 4),), (2, 100)),), node_names="n[3-6]", script_hash=b"s" * 32)
    for body in (Prepare(launch, start=True), End(7, 2, 30.0, "cancelled")):
        command = Command("test", "ctl", 3, 99, 1, ((3, 4),), (1, 1, 1, 1), 10**15, body)
        assert codec.decode_command(codec.encode_command(command)) == command
    for garbage in (b"", b"\xc1", b"\x93\x01\x02\x03"):
        with pytest.raises(codec.CodecError, match="command"):
            codec.decode_command(garbage)


def test_reports_and_acknowledgements_come_back() -> None:
    registration = Registration(
        "n1", "uid", "boot", "session", 3, "127.0.0.1:9", (4, 2000), (HeldAttempt(7, 1, "running"),)
    )
    for body in (registration, NodeGone(3, 1, 7, 2)):
        report = Report("p", 5, body)
        sent = link_pb2.Report.FromString(codec.report_to_pb(report).SerializeToString())
        assert codec.report_from_pb(sent) == report
    for ack in (ReportAck("p", (5, 6)), ReportAck("p", (5,), (RegistrationReply("n1", 3, 1, 3, "ctl"),))):
        sent_ack = link_pb2.ReportAck.FromString(codec.report_ack_to_pb(ack).SerializeToString())
        assert codec.report_ack_from_pb(sent_ack) == ack
    with pytest.raises(codec.CodecError, match="report 5 of p"):
        codec.report_from_pb(link_pb2.Report(process="p", seq=5, body=b"\xc1"))
    with pytest.raises(codec.CodecError, match="acknowledgement for p"):
        codec.report_ack_from_pb(link_pb2.ReportAck(process="p", registrations=b"\xc1"))


@given(
    st.lists(st.binary(max_size=300).map(lambda body: link_pb2.Item(report=link_pb2.Report(body=body)))),
    st.text(alphabet="0123456789abcdef-"),
    st.integers(0, 2**64 - 1),
)
def test_a_frame_put_together_by_hand_is_what_protobuf_reads(
    items: list[link_pb2.Item], trace: str, revision: int
) -> None:
    frame = codec.encode_frame([item.SerializeToString() for item in items], trace, revision)
    assert link_pb2.Frame.FromString(frame) == link_pb2.Frame(
        traceparent=trace, book_revision=revision, items=items
    )


def test_large_items_keep_their_length_in_a_frame() -> None:
    items = [link_pb2.Item(report=link_pb2.Report(body=b"x" * size)) for size in (16_370, 16_390, 300_000)]
    frame = codec.encode_frame([item.SerializeToString() for item in items])
    assert list(link_pb2.Frame.FromString(frame).items) == items


def test_the_field_of_an_unknown_kind_is_found() -> None:
    assert codec.unknown_field(link_pb2.Item.FromString(b"\xa2\x38\x02hi")) == 900
    assert codec.unknown_field(link_pb2.Item()) == 0
