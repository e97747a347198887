"""The hand-made messages are the generated ones, field by field."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st

from escli import wire, wire_tables
from escli.api import SUBMIT
from eslurm.api.methods import BY_NAME
from eslurm.v1 import controller_pb2 as pb

TABLES = {
    "SubmitRequest": wire_tables.SUBMIT_REQUEST,
    "PackRequest": wire_tables.PACK_REQUEST,
    "Arrival": wire_tables.ARRIVAL,
    "GuestOf": wire_tables.GUEST_OF,
    "SubmitReply": wire_tables.SUBMIT_REPLY,
    "JobRequest": wire_tables.JOB_REQUEST,
    "ResourceRequest": wire_tables.RESOURCE_REQUEST,
    "Dependency": wire_tables.DEPENDENCY,
    "GatewayRequest": wire_tables.GATEWAY_REQUEST,
    "TaskRange": wire_tables.TASK_RANGE,
    "ResourceAmount": wire_tables.RESOURCE_AMOUNT,
    "Chunk": wire_tables.CHUNK,
}
KINDS = {
    FieldDescriptor.TYPE_UINT32: "int",
    FieldDescriptor.TYPE_UINT64: "int",
    FieldDescriptor.TYPE_INT32: "int",
    FieldDescriptor.TYPE_INT64: "int",
    FieldDescriptor.TYPE_SINT32: "sint",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_STRING: "text",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_MESSAGE: "message",
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_follow_the_proto_file(name: str) -> None:
    fields = pb.DESCRIPTOR.message_types_by_name[name].fields_by_name
    for field_name, (number, kind, inner) in TABLES[name].items():
        field = fields[field_name]
        presence = "?" if field.has_presence and field.message_type is None else ""
        assert number == field.number
        assert kind == KINDS[field.type] + ("*" if field.is_repeated else presence)
        assert inner is (TABLES[field.message_type.name] if field.message_type else None)


def test_method_numbers_follow_the_method_table() -> None:
    method = BY_NAME[SUBMIT.name]
    assert (SUBMIT.number, SUBMIT.mutating) == (method.number, method.mutating)


U32 = st.integers(0, 2**32 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
RESOURCES = st.fixed_dictionaries(
    {
        "tasks": U32,
        "memory_per_node_mib": st.integers(0, 2**64 - 1),
        "exclusive": st.booleans(),
        "include": st.lists(TEXT),
        "per_node": st.lists(st.fixed_dictionaries({"name": TEXT, "items": U32}), max_size=2),
        "chunks": st.lists(st.fixed_dictionaries({"count": U32, "constraint": TEXT}), max_size=2),
    }
)
JOBS = st.fixed_dictionaries(
    {
        "name": TEXT,
        "components": st.lists(RESOURCES, max_size=2),
        "script": st.binary(max_size=300),
        "time_limit_s": st.none() | U32,
        "begin_us": st.integers(-(2**63), 2**63 - 1),
        "nice": st.integers(-(2**31), 2**31 - 1),
        "priority": st.none() | st.integers(-(2**63), 2**63 - 1),
        "requeue": st.none() | st.booleans(),
        "dependencies": st.lists(st.fixed_dictionaries({"kind": TEXT, "job_id": U32}), max_size=2),
        "arguments": st.lists(TEXT, max_size=3),
    }
)


@given(JOBS, st.booleans())
def test_requests_are_what_protobuf_reads(job: dict[str, Any], test_only: bool) -> None:
    data = wire.encode({"jobs": [job], "test_only": test_only}, wire_tables.SUBMIT_REQUEST)
    expected = pb.SubmitRequest(jobs=[pb.JobRequest(**job)], test_only=test_only)
    assert pb.SubmitRequest.FromString(data) == expected


@given(st.lists(st.tuples(U32, st.lists(U32, max_size=5)), max_size=3))
def test_packs_are_what_protobuf_reads(packs: list[tuple[int, list[int]]]) -> None:
    fields = [{"first": first, "delays_s": delays} for first, delays in packs]
    data = wire.encode({"packs": fields}, wire_tables.SUBMIT_REQUEST)
    expected = pb.SubmitRequest(
        packs=[pb.PackRequest(first=first, delays_s=delays) for first, delays in packs]
    )
    assert pb.SubmitRequest.FromString(data) == expected


@given(st.lists(U32, max_size=5), st.integers(0, 2**63 - 1), TEXT, st.lists(TEXT, max_size=2))
def test_replies_are_what_protobuf_wrote(
    ids: list[int], revision: int, text: str, warnings: list[str]
) -> None:
    reply = pb.SubmitReply(job_ids=ids, revision=revision, test_answer=text, warnings=warnings)
    found = wire.decode(reply.SerializeToString(), wire_tables.SUBMIT_REPLY)
    assert found == {"job_ids": ids, "revision": revision, "warnings": warnings}


@given(st.integers(-(2**31), 2**31 - 1))
def test_zigzag_numbers_come_back(nice: int) -> None:
    data = pb.JobRequest(nice=nice).SerializeToString()
    assert wire.decode(data, {"nice": (27, "sint", None)}) == {"nice": nice}


def test_unknown_fields_are_skipped() -> None:
    data = pb.JobInfo(job_id=7, name="x", exit_code=-1, user="u").SerializeToString()
    assert wire.decode(data, {"job_id": (1, "int", None)}) == {"job_id": 7}


@pytest.mark.parametrize("data", [b"\x08", b"\x0a\x05ab", b"\x0b", b"\xff" * 11, b"\x08\x01\x0a\x02\x80\x80"])
def test_damaged_messages_are_refused(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode(data, wire_tables.SUBMIT_REPLY)
