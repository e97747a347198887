"""A step's output on its way to the waiting command: frames that only holders of the step's cookie write or read.

A connection begins with one clear frame: a magic word and a random salt. From cookie and salt both ends derive the key of
this connection (HKDF-SHA256); every later frame is AES-256-GCM under it, its nonce a counter and its length under the tag.
So a frame that is changed, repeated, left out or moved is noticed, and the first frame that opens proves the cookie. A
frame is a 4-byte big-endian length and that many bytes. What flows back (the tasks' input) has a key of its own from the
same cookie and salt, and no opening.

A command that attaches to a running step connects in the same way, with another magic word and a secret of its own, which
follows from the cookie (`attach_secret`): it opens no stream of the step's nodes, and can be none of them.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from typing import NamedTuple

from eslurm.core.model.values import COOKIE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

FRAME_BYTES_MAX = 256 * 1024
FIRST_BYTES_MAX = 4 * 1024
"""Of a frame before one has proven the cookie."""
_SALT_BYTES = 32
_TAG_BYTES = 16
_HEADER = struct.Struct(">I")
_NONCE = struct.Struct(">4xQ")
_MAGIC_BYTES = 14
_ATTACH = b"eslurm step stream 1: secret of what attaches"


class Purpose(NamedTuple):
    """The use of a connection: its magic word, and the labels of the keys of both directions."""

    magic: bytes
    info: bytes
    info_back: bytes


OUTPUT = Purpose(
    b"eslurm-step-1\0",
    b"eslurm step stream 1: supervisor to listener",
    b"eslurm step stream 1: listener to supervisor",
)
"""A node's supervisor sends its tasks' output. The secret is the step's cookie."""
ATTACHED = Purpose(
    b"eslurm-atch-1\0",
    b"eslurm step stream 1: attached to listener",
    b"eslurm step stream 1: listener to attached",
)
"""A command gets a copy of the output. The secret is `attach_secret`."""


def attach_secret(cookie: bytes) -> bytes:
    """The secret with which a command attaches to the step of this cookie. The cookie does not follow from it."""
    return hmac.digest(cookie, _ATTACH, hashlib.sha256)


class BadStream(Exception):
    """The bytes are no such stream, or not under this cookie; the connection is unusable."""


class StreamSealer:
    """The writing end of one direction. Of the end that has connected, `opening` are the first bytes to send."""

    def __init__(self, cookie: bytes, salt: bytes = b"", purpose: Purpose = OUTPUT) -> None:
        """`salt` is the peer's, at the end that was connected to. `cookie` is the secret of the purpose."""
        self._cookie = cookie
        self._salt = salt or os.urandom(_SALT_BYTES)
        self._purpose = purpose
        self._cipher = _cipher(cookie, self._salt, purpose.info_back if salt else purpose.info)
        self._count = 0
        self.opening = _HEADER.pack(_MAGIC_BYTES + _SALT_BYTES) + purpose.magic + self._salt

    def back(self) -> StreamOpener:
        """The reading end of what comes back, at the end that has connected."""
        return StreamOpener(self._cookie, self._salt, self._purpose)

    def seal(self, body: bytes) -> bytes:
        """The next frame. Raises ValueError for a body that is too large."""
        size = len(body) + _TAG_BYTES
        if size > FRAME_BYTES_MAX:
            raise ValueError(f"a frame of {size} bytes exceeds the limit of {FRAME_BYTES_MAX}")
        header = _HEADER.pack(size)
        sealed = self._cipher.encrypt(_NONCE.pack(self._count), body, header)
        self._count += 1
        return header + sealed


class StreamOpener:
    """The reading end of one direction. Holds at most one frame and the bytes behind it."""

    def __init__(self, cookie: bytes, salt: bytes = b"", purpose: Purpose = OUTPUT) -> None:
        """`salt` is that of the end that has connected, if this is it, and `cookie` the secret of the purpose; else the
        stream begins with both, and `cookie` is the step's.
        """
        self._cookie = cookie
        self._salt = salt
        self.purpose = purpose
        self._cipher: AESGCM | None = _cipher(cookie, salt, purpose.info_back) if salt else None
        self._count = 0
        self._buffer = bytearray()

    def back(self) -> StreamSealer:
        """The writing end of what goes back. The peer's opening must have come: a frame of it was opened."""
        assert self._salt
        return StreamSealer(self._cookie, self._salt, self.purpose)

    @property
    def is_proven(self) -> bool:
        """Check whether the peer has proved that it holds the cookie."""
        return self._count > 0

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies completed by `data`, in order. Raises `BadStream`; the stream is unusable then."""
        buffer = self._buffer
        buffer += data
        bodies: list[bytes] = []
        start = 0
        while len(buffer) - start >= _HEADER.size:
            (size,) = _HEADER.unpack_from(buffer, start)
            if size > (FRAME_BYTES_MAX if self.is_proven else FIRST_BYTES_MAX):
                raise BadStream(f"a frame of {size} bytes")
            end = start + _HEADER.size + size
            if len(buffer) < end:
                break
            body = self._open(
                bytes(buffer[start : start + _HEADER.size]), bytes(buffer[start + _HEADER.size : end])
            )
            start = end
            if body is not None:
                bodies.append(body)
        del buffer[:start]
        return bodies

    def _open(self, header: bytes, frame: bytes) -> bytes | None:
        if self._cipher is None:
            magic, self._salt = frame[:_MAGIC_BYTES], frame[_MAGIC_BYTES:]
            if len(self._salt) != _SALT_BYTES or magic not in (OUTPUT.magic, ATTACHED.magic):
                raise BadStream("no opening of a step's stream")
            if magic == ATTACHED.magic:
                self.purpose, self._cookie = ATTACHED, attach_secret(self._cookie)
            self._cipher = _cipher(self._cookie, self._salt, self.purpose.info)
            return None
        from cryptography.exceptions import InvalidTag

        try:
            body = self._cipher.decrypt(_NONCE.pack(self._count), frame, header)
        except (InvalidTag, ValueError):
            raise BadStream("a frame that is not under the step's cookie") from None
        self._count += 1
        return body


def _cipher(cookie: bytes, salt: bytes, info: bytes) -> AESGCM:
    if len(cookie) != COOKIE_BYTES:
        raise ValueError(f"a cookie of {len(cookie)} bytes instead of {COOKIE_BYTES}")
    # Not at the top: a supervisor that streams nothing would be half as large again, and commands start in milliseconds.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return AESGCM(HKDF(SHA256(), 32, salt, info).derive(cookie))
