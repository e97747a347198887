"""Messages of PMI-2: `name=value;` words behind their length in six characters; `;` in a value is doubled."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_LENGTH_CHARS = 6
MESSAGE_BYTES_MAX = 64 * 1024
_WORD = re.compile(rb"([^=;]+)=((?:[^;]|;;)*);")


class BadMessage(Exception):
    """A peer has said what no library for MPI says; the text names what."""


def take_message(buffer: bytearray) -> bytes | None:
    """Take a whole message off the buffer; None: there is none yet. Raises `BadMessage`."""
    if len(buffer) < _LENGTH_CHARS:
        return None
    text = bytes(buffer[:_LENGTH_CHARS]).strip(b" ")
    if not text.isdigit():
        raise BadMessage(f"no length of a message: {bytes(buffer[:_LENGTH_CHARS])!r}")
    size = int(text)
    if size > MESSAGE_BYTES_MAX:
        raise BadMessage(f"a message of {size} bytes: more than {MESSAGE_BYTES_MAX}")
    end = _LENGTH_CHARS + size
    if len(buffer) < end:
        return None
    message = bytes(buffer[_LENGTH_CHARS:end])
    del buffer[:end]
    return message


def parse(message: bytes) -> dict[bytes, bytes]:
    """The words of a message by their names. Raises `BadMessage`."""
    words: dict[bytes, bytes] = {}
    at = 0
    while at < len(message):
        found = _WORD.match(message, at)
        if found is None:
            raise BadMessage(f"a word without a name or an end: {message[at : at + 64]!r}")
        words[found[1]] = found[2].replace(b";;", b";")
        at = found.end()
    return words


def frame(words: Mapping[bytes, bytes]) -> bytes:
    """The message of these words."""
    body = b"".join([name + b"=" + value.replace(b";", b";;") + b";" for name, value in words.items()])
    return b"%6d" % len(body) + body
