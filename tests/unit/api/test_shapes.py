"""Requests that are small on the wire and large in memory are refused before they are decoded."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from eslurm.api.authoriser import Authoriser
from eslurm.api.methods import BY_NAME, METHODS, SUBMIT
from eslurm.api.shapes import Submission, check_lists, check_shape
from eslurm.core.control.rights import Level
from eslurm.ports.api import ApiError, Caller, Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.api import ALICE, REQUEST_ID, Service
from tests.support.loops import run

CALLER = Caller(ALICE, REQUEST_ID, False, 10_000_000, "socket")


def asked(name: str, payload: bytes, level: Level = Level.ADMINISTRATOR) -> tuple[Status, str, list[str]]:
    service = Service()

    async def scenario() -> Any:
        return await Authoriser(service, lambda _principal: level).answer(BY_NAME[name], payload, CALLER)

    answered = run(scenario())
    return answered.status, answered.text, [name for name, _ in service.calls]


def test_a_million_references_are_refused_at_once() -> None:
    """Goal: a Cancel of a million ids costs nothing. Method: the CPU it takes, against that of decoding it."""
    payload = b"\x0a\x02\x08\x01" * 250_000
    began_s = time.thread_time()
    status, text, served = asked("Cancel", payload, Level.USER)
    took_s = time.thread_time() - began_s
    assert (status, served) == (Status.INVALID_ARGUMENT, []) and "more than 20000 parts" in text
    assert took_s < 0.1, took_s
    status, text, served = asked("Cancel", payload * 4, Level.USER)
    assert (status, served) == (Status.INVALID_ARGUMENT, [])
    assert text.startswith("a request of 4000000 bytes; Cancel takes at most 1048576")


@pytest.mark.parametrize(
    ("name", "field"),
    [
        (method.name, field.name)
        for method in METHODS
        for field in method.request.DESCRIPTOR.fields
        if field.is_repeated and method is not SUBMIT
    ],
)
def test_every_list_of_every_call_is_bounded(name: str, field: str) -> None:
    request = BY_NAME[name].request()
    descriptor = request.DESCRIPTOR.fields_by_name[field]
    one: Any = descriptor.message_type._concrete_class() if descriptor.message_type is not None else None
    for _ in range(10_001):
        getattr(request, field).append(one if one is not None else (1 if descriptor.type != 9 else "n"))
    status, text, served = asked(name, request.SerializeToString())
    assert (status, served) == (Status.INVALID_ARGUMENT, [])
    assert text == f"{name}: {field} has 10001 entries, at most 10000 go in one call: make several"
    del getattr(request, field)[-1]
    assert asked(name, request.SerializeToString())[2] == [name]


def test_what_hides_in_a_job_is_counted_too() -> None:
    """Goal: empty messages within messages are no way around. Method: a job of many empty components, chunks, ranges."""
    chunks = b"\x1a" + _length(400_000) + b"\x7a\x00" * 200_000
    for inner in (b"\x1a\x00" * 200_000, chunks, b"\x9a\x01\x00" * 200_000):
        submission = Submission.FromString(b"\x0a" + _length(len(inner)) + inner)
        with pytest.raises(ApiError, match="more than 20000 parts"):
            list(submission.jobs)
    with pytest.raises(ApiError, match="more than 10000 jobs in one call"):
        Submission.FromString(b"\x0a\x00" * 10_001)


def test_a_submission_reads_as_protobuf_does() -> None:
    jobs = [pb.JobRequest(name=f"job{number}", script=b"#" * number) for number in range(300)]
    packs = [pb.PackRequest(first=3, delays_s=[0, 60])]
    whole = pb.SubmitRequest(jobs=jobs, test_only=True, packs=packs)
    read = Submission.FromString(whole.SerializeToString() + b"\xa2\x38\x02hi")
    assert len(read.jobs) == 300 and list(read.jobs) == jobs and read.test_only
    assert list(read.packs) == packs
    large = pb.JobRequest(script=b"#" * 4_000_000, arguments=["x"] * 10_000)
    assert list(Submission.FromString(pb.SubmitRequest(jobs=[large]).SerializeToString()).jobs) == [large]


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    """Goal: it reads what protobuf reads, or refuses (groups, which proto3 has not), and never fails otherwise."""
    with contextlib.suppress(DecodeError, ApiError):
        jobs = list(Submission.FromString(data).jobs)
        with contextlib.suppress(DecodeError):
            assert jobs == list(pb.SubmitRequest.FromString(data).jobs)


@given(st.binary(max_size=60).map(lambda data: data * 2_000))
def test_no_large_request_breaks_the_count(data: bytes) -> None:
    for name in ("Cancel", "UpdateJob", "Accounting"):
        method = BY_NAME[name]
        with contextlib.suppress(DecodeError, ApiError):
            check_shape(name, data, method.request.DESCRIPTOR)
            check_lists(name, method.request.FromString(data))


def test_what_is_no_job_of_a_submission_is_bounded_too() -> None:
    """Attack: a pack of millions of delays, or ten thousands of packs: each takes many times its bytes in memory."""
    large = pb.SubmitRequest(packs=[pb.PackRequest(delays_s=[1] * 300_000)])
    for payload in (large.SerializeToString(), b"\x1a\x00" * 10_001):
        with pytest.raises(ApiError, match="too much besides its jobs"):
            Submission.FromString(payload)


def _length(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
