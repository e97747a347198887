"""Authenticated frames between the coordinator and its workers, without I/O.

Each side sends a greeting: a fixed word and 32 random bytes. Both make one key of the loop's cookie and of the two
nonces. A frame is a length, the HMAC-SHA256 of direction, sequence number and payload under that key, and the payload.
What a peer without the cookie sends is refused before any of it is read as anything, above all before it is unpickled;
a recorded frame does not pass a second time.

Frames are not encrypted: a network between nodes on which others read is none for secrets.

Bounds: a peer that has proven nothing yet may make this side hold `UNPROVEN_BYTES_MAX`; later each frame has its limit.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct

__all__ = [
    "COOKIE_BYTES",
    "COOKIE_VARIABLE",
    "FRAME_BYTES_MAX",
    "UNPROVEN_BYTES_MAX",
    "FrameError",
    "Frames",
]

COOKIE_BYTES = 32
COOKIE_VARIABLE = "LOOPS_COOKIE"
"""The variable with the cookie in hexadecimal digits; `esrun` passes none that begins with ESLURM_."""
FRAME_BYTES_MAX = 256 << 20
"""Of one task and of the results of one chunk."""
UNPROVEN_BYTES_MAX = 4096
_GREETING = b"eslurm.loops 1\n\0"
_NONCE_BYTES = 32
_MAC_BYTES = 32
_HEADER = struct.Struct("!I")
_SEQUENCE = struct.Struct("!cQ")
_FROM_COORDINATOR, _FROM_WORKER = b"c", b"w"


class FrameError(Exception):
    """The peer does not know the loop's cookie, or breaks the form of frames: its connection ends."""


class Frames:
    """One side of one connection: `greeting` goes out first, then `seal`ed payloads; `feed` takes what comes in."""

    def __init__(self, cookie: bytes, *, is_coordinator: bool) -> None:
        if len(cookie) != COOKIE_BYTES:
            raise FrameError(f"a cookie has {COOKIE_BYTES} bytes, not {len(cookie)}")
        self._cookie = cookie
        self._nonce = os.urandom(_NONCE_BYTES)
        self.greeting = _GREETING + self._nonce
        self._out, self._in = _FROM_COORDINATOR, _FROM_WORKER
        if not is_coordinator:
            self._out, self._in = self._in, self._out
        self._is_coordinator = is_coordinator
        self._key = b""
        self._sent = 0
        self._received = 0
        self._buffer = bytearray()

    @property
    def is_proven(self) -> bool:
        """The peer has sealed a frame with the key."""
        return self._received > 0

    @property
    def is_greeted(self) -> bool:
        """The peer's greeting is here: frames can be sealed."""
        return bool(self._key)

    def seal(self, payload: bytes) -> bytes:
        """A frame's bytes. Raises FrameError for a payload that is too long."""
        if len(payload) > FRAME_BYTES_MAX:
            raise FrameError(f"a frame of {len(payload)} bytes is longer than {FRAME_BYTES_MAX}")
        mac = self._mac(self._out, self._sent, payload)
        self._sent += 1
        return _HEADER.pack(len(payload)) + mac + payload

    def feed(self, data: bytes) -> list[bytes]:
        """Payloads that are complete and authentic. Raises FrameError; then the connection is of no more use."""
        self._buffer += data
        if not self._key and not self._read_greeting():
            return []
        found: list[bytes] = []
        at = 0
        while len(self._buffer) - at >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer, at)
            if length > (FRAME_BYTES_MAX if self.is_proven else UNPROVEN_BYTES_MAX):
                raise FrameError(f"a frame of {length} bytes is announced")
            start = at + _HEADER.size + _MAC_BYTES
            if len(self._buffer) < start + length:
                break
            payload = bytes(memoryview(self._buffer)[start : start + length])
            mac = bytes(self._buffer[at + _HEADER.size : start])
            if not hmac.compare_digest(mac, self._mac(self._in, self._received, payload)):
                raise FrameError("a frame is not of a peer that knows the loop's cookie")
            self._received += 1
            found.append(payload)
            at = start + length
        del self._buffer[:at]
        return found

    def _read_greeting(self) -> bool:
        size = len(_GREETING) + _NONCE_BYTES
        if not _GREETING.startswith(bytes(self._buffer[: len(_GREETING)])):
            raise FrameError("the peer does not speak this protocol")
        if len(self._buffer) < size:
            return False
        theirs = bytes(self._buffer[len(_GREETING) : size])
        del self._buffer[:size]
        nonces = self._nonce + theirs if self._is_coordinator else theirs + self._nonce
        self._key = hmac.digest(self._cookie, _GREETING + nonces, "sha256")
        return True

    def _mac(self, direction: bytes, number: int, payload: bytes) -> bytes:
        mac = hmac.new(self._key, _SEQUENCE.pack(direction, number), hashlib.sha256)
        mac.update(payload)
        return mac.digest()
