"""The few messages of the hottest commands, encoded and decoded without the protobuf runtime.

Importing that runtime takes 27 ms, three times what a bare Python needs: more than all the rest of `essubmit`.
Each table repeats a part of proto/eslurm/v1/controller.proto; a test holds every row against the generated code.
Fields that a table does not have are skipped, as in any reader of this format.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, TypeAlias

    Table: TypeAlias = Mapping[str, "tuple[int, str, Table | None]"]

# Kinds: int, sint (zigzag) and bool are varints; "?" after a kind means that presence counts, "*" that it is repeated.
RESOURCE_AMOUNT: Table = {
    "name": (1, "text", None),
    "items": (2, "int", None),
}
CHUNK: Table = {
    "count": (1, "int", None),
    "cores": (2, "int", None),
    "memory_mib": (3, "int", None),
    "resources": (4, "message*", RESOURCE_AMOUNT),
    "constraint": (5, "text", None),
}
RESOURCE_REQUEST: Table = {
    "tasks": (1, "int", None),
    "cpus_per_task": (2, "int", None),
    "nodes_min": (3, "int", None),
    "nodes_max": (4, "int", None),
    "tasks_per_node": (5, "int", None),
    "memory_per_node_mib": (6, "int", None),
    "memory_per_cpu_mib": (7, "int", None),
    "exclusive": (8, "bool", None),
    "include": (9, "text*", None),
    "exclude": (10, "text*", None),
    "per_node": (11, "message*", RESOURCE_AMOUNT),
    "per_task": (12, "message*", RESOURCE_AMOUNT),
    "wide": (13, "message*", RESOURCE_AMOUNT),
    "constraint": (14, "text", None),
    "chunks": (15, "message*", CHUNK),
    "place": (16, "text", None),
}
DEPENDENCY: Table = {
    "kind": (1, "text", None),
    "job_id": (2, "int", None),
    "delay_s": (3, "int", None),
}
TASK_RANGE: Table = {
    "first": (1, "int", None),
    "last": (2, "int", None),
    "step": (3, "int", None),
}
JOB_REQUEST: Table = {
    "name": (1, "text", None),
    "partition": (2, "text", None),
    "components": (3, "message*", RESOURCE_REQUEST),
    "script": (4, "bytes", None),
    "environment": (6, "bytes", None),
    "work_dir": (8, "text", None),
    "time_limit_s": (9, "int?", None),
    "output": (10, "text", None),
    "error": (11, "text", None),
    "input": (12, "text", None),
    "truncate_output": (13, "bool", None),
    "begin_us": (14, "int", None),
    "priority": (15, "int?", None),
    "requeue": (16, "bool?", None),
    "held": (17, "bool", None),
    "dependencies": (18, "message*", DEPENDENCY),
    "array": (19, "message*", TASK_RANGE),
    "array_limit": (20, "int", None),
    "arguments": (21, "text*", None),
    "account": (22, "text", None),
    "comment": (23, "text", None),
    "umask": (24, "int", None),
    "qos": (25, "text", None),
    "reservation": (26, "text", None),
    "nice": (27, "sint", None),
    "start_at_us": (28, "int", None),
    "deadline_us": (29, "int", None),
    "warn_signal": (30, "int", None),
    "warn_before_s": (31, "int", None),
    "warn_batch_only": (32, "bool", None),
    "warn_script": (33, "text", None),
    "traceparent": (34, "text", None),
}
SUBMIT_REQUEST: Table = {
    "jobs": (1, "message*", JOB_REQUEST),
    "test_only": (2, "bool", None),
}
SUBMIT_REPLY: Table = {
    "job_ids": (1, "int*", None),
    "revision": (2, "int", None),
}

_NUMBERS = ("int", "sint", "bool")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIGN = 1 << 63
_WRAP = 1 << 64


class WireError(ValueError):
    """The bytes are no message of this format."""


def encode(values: Mapping[str, Any], table: Table) -> bytes:
    """A message with these fields. Zero, empty and None are left out; a "?" field only when it is None."""
    out = bytearray()
    for name, value in values.items():
        number, kind, inner = table[name]
        if kind.endswith("*"):
            for one in value:
                _put(out, number, kind[:-1], one, inner)
        elif value or (value is not None and kind.endswith("?")):
            _put(out, number, kind.rstrip("?"), value, inner)
    return bytes(out)


def _put(out: bytearray, number: int, kind: str, value: Any, inner: Table | None) -> None:
    if kind in _NUMBERS:
        if kind == "sint":
            value = value << 1 ^ value >> 63
        _put_varint(out, number << 3 | _VARINT)
        _put_varint(out, int(value) % _WRAP)
        return
    if inner is not None:
        body = encode(value, inner)
    elif kind == "text":
        body = value.encode("utf-8", "strict")
    else:
        body = value
    _put_varint(out, number << 3 | _BYTES)
    _put_varint(out, len(body))
    out += body


def _put_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def decode(data: bytes, table: Table) -> dict[str, Any]:
    """All fields of the table, absent ones with the type's zero ("?": None). Raises WireError."""
    values: dict[str, Any] = {name: _zero(kind) for name, (_, kind, _) in table.items()}
    names = {number: name for name, (number, _, _) in table.items()}
    for number, wire_type, value in _fields(data):
        name = names.get(number)
        if name is None:
            continue
        _, kind, inner = table[name]
        if kind == "int*" and wire_type == _BYTES:
            values[name] += [_signed(one) for one in _packed(value)]
        elif kind.endswith("*"):
            values[name].append(_value(kind[:-1], wire_type, value, inner))
        else:
            values[name] = _value(kind.rstrip("?"), wire_type, value, inner)
    return values


def _zero(kind: str) -> Any:
    if kind.endswith("*"):
        return []
    return {"int": 0, "sint": 0, "bool": False, "text": "", "bytes": b""}.get(kind)


def _value(kind: str, wire_type: int, value: Any, inner: Table | None) -> Any:
    if (wire_type == _VARINT) != (kind in _NUMBERS):
        raise WireError("a field has the wrong type")
    if kind == "int":
        return _signed(value)
    if kind == "sint":
        return value >> 1 ^ -(value & 1)
    if kind == "bool":
        return bool(value)
    if inner is not None:
        return decode(value, inner)
    return value.decode("utf-8", "replace") if kind == "text" else value


def _signed(value: int) -> int:
    return value - _WRAP if value >= _SIGN else value


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire_type = tag & 7
        if wire_type == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, wire_type, value
            continue
        if wire_type == _BYTES:
            length, at = _varint(data, at)
        elif wire_type in (_FIXED64, _FIXED32):
            length = 8 if wire_type == _FIXED64 else 4
        else:
            raise WireError("a field has an unknown wire type")
        if at + length > len(data):
            raise WireError("the message is cut short")
        yield tag >> 3, _BYTES, data[at : at + length]
        at += length


def _packed(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value % _WRAP, at
        shift += 7
    raise WireError("a number is cut short or too long")
