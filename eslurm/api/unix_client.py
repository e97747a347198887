"""The client of the Unix socket for commands: blocking, and quick to import.

Invariant: as of `eslurm.api.client`; no gRPC, protobuf, asyncio or option parser is imported here.
"""

from __future__ import annotations

import errno
import os
import select
import socket

from eslurm.api.client import ApiClient, Lost, left_s
from eslurm.ports.api_outcome import Status, status_of
from eslurm.transport.framing import (
    CONNECTION_STREAM,
    DEADLINE_MS_MAX,
    FLAG_RETRY,
    NO_REQUEST_ID,
    REPLY_HEADER,
    REQUEST_HEADER,
    VERSION,
    retry_s,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eslurm.api.methods import Method, ReplyT, RequestT

_REPLY_BYTES_MAX = 1 << 30
_PING_NUMBER = 1
_ABSENT = (errno.ENOENT, errno.ECONNREFUSED, errno.EAGAIN)


class Client(ApiClient):
    """A client of the Unix sockets at `paths`; see `ApiClient`."""

    advice = "is the daemon running on this host, and is this its socket?"

    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str],
        patience_s: float = 2.0,
        find_more: Callable[[], Sequence[str]] | None = None,
        on_refused: Callable[[str], None] | None = None,
    ) -> None:
        endpoints = [os.fspath(paths)] if isinstance(paths, str | os.PathLike) else paths
        super().__init__(endpoints, patience_s, find_more, on_refused)
        self._socket: socket.socket | None = None
        self._stream = 0

    def close(self) -> None:
        """Drop the connection; the next call makes a new one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _break_off(self) -> None:
        connection = self._socket
        if connection is not None:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # It has ended.

    def _connect(self, deadline_s: float) -> None:
        if self._socket is not None:
            return
        try:
            self._socket = _connected(self.path, left_s(deadline_s))
        except OSError as error:
            if len(self._endpoints) > 1 or error.errno in _ABSENT or isinstance(error, TimeoutError):
                raise Lost(error.strerror or "no answer in time") from None
            text = f"{error.strerror or error}; may you enter the directory, and is this a socket?"
            raise Lost(text, is_final=True) from None

    def _exchange(
        self,
        method: Method[RequestT, ReplyT],
        payload: bytes,
        request_id: bytes,
        retry: bool,
        deadline_s: float,
    ) -> tuple[Status, bytes, float]:
        self._connect(deadline_s)
        assert self._socket is not None
        self._stream = self._stream % 0x7FFF_FFFF + 1
        left_ms = min(DEADLINE_MS_MAX, max(1, int(left_s(deadline_s) * 1000)))
        flags = FLAG_RETRY if retry else 0
        header = REQUEST_HEADER.pack(
            len(payload), VERSION, flags, method.number, self._stream, left_ms, request_id
        )
        connection = self._socket
        connection.settimeout(left_s(deadline_s))
        try:
            connection.sendall(header + payload)
        except OSError as error:
            # The service may have said why before it closed.
            said = self._last_words(deadline_s)
            if said is None:
                raise Lost(error.strerror or "sending took too long", sent=True) from None
            return said
        self._await(lambda timeout_s: _is_readable(connection, timeout_s), deadline_s)
        length, version, status, after, stream = REPLY_HEADER.unpack(
            self._receive(REPLY_HEADER.size, deadline_s)
        )
        if version != VERSION or stream not in (self._stream, CONNECTION_STREAM) or length > _REPLY_BYTES_MAX:
            raise Lost("the answer makes no sense to this version of the command", sent=True)
        body = self._receive(length, deadline_s)
        if stream == CONNECTION_STREAM:
            self.close()
        return status_of(status), body, retry_s(after)

    def _answers(self, endpoint: str) -> bool:
        try:
            with _connected(endpoint, self.ping_s) as connection:
                left_ms = int(self.ping_s * 1000)
                connection.sendall(
                    REQUEST_HEADER.pack(0, VERSION, 0, _PING_NUMBER, 1, left_ms, NO_REQUEST_ID)
                )
                return bool(connection.recv(1 << 16))
        except OSError:
            return False

    def _last_words(self, deadline_s: float) -> tuple[Status, bytes, float] | None:
        try:
            length, _version, status, _after, _stream = REPLY_HEADER.unpack(
                self._receive(REPLY_HEADER.size, deadline_s)
            )
            body = self._receive(min(length, 65536), deadline_s)
        except Lost:
            return None
        self.close()
        return status_of(status), body, 0.0

    def _receive(self, size_bytes: int, deadline_s: float) -> bytes:
        assert self._socket is not None
        parts = bytearray()
        while len(parts) < size_bytes:
            try:
                self._socket.settimeout(left_s(deadline_s))
                data = self._socket.recv(min(size_bytes - len(parts), 1 << 20))
            except OSError as error:
                raise Lost(error.strerror or "no answer in time", sent=True) from None
            if not data:
                raise Lost("the service closed the connection", sent=True)
            parts += data
        return bytes(parts)


def _connected(path: str, timeout_s: float) -> socket.socket:
    """A connection to the socket. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _is_readable(connection: socket.socket, timeout_s: float) -> bool:
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    return bool(poller.poll(timeout_s * 1000))
