"""The few messages of the hottest commands, encoded and decoded without the protobuf runtime.

Importing that runtime takes 27 ms, three times what a bare Python needs: more than all the rest of `essubmit`.
The tables of their fields are generated (`escli.wire_tables`). Fields that a table does not have are skipped, as in any
reader of this format.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from escli.wire_tables import Table

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
