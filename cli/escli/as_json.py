"""Replies as JSON: every field of the message under its own name, so the .proto file is the reference."""

from __future__ import annotations

import base64
import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from google.protobuf.message import Message


def fields_of(message: Message) -> dict[str, Any]:
    """All fields; an optional one that is not set is None, bytes become base64."""
    values: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            values[field.name] = [_plain(one) for one in value]
        elif field.has_presence and not message.HasField(field.name):
            values[field.name] = None
        else:
            values[field.name] = _plain(value)
    return values


def _plain(value: Any) -> Any:
    if hasattr(value, "DESCRIPTOR"):
        return fields_of(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value


def to_json(message: Message) -> str:
    """One JSON object, indented."""
    return json.dumps(fields_of(message), indent=1)
