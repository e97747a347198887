"""HTTP/1.1 as much as daemons need: the reading of heads and bodies, and a server of one request a connection.

Invariant: nothing is read without a bound in bytes. The server bounds connections and their time; a client's caller does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

import msgspec

log = logging.getLogger(__name__)

HEAD_BYTES_MAX = 32 * 1024
CONNECTIONS_MAX = 64
CHUNK_LINE_BYTES_MAX = 1024
_READ_BYTES = 64 * 1024


class HttpError(Exception):
    """The bytes are no valid HTTP; `status` is a server's answer to them, with these further `fields`."""

    def __init__(self, status: int, text: str, fields: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.fields = fields


class Head(msgspec.Struct, frozen=True):
    """The first line's three words, and the fields by their names in small letters."""

    line: tuple[str, str, str]
    fields: Mapping[str, str]


class Request:
    """A request whose head is read. `proved()` keeps its connection when others ask for room."""

    def __init__(self, head: Head, reader: asyncio.StreamReader, proved: Callable[[], object]) -> None:
        self.head = head
        self.reader = reader
        self.proved = proved


class Reply(NamedTuple):
    """An HTTP response."""

    status: int
    body: bytes
    kind: str = "text/plain; charset=utf-8"
    fields: str = ""


class HttpServer:
    """A server of one request a connection, on the running loop. `answer` may raise `HttpError`; `refused` hears of it.

    At most `CONNECTIONS_MAX` connections are held, each for `timeout_s`: for a new one, the oldest that has not proved
    itself is broken off.
    """

    def __init__(
        self,
        answer: Callable[[Request], Awaitable[Reply]],
        refused: Callable[[HttpError], None],
        timeout_s: float,
    ) -> None:
        self._answer = answer
        self._refused = refused
        self._timeout_s = timeout_s
        # The loop keeps only a weak reference.
        self._server: asyncio.Server | None = None
        self.callers: set[asyncio.Task[None]] = set()
        # Those that have not proved themselves, the oldest first.
        self._unproven: dict[asyncio.Task[None], None] = {}

    async def start(self, host: str, port: int) -> str:
        """Listen, and say where: host:port. Raises OSError."""
        self._server = await asyncio.start_server(self._on_connection, host, port, limit=HEAD_BYTES_MAX)
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def close(self) -> None:
        """Stop listening and end the connections."""
        if self._server is None:
            return
        self._server.close()
        callers = list(self.callers)
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self.callers) >= CONNECTIONS_MAX:
            # No polite answer: waiting until it is read would take what is being saved here.
            self._refused(HttpError(503, "too many connections"))
            oldest = next(iter(self._unproven), None)
            if oldest is None:
                writer.transport.abort()
                return
            del self._unproven[oldest]
            oldest.cancel()
        caller = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self.callers.add(caller)
        self._unproven[caller] = None
        caller.add_done_callback(self._forget)

    def _forget(self, caller: asyncio.Task[None]) -> None:
        self.callers.discard(caller)
        self._unproven.pop(caller, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Drained is what the peer's host has taken: a reply is not cut off by the end of the connection.
        writer.transport.set_write_buffer_limits(high=0)
        try:
            async with asyncio.timeout(self._timeout_s):
                writer.write(await self._reply(reader))
                await writer.drain()
                writer.write_eof()
                # Closing with unread bytes would reset the connection, and the caller might lose the answer.
                while await reader.read(HEAD_BYTES_MAX):
                    pass
        except (OSError, TimeoutError):
            pass
        finally:
            writer.transport.abort()

    async def _reply(self, reader: asyncio.StreamReader) -> bytes:
        method = ""
        try:
            head = await read_head(reader)
            method, _path, protocol = head.line
            if not protocol.startswith("HTTP/1."):
                raise HttpError(400, "the first line is not HTTP/1.1")
            task = asyncio.current_task()
            assert task is not None
            reply = await self._answer(Request(head, reader, lambda: self._unproven.pop(task, None)))
        except HttpError as error:
            self._refused(error)
            reply = Reply(error.status, f"{error}\n".encode(), fields=error.fields)
        except Exception as error:
            log.exception("a request cannot be answered")
            self._refused(HttpError(500, repr(error)))
            reply = Reply(500, b"the request cannot be answered\n")
        first = f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}\r\n{reply.fields}"
        fields = (
            f"Content-Type: {reply.kind}\r\nContent-Length: {len(reply.body)}\r\nConnection: close\r\n\r\n"
        )
        return (first + fields).encode() + (b"" if method == "HEAD" else reply.body)


async def read_head(reader: asyncio.StreamReader) -> Head:
    """First line and fields. Raises `HttpError`; the reader's limit bounds it."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise HttpError(431, "the head is too long") from None
    except asyncio.IncompleteReadError as error:
        raise HttpError(400, f"the connection ended {len(error.partial)} bytes into the head") from None
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2:
        raise HttpError(400, "the first line is not HTTP")
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise HttpError(400, "a header field is malformed")
        if name.lower() in ("content-length", "transfer-encoding") and name.lower() in fields:
            raise HttpError(400, f"{name} comes twice")
        fields[name.lower()] = value.strip()
    return Head((words[0], words[1], words[2] if len(words) == 3 else ""), fields)


def body_length(fields: Mapping[str, str], body_bytes_max: int) -> int | None:
    """The announced length, None without one. Raises `HttpError` when it is wrong or too much."""
    text = fields.get("content-length")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise HttpError(400, "Content-Length is not a number")
    if int(text) > body_bytes_max:
        raise HttpError(413, f"the body is {text} bytes, at most {body_bytes_max} are read")
    return int(text)


async def read_body(
    reader: asyncio.StreamReader, fields: Mapping[str, str], body_bytes_max: int, until_end: bool = False
) -> bytes:
    """The body, chunked or of announced length, else (`until_end`) all that comes. Raises `HttpError`."""
    try:
        if "transfer-encoding" in fields:
            if fields["transfer-encoding"].lower() != "chunked":
                raise HttpError(501, "the transfer encoding is unknown")
            return await _read_chunks(reader, body_bytes_max)
        length = body_length(fields, body_bytes_max)
        if length is not None:
            return await reader.readexactly(length)
    except asyncio.IncompleteReadError:
        raise HttpError(400, "the connection ended before the body did") from None
    if not until_end:
        raise HttpError(411, "the body's length is not announced")
    return await _read_to_end(reader, body_bytes_max)


async def _read_to_end(reader: asyncio.StreamReader, body_bytes_max: int) -> bytes:
    body = bytearray()
    while piece := await reader.read(_READ_BYTES):
        body += piece
        if len(body) > body_bytes_max:
            raise HttpError(413, f"the body is over {body_bytes_max} bytes")
    return bytes(body)


async def _read_chunks(reader: asyncio.StreamReader, body_bytes_max: int) -> bytes:
    body = bytearray()
    while size := _chunk_size(await _read_line(reader)):
        if len(body) + size > body_bytes_max:
            raise HttpError(413, f"the body is over {body_bytes_max} bytes")
        body += await reader.readexactly(size)
        if await reader.readexactly(2) != b"\r\n":
            raise HttpError(400, "a chunk is longer than it said")
    # What may follow (trailers) changes nothing, and each connection serves one request.
    return bytes(body)


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    try:
        line = await reader.readuntil(b"\r\n")
    except asyncio.LimitOverrunError:
        raise HttpError(400, "a chunk's head is too long") from None
    if len(line) > CHUNK_LINE_BYTES_MAX:
        raise HttpError(400, "a chunk's head is too long")
    return line


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    # int() takes signs, underscores and spaces too.
    if not digits or len(digits) > 15 or digits.strip(b"0123456789abcdefABCDEF"):
        raise HttpError(400, "a chunk's size is not a number")
    return int(digits, 16)
