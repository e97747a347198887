"""Between protobuf envelopes and the core's values.

Invariant: decoding an encoded value gives the same value. Everything that
comes from the network and cannot be decoded raises `CodecError`, nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec
from google.protobuf.unknown_fields import UnknownFieldSet

from eslurm.core.model import earlier_launch
from eslurm.core.model.protocol import Command, Registration, RegistrationReply, Report, ReportAck, ReportBody
from eslurm.v1 import link_pb2

_encoder = msgspec.msgpack.Encoder()
_report_decoder: msgspec.msgpack.Decoder[ReportBody] = msgspec.msgpack.Decoder(ReportBody)
_registrations_decoder = msgspec.msgpack.Decoder(tuple[RegistrationReply, ...])

# msgspec lets the error of a text that is no UTF-8 and that of too deep a nesting through as they are.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class CodecError(Exception):
    """A peer's bytes are invalid."""


def encode_command(command: Command) -> bytes:
    """The body that is signed."""
    return _encoder.encode(command)


def decode_command(body: bytes) -> Command:
    """The command in a verified body. Raises `CodecError`."""
    try:
        return earlier_launch.decode_command(body)
    except _UNREADABLE as error:
        raise CodecError(f"command: {error}") from None


def report_to_pb(report: Report) -> link_pb2.Report:
    """A spooled report for the wire."""
    return link_pb2.Report(process=report.process, seq=report.seq, body=_encoder.encode(report.body))


def report_from_pb(report: link_pb2.Report) -> Report:
    """Raises `CodecError`."""
    try:
        body = _report_decoder.decode(report.body)
    except _UNREADABLE as error:
        raise CodecError(f"report {report.seq} of {report.process}: {error}") from None
    return Report(report.process, report.seq, _shared(body) if isinstance(body, Registration) else body)


def _shared(registration: Registration) -> Registration:
    """The report with shared strings for values that thousands of nodes of a process or host have in common: the
    controller keeps it.
    """
    return msgspec.structs.replace(
        registration,
        name=sys.intern(registration.name),
        boot_id=sys.intern(registration.boot_id),
        session=sys.intern(registration.session),
        endpoint=sys.intern(registration.endpoint),
    )


def report_ack_to_pb(ack: ReportAck) -> link_pb2.ReportAck:
    """The acknowledgement of committed reports."""
    registrations = _encoder.encode(ack.registrations) if ack.registrations else b""
    return link_pb2.ReportAck(
        process=ack.process, seqs=ack.seqs, registrations=registrations, revision=ack.revision
    )


def report_ack_from_pb(ack: link_pb2.ReportAck) -> ReportAck:
    """Raises `CodecError`."""
    try:
        registrations = _registrations_decoder.decode(ack.registrations) if ack.registrations else ()
    except _UNREADABLE as error:
        raise CodecError(f"acknowledgement for {ack.process}: {error}") from None
    return ReportAck(ack.process, tuple(ack.seqs), registrations, ack.revision)


def varint(number: int) -> bytes:
    """A number as protobuf writes it, for messages put together from encoded parts."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_VARINTS = tuple(varint(number) for number in range(1 << 14))
_TRACEPARENT_TAG = b"\x0a"
_BOOK_REVISION_TAG = b"\x10"
_ITEM_TAG = b"\x1a"


def encode_frame(items: Sequence[bytes], traceparent: str = "", book_revision: int = 0) -> bytes:
    """A `Frame` around items that are encoded already.

    Putting the fields together by hand saves a copy of each message and lets one encoded item go to many links.
    """
    parts: list[bytes] = []
    if traceparent:
        text = traceparent.encode()
        parts += (_TRACEPARENT_TAG, varint(len(text)), text)
    if book_revision:
        parts += (_BOOK_REVISION_TAG, varint(book_revision))
    for item in items:
        size = len(item)
        parts += (_ITEM_TAG, _VARINTS[size] if size < 1 << 14 else varint(size), item)
    return b"".join(parts)


def unknown_field(item: link_pb2.Item) -> int:
    """The number of the first field of an item whose kind this version does not know; 0 for an empty item."""
    fields = UnknownFieldSet(item)
    return int(fields[0].field_number) if len(fields) else 0
