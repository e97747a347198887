"""Frames of the Unix socket.

A request is {length, version, flags, method, stream, deadline_ms, request_id} and the encoded message; a reply is
{length, version, status, retry_after, stream} and the encoded message, or the refusal's text when the status is not OK.
`length` counts what follows the header; `retry_after` is in units of 10 ms (0: the refusal is final, or says nothing).
All numbers are big-endian. Commands import this module: struct and os only.
Invariant: the layouts never change without a new version; a reply on stream 0 is about the connection, which then closes.
"""

from __future__ import annotations

import os
import struct

VERSION = 1
FLAG_RETRY = 1
REQUEST_ID_BYTES = 16
NO_REQUEST_ID = bytes(REQUEST_ID_BYTES)
CONNECTION_STREAM = 0
DEADLINE_MS_MAX = (1 << 32) - 1
REQUEST_BYTES_MAX = 64 * 1024 * 1024

REQUEST_HEADER = struct.Struct("!IBBHII16s")
REPLY_HEADER = struct.Struct("!IBBHI")

_RETRY_UNITS_PER_S = 100
_RETRY_UNITS_MAX = (1 << 16) - 1


def checked_request_id(given: bytes | None, *, mutating: bool) -> bytes:
    """The id of a call over all its tries; generated for a call that changes something. Raises `ValueError`."""
    if given is None:
        return os.urandom(REQUEST_ID_BYTES) if mutating else NO_REQUEST_ID
    if len(given) != REQUEST_ID_BYTES:
        raise ValueError(f"a request id has {REQUEST_ID_BYTES} bytes, not {len(given)}")
    return given


def retry_units(retry_after_s: float) -> int:
    """Seconds in a reply header's units: rounded up, so that a retry is not too early."""
    return min(_RETRY_UNITS_MAX, -int(-retry_after_s * _RETRY_UNITS_PER_S // 1))


def retry_s(units: int) -> float:
    """A reply header's units as seconds."""
    return units / _RETRY_UNITS_PER_S
