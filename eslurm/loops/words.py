"""The payloads of frames: one letter for the kind, then fields of fixed length, then text or a pickle.

A worker says JOIN once, then DONE or FAILED for each GRANT; the coordinator says WELCOME (its proof, short as a first
frame is) and TASK once, then a GRANT at a time, at last STOP. ASKED: another job would use its core;
REST: leave it to others.
"""

from __future__ import annotations

import struct

__all__ = [
    "ASKED",
    "DONE",
    "FAILED",
    "GRANT",
    "JOIN",
    "LABEL_CHARS_MAX",
    "REST",
    "STOP",
    "TASK",
    "TEXT_CHARS_MAX",
    "WELCOME",
    "WordError",
    "read_done",
    "read_failed",
    "read_grant",
    "text_of",
    "write_done",
    "write_failed",
    "write_grant",
    "write_join",
]

JOIN, WELCOME, TASK, GRANT, DONE, FAILED, STOP = b"J", b"W", b"T", b"G", b"D", b"F", b"S"
ASKED, REST = b"A", b"R"
LABEL_CHARS_MAX = 200
TEXT_CHARS_MAX = 8_000
_GRANT = struct.Struct("!QQQ")
_DONE = struct.Struct("!Qd")
_FAILED = struct.Struct("!Q")


class WordError(Exception):
    """A payload is too short for its kind."""


def write_join(label: str) -> bytes:
    """A worker's name for people."""
    return JOIN + label[:LABEL_CHARS_MAX].encode()


def text_of(rest: bytes, chars_max: int) -> str:
    """Text of a payload, cut, without characters that move a terminal's cursor."""
    text = rest[: 4 * chars_max].decode("utf-8", "replace")[:chars_max]
    return "".join(char if char == "\n" or char.isprintable() else " " for char in text)


def write_grant(number: int, start: int, stop: int) -> bytes:
    """Iterations for a worker."""
    return GRANT + _GRANT.pack(number, start, stop)


def read_grant(rest: bytes) -> tuple[int, int, int]:
    """Number, start, stop. Raises WordError."""
    number, start, stop = _unpacked(_GRANT, rest)
    return int(number), int(start), int(stop)


def write_done(number: int, seconds: float, pickled: bytes) -> bytes:
    """A chunk's results."""
    return DONE + _DONE.pack(number, seconds) + pickled


def read_done(rest: bytes) -> tuple[int, float, memoryview]:
    """Number, seconds in the function, pickled results. Raises WordError."""
    number, seconds = _unpacked(_DONE, rest)
    return int(number), float(seconds), memoryview(rest)[_DONE.size :]


def write_failed(number: int, text: str) -> bytes:
    """A chunk's error: the end of its traceback, which names the error."""
    return FAILED + _FAILED.pack(number) + text[-TEXT_CHARS_MAX:].encode("utf-8", "replace")


def read_failed(rest: bytes) -> tuple[int, str]:
    """Number, text. Raises WordError."""
    (number,) = _unpacked(_FAILED, rest)
    return int(number), text_of(rest[_FAILED.size :], TEXT_CHARS_MAX)


def _unpacked(form: struct.Struct, rest: bytes) -> tuple[int | float, ...]:
    try:
        return form.unpack_from(rest)
    except struct.error as error:
        raise WordError(f"a payload of {len(rest)} bytes is too short") from error
