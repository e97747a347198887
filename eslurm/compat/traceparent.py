"""W3C Trace Context: the trace id of a `TRACEPARENT`."""

from __future__ import annotations

TRACE_BYTES = 16
CHARS_MAX = 512
"""Bound of its length; a later version may append fields."""

_LOWER_HEX = frozenset("0123456789abcdef")
_WIDTHS = (2, 2 * TRACE_BYTES, 16, 2)
"""Digits of the version, the trace, the parent and the flags."""


def trace_of(traceparent: str) -> bytes:
    """The trace id; empty for an invalid traceparent, which is ignored by the standard."""
    if not traceparent or len(traceparent) > CHARS_MAX:
        return b""
    parts = traceparent.split("-")
    version, trace, parent, *_ = fields = (*parts, "", "", "")[: len(_WIDTHS)]
    is_formed = all(
        len(field) == width and _LOWER_HEX.issuperset(field)
        for field, width in zip(fields, _WIDTHS, strict=True)
    )
    # Version 00 ends with its flags; ff is no version, and an id of zeros none either.
    if not is_formed or version == "ff" or (version == "00" and len(parts) > len(_WIDTHS)):
        return b""
    return bytes.fromhex(trace) if trace.strip("0") and parent.strip("0") else b""
