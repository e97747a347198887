"""The shape of a request, from its bytes: the number of messages, before any of them is made.

An empty message takes two bytes on the wire and a hundred in memory: a request of some megabytes could take gigabytes to
decode. Invariant: nothing here allocates in proportion to the request, and a refusal costs a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from eslurm.core.model.request_limits import REFERENCES_MAX
from eslurm.ports.api import ApiError, Status
from eslurm.v1 import controller_pb2 as pb

SMALL_BYTES = 64 * 1024
"""Below it what a request decodes to is bounded well enough by its size."""
MESSAGES_MAX = 2 * REFERENCES_MAX
FIELDS_MAX = 40_000
REST_BYTES_MAX = 256 * 1024
"""Bytes of a submission besides its jobs: the packs that they form."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_JOBS_FIELD = 1
_JOB: Any = pb.JobRequest.DESCRIPTOR


class _Count:
    """The remaining budget of one request."""

    __slots__ = ("fields", "messages")

    def __init__(self) -> None:
        self.fields = FIELDS_MAX
        self.messages = MESSAGES_MAX


def check_shape(name: str, payload: bytes, descriptor: Descriptor) -> None:
    """Raise `ApiError` when a large request consists of too many parts, `DecodeError` when it is no message."""
    if len(payload) > SMALL_BYTES:
        _check(name, payload, 0, len(payload), descriptor, _Count())


def check_lists(name: str, request: Message) -> None:
    """Raise `ApiError` when one of the request's own lists is too long."""
    for field in _lists(request.DESCRIPTOR):
        count = len(getattr(request, field))
        if count > REFERENCES_MAX:
            raise ApiError(
                Status.INVALID_ARGUMENT,
                f"{name}: {field} has {count} entries, at most {REFERENCES_MAX} go in one call: make several",
            )


class Submission:
    """A `SubmitRequest` whose jobs are decoded one at a time: all at once they may take a hundred times their bytes.

    `arrival`: the one job is another cell's. `guest_of`: it holds nodes for another cell's job.
    """

    def __init__(
        self,
        jobs: Jobs,
        packs: Sequence[pb.PackRequest] = (),
        arrival: pb.Arrival | None = None,
        guest_of: pb.GuestOf | None = None,
        *,
        test_only: bool,
    ) -> None:
        self.jobs = jobs
        self.packs = packs
        self.arrival = arrival
        self.guest_of = guest_of
        self.test_only = test_only

    @classmethod
    def FromString(cls, payload: bytes) -> Submission:
        """Raises `DecodeError`, or `ApiError` for too many jobs or packs."""
        entries: list[tuple[int, int]] = []
        rest: list[bytes] = []
        rest_bytes = 0
        at, size = 0, len(payload)
        while at < size:
            begin = at
            number, kind, start, at = _field(payload, begin, size)
            if number != _JOBS_FIELD or kind != _BYTES:
                rest_bytes += at - begin
                if len(rest) >= REFERENCES_MAX or rest_bytes > REST_BYTES_MAX:
                    raise ApiError(
                        Status.INVALID_ARGUMENT,
                        "Submit: too much besides its jobs: submit packs in several calls",
                    )
                rest.append(payload[begin:at])
                continue
            if len(entries) >= REFERENCES_MAX:
                raise ApiError(
                    Status.INVALID_ARGUMENT,
                    f"Submit: more than {REFERENCES_MAX} jobs in one call: give 1 to {REFERENCES_MAX}",
                )
            entries.append((start, at))
        if not rest:
            return cls(Jobs(payload, entries), test_only=False)
        other = pb.SubmitRequest.FromString(b"".join(rest))
        arrival = other.arrival if other.HasField("arrival") else None
        guest_of = other.guest_of if other.HasField("guest_of") else None
        return cls(Jobs(payload, entries), other.packs, arrival, guest_of, test_only=other.test_only)


class Jobs:
    """The jobs of a submission. Iterating may raise `ApiError`. `first` is the first job, once it has been decoded."""

    def __init__(self, payload: bytes, entries: list[tuple[int, int]]) -> None:
        self.first: pb.JobRequest | None = None
        self._payload = payload
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[pb.JobRequest]:
        for start, end in self._entries:
            entry = self._payload[start:end]
            try:
                check_shape("Submit", entry, _JOB)
                job = pb.JobRequest.FromString(entry)
            except DecodeError:
                raise ApiError(Status.INVALID_ARGUMENT, "Submit: a job cannot be decoded") from None
            self.first = self.first or job
            yield job


@lru_cache(maxsize=256)
def _lists(descriptor: Descriptor) -> tuple[str, ...]:
    return tuple(field.name for field in descriptor.fields if field.is_repeated)


@lru_cache(maxsize=256)
def _messages(descriptor: Descriptor) -> dict[int, Any]:
    return {field.number: field.message_type for field in descriptor.fields if field.message_type is not None}


def _check(name: str, data: bytes, at: int, end: int, descriptor: Descriptor, left: _Count) -> None:
    messages = _messages(descriptor)
    while at < end:
        number, kind, start, at = _field(data, at, end)
        left.fields -= 1
        inner = messages.get(number) if kind == _BYTES else None
        left.messages -= inner is not None
        if left.fields < 0 or left.messages < 0:
            raise ApiError(
                Status.INVALID_ARGUMENT,
                f"{name}: the request has more than {MESSAGES_MAX} parts: ask for less, or make several calls",
            )
        if inner is not None and at > start:
            _check(name, data, start, at, inner, left)


def _field(data: bytes, at: int, end: int) -> tuple[int, int, int, int]:
    """(number, wire type, begin of its value, its end) of the field at `at`. Raises `DecodeError`."""
    try:
        tag = data[at]
        at += 1
        if tag >= 0x80:
            tag, at = _varint(data, at - 1)
        kind = tag & 7
        start = at
        if kind == _BYTES:
            length = data[at]
            start = at + 1
            if length >= 0x80:
                length, start = _varint(data, at)
            at = start + length
        elif kind == _VARINT:
            _number, at = _varint(data, at)
        elif kind == _FIXED64:
            at += 8
        elif kind == _FIXED32:
            at += 4
        else:
            raise DecodeError(f"wire type {kind} is not in use")
    except IndexError:
        raise DecodeError("a field goes beyond the end") from None
    if at > end:
        raise DecodeError("a field goes beyond the end")
    return tag >> 3, kind, start, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Raises `IndexError` beyond the end."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise DecodeError("a number is too long")
