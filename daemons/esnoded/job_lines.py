"""The lines of the job's socket: `VERB key=value flag ...` in, lines `key=value` and then `ok` or `error CODE text` out.

Values are UTF-8 with percent-encoding: blanks, control characters and `%` itself are encoded. Invariant: no value that comes
out of here has a control character, and no answer has a line more than it means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

LINE_BYTES_MAX: Final = 4_096
"""The longest request, with its end of line."""
WORDS_MAX: Final = 16
_WORD = re.compile(r"[a-z][a-z-]{0,31}")
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ENCODED = re.compile(rb"%([0-9A-Fa-f]{2})")
_TO_ENCODE = re.compile("[\0-\x1f%\x7f-\x9f\u2028\u2029]")
CODES: Final = (
    "INVALID",
    "DENIED",
    "NOT_FOUND",
    "CONFLICT",
    "EXHAUSTED",
    "UNAVAILABLE",
    "TIMEOUT",
    "INTERNAL",
)
"""All that may follow `error`."""


class LineError(ValueError):
    """A request that cannot be answered; `code` is one of `CODES`."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Line(NamedTuple):
    """A request. `flags` are the words without a value."""

    verb: str
    values: dict[str, str]
    flags: frozenset[str]


def read_line(line: bytes) -> Line:
    """The request of one line without its end. Raises `LineError`."""
    if len(line) >= LINE_BYTES_MAX:
        raise LineError("INVALID", f"the line is longer than {LINE_BYTES_MAX} bytes")
    try:
        text = line.decode("ascii")
    except UnicodeDecodeError:
        raise LineError("INVALID", "the line has bytes beyond ASCII: percent-encode them") from None
    words = text.split(" ")
    if len(words) > WORDS_MAX:
        raise LineError("INVALID", f"the line has more than {WORDS_MAX} words")
    values: dict[str, str] = {}
    flags: set[str] = set()
    for word in words:
        name, equals, value = word.partition("=")
        if not _WORD.fullmatch(name):
            raise LineError("INVALID", f"{word[:64]!r} is not a word of this protocol")
        if name in values or name in flags:
            raise LineError("INVALID", f"{name} is given twice")
        if equals:
            values[name] = _decoded(name, value)
        else:
            flags.add(name)
    verb = words[0]
    if verb not in flags:
        raise LineError("INVALID", "a line begins with its verb")
    return Line(verb, values, frozenset(flags - {verb}))


def _decoded(name: str, value: str) -> str:
    if _BAD_PERCENT.search(value):
        raise LineError("INVALID", f"{name}: a % is not followed by two hexadecimal digits")
    raw = _ENCODED.sub(lambda found: bytes((int(found[1], 16),)), value.encode("ascii"))
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise LineError("INVALID", f"{name} is not UTF-8") from None
    if not text.isprintable():
        raise LineError("INVALID", f"{name} has a control character")
    return text


def value_of(line: Line, key: str) -> str:
    """A value that the verb needs. Raises `LineError`."""
    if key not in line.values:
        raise LineError("INVALID", f"{line.verb} needs {key}=")
    return line.values[key]


def number_of(line: Line, key: str, most: int, *, least: int = 1) -> int:
    """A number that the verb needs. Raises `LineError`."""
    text = value_of(line, key)
    if not (text.isascii() and text.isdecimal() and len(text) <= 13) or not least <= int(text) <= most:
        raise LineError("INVALID", f"{key}={text[:64]} is not a number from {least} to {most}")
    return int(text)


def answer(pairs: Iterable[tuple[str, object]]) -> bytes:
    """The answer to a request that went well."""
    lines = [f"{key}={_encoded(str(value))}\n" for key, value in pairs]
    return "".join([*lines, "ok\n"]).encode("utf-8", "replace")


def refusal(code: str, text: str) -> bytes:
    """The answer to a request that did not."""
    assert code in CODES
    return f"error {code} {_encoded(text)}\n".encode("utf-8", "replace")


def _encoded(text: str) -> str:
    return _TO_ENCODE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)
