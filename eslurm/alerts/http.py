"""HTTP/1.1 as much as alert sources need: one GET, and the reading of heads and bodies for both sides.

Invariant: nothing is read without a bound in bytes; time limits are kept here for the client, by the caller elsewhere.
An asyncio client rather than urllib in a thread: a thread that waits for a host which trickles bytes, or for a name
server, cannot be ended and would hold up the end of the controller; a coroutine is cancelled.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Mapping
from urllib.parse import quote, unquote, urlsplit

import msgspec

from eslurm.core.model.plurals import quoted

HEAD_BYTES_MAX = 32 * 1024
INTERIM_REPLIES_MAX = 5
CHUNK_LINE_BYTES_MAX = 1024
_READ_BYTES = 64 * 1024
# What may stand in a URL unescaped; the percent sign, so that what is escaped already stays.
_URL_SAFE = "/%:@!$&'()*+,;=?~"


class HttpError(Exception):
    """What arrived is no HTTP that can be served; `status` is what a server answers to it."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class FetchError(Exception):
    """The page could not be had. The text says why and names no credentials."""


class Target(msgspec.Struct, frozen=True):
    """Where a page is. `name` is for people: it carries no credentials and no query."""

    name: str
    host: str
    port: int
    path: str
    headers: tuple[tuple[str, str], ...]
    tls: ssl.SSLContext | None = None


class Head(msgspec.Struct, frozen=True):
    """The first line's three words, and the fields by their names in small letters."""

    line: tuple[str, str, str]
    fields: Mapping[str, str]


def parse_url(url: str) -> Target:
    """A URL of http or https, with credentials for basic authentication if it has them. Raises ValueError."""
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{quoted(_without_credentials(url))} is no URL such as http://host:9090")
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = quote(parts.path or "/", safe=_URL_SAFE)
    query = f"?{quote(parts.query, safe=_URL_SAFE)}" if parts.query else ""
    headers = [("Host", f"{host}:{port}")]
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers.append(("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"))
    name = f"{parts.scheme}://{host}:{port}{path.rstrip('/')}"
    return Target(name, parts.hostname, port, path + query, tuple(headers), tls)


def _without_credentials(url: str) -> str:
    scheme, slashes, rest = url.partition("//")
    return scheme + slashes + rest.rpartition("@")[2] if slashes else url.rpartition("@")[2]


async def get(target: Target, timeout_s: float, body_bytes_max: int) -> bytes:
    """The page's body, had within `timeout_s` in all. Raises `FetchError`."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _get(target, body_bytes_max)
    except TimeoutError:
        raise FetchError(f"no answer within {timeout_s:g} s") from None
    except ssl.SSLError as error:
        raise FetchError(f"TLS: {error.reason or error}") from None
    except OSError as error:
        raise FetchError(error.strerror or str(error)) from None
    except UnicodeError:
        raise FetchError(f"'{target.host}' cannot be a host's name") from None
    except HttpError as error:
        raise FetchError(str(error)) from None


async def _get(target: Target, body_bytes_max: int) -> bytes:
    reader, writer = await asyncio.open_connection(
        target.host, target.port, ssl=target.tls, limit=HEAD_BYTES_MAX
    )
    try:
        fields = (*target.headers, ("Accept", "application/json"), ("Accept-Encoding", "identity"))
        lines = [f"GET {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
        writer.write("\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1"))
        head = await _read_reply_head(reader)
        encoding = head.fields.get("content-encoding", "identity")
        if encoding != "identity":
            raise HttpError(502, f"answers in an encoding nobody asked for: {encoding[:40]!r}")
        return await read_body(reader, head.fields, body_bytes_max, until_end=True)
    finally:
        # Not a polite close: a peer that reads nothing would keep the descriptor open.
        writer.transport.abort()


async def _read_reply_head(reader: asyncio.StreamReader) -> Head:
    for _ in range(INTERIM_REPLIES_MAX):
        head = await read_head(reader)
        protocol, status, reason = head.line
        if not protocol.startswith("HTTP/1.") or not status.isascii() or not status.isdigit():
            raise HttpError(502, "answers something that is not HTTP")
        if status.startswith("3"):
            where = _without_credentials(head.fields.get("location", "?"))[:200]
            raise HttpError(502, f"redirects ({status}) to {where}: name that address instead")
        if status == "200":
            return head
        if not status.startswith("1"):
            raise HttpError(502, f"answers {status} {reason[:80]}".rstrip())
    raise HttpError(502, "answers nothing but interim replies")


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
