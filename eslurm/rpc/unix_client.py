"""The client of the Unix door for commands: blocking, and quick to import.

Invariant: one call keeps one request id over all its tries, so whatever was lost on the way takes effect at most
once; a call ends by its deadline. No gRPC, protobuf, asyncio or option parser is imported here.
"""

from __future__ import annotations

import errno
import os
import socket
import time

from eslurm.ports.door import DoorRefused, DoorUnreachable, Status, status_of
from eslurm.rpc.framing import (
    CONNECTION_STREAM,
    DEADLINE_MS_MAX,
    FLAG_RETRY,
    NO_REQUEST_ID,
    REPLY_HEADER,
    REQUEST_HEADER,
    REQUEST_ID_BYTES,
    VERSION,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    # The protobuf runtime takes longer to import than a call takes.
    from eslurm.rpc.methods import Method, ReplyT, RequestT

_BACKOFF_FIRST_S = 0.05
_BACKOFF_MAX_S = 1.0
_REPLY_BYTES_MAX = 1 << 30
_ABSENT = (errno.ENOENT, errno.ECONNREFUSED, errno.EAGAIN)


class _Lost(Exception):
    """This try failed; the next may not."""


class Client:
    """A connection to the door at `path`, made when first needed and again when lost. Not for several threads.

    `patience_s`: how long a door that was never reached is tried again (it may be restarting).
    """

    def __init__(self, path: str | os.PathLike[str], patience_s: float = 2.0) -> None:
        self.path = os.fspath(path)
        self._patience_s = patience_s
        self._socket: socket.socket | None = None
        self._stream = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the connection; the next call makes a new one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def call(
        self,
        method: Method[RequestT, ReplyT],
        request: RequestT,
        timeout_s: float,
        request_id: bytes | None = None,
    ) -> ReplyT:
        """Make one call and return its reply.

        Tries again with the same `request_id` (made up if none is given) when the connection is lost or the
        service is not available, until `timeout_s` is over. Raises `DoorRefused` with the service's status, or
        `DoorUnreachable`; its `maybe_done` says whether the call may have taken effect all the same.
        """
        if request_id is None:
            request_id = os.urandom(REQUEST_ID_BYTES) if method.mutating else NO_REQUEST_ID
        if len(request_id) != REQUEST_ID_BYTES:
            raise ValueError(f"a request id has {REQUEST_ID_BYTES} bytes, not {len(request_id)}")
        payload = request.SerializeToString()
        began_s = time.monotonic()
        deadline_s = began_s + timeout_s
        sent = False
        lost_one = False
        tries = 0
        while True:
            refused: DoorRefused | None = None
            lost: _Lost | None = None
            try:
                self._connect(deadline_s)
                retry, sent = sent, True
                status, body = self._exchange(method.number, payload, request_id, retry, deadline_s)
            except _Lost as error:
                self.close()
                lost = error
                lost_one = sent
            else:
                if status is Status.OK:
                    return method.reply.FromString(body)
                if status is Status.DEADLINE_EXCEEDED:
                    raise self._unreachable("no answer in time", sent, time.monotonic() - began_s)
                refused = DoorRefused(status, body.decode(errors="replace"), maybe_done=lost_one)
                if status is not Status.UNAVAILABLE:
                    raise refused
            tries += 1
            pause_s = _pause_s(tries)
            now_s = time.monotonic()
            limit_s = deadline_s if sent else min(deadline_s, began_s + self._patience_s)
            if now_s + pause_s >= limit_s:
                if refused is not None:
                    raise refused
                raise self._unreachable(str(lost), sent, now_s - began_s)
            time.sleep(pause_s)

    def _unreachable(self, text: str, sent: bool, waited_s: float) -> DoorUnreachable:
        advice = (
            "the call may have taken effect: look before you repeat it"
            if sent
            else "is the daemon running on this host, and is this its socket?"
        )
        return DoorUnreachable(f"{self.path}: {text} (tried for {waited_s:.1f} s); {advice}", maybe_done=sent)

    def _connect(self, deadline_s: float) -> None:
        if self._socket is not None:
            return
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_left_s(deadline_s))
            connection.connect(self.path)
        except OSError as error:
            connection.close()
            if error.errno in _ABSENT or isinstance(error, TimeoutError):
                raise _Lost(error.strerror or "no answer in time") from None
            raise DoorUnreachable(
                f"{self.path}: {error.strerror or error}; may you enter the directory, and is this a socket?"
            ) from None
        self._socket = connection

    def _exchange(
        self, number: int, payload: bytes, request_id: bytes, retry: bool, deadline_s: float
    ) -> tuple[Status, bytes]:
        self._stream = self._stream % 0x7FFF_FFFF + 1
        left_ms = min(DEADLINE_MS_MAX, max(1, int(_left_s(deadline_s) * 1000)))
        flags = FLAG_RETRY if retry else 0
        header = REQUEST_HEADER.pack(len(payload), VERSION, flags, number, self._stream, left_ms, request_id)
        assert self._socket is not None
        self._socket.settimeout(_left_s(deadline_s))
        try:
            self._socket.sendall(header + payload)
        except OSError as error:
            # The door may have said why before it closed.
            said = self._last_words(deadline_s)
            if said is None:
                raise _Lost(error.strerror or "sending took too long") from None
            return said
        length, version, status, _reserved, stream = REPLY_HEADER.unpack(
            self._receive(REPLY_HEADER.size, deadline_s)
        )
        if version != VERSION or stream not in (self._stream, CONNECTION_STREAM) or length > _REPLY_BYTES_MAX:
            raise _Lost("the answer makes no sense to this version of the command")
        body = self._receive(length, deadline_s)
        if stream == CONNECTION_STREAM:
            self.close()
        return status_of(status), body

    def _last_words(self, deadline_s: float) -> tuple[Status, bytes] | None:
        try:
            length, _version, status, _reserved, _stream = REPLY_HEADER.unpack(
                self._receive(REPLY_HEADER.size, deadline_s)
            )
            body = self._receive(min(length, 65536), deadline_s)
        except _Lost:
            return None
        self.close()
        return status_of(status), body

    def _receive(self, size_bytes: int, deadline_s: float) -> bytes:
        assert self._socket is not None
        parts = bytearray()
        while len(parts) < size_bytes:
            try:
                self._socket.settimeout(_left_s(deadline_s))
                data = self._socket.recv(min(size_bytes - len(parts), 1 << 20))
            except OSError as error:
                raise _Lost(error.strerror or "no answer in time") from None
            if not data:
                raise _Lost("the door closed the connection")
            parts += data
        return bytes(parts)


def _left_s(deadline_s: float) -> float:
    # Zero would mean non-blocking.
    return max(0.001, deadline_s - time.monotonic())


def _pause_s(tries: int) -> float:
    """Doubling, with half of it left to chance so that many commands do not come back together."""
    whole_s: float = min(_BACKOFF_MAX_S, _BACKOFF_FIRST_S * 2 ** min(tries - 1, 8))
    return whole_s * (0.5 + os.urandom(1)[0] / 512)
